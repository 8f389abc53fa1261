"""Settings shared by all tests."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Iterator

import hypothesis
import pytest
import servers

for profile, examples in (("everyday", 150), ("thorough", 500)):  # the latter in `.ci/run`
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "everyday"))
EXIT_LIMIT_S = 60
STDERR = 2


def pytest_unconfigure() -> None:
    """Bound the time that threads left behind can hold up the end of the run."""
    faulthandler.dump_traceback_later(EXIT_LIMIT_S, exit=True, file=STDERR)


@pytest.fixture(scope="session")
def mongodb_uri(pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of a MongoDB server."""
    with contextlib.ExitStack() as stack:
        # What the server's keeper prints is for the terminal: it may outlive this process.
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            uri = stack.enter_context(servers.mongodb())
        yield uri
