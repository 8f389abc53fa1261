"""Settings shared by all tests."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=150,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("default")
