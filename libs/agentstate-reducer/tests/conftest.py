"""Settings shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import servers

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=150,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session")
def mongodb_uri() -> Iterator[str]:
    """The address of a MongoDB server."""
    with servers.mongodb() as uri:
        yield uri
