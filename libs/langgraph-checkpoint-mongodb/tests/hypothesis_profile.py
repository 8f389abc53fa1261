"""On how many examples properties are tried; more with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os

FACTORS = {"everyday": 1, "thorough": 3}


def examples(everyday: int) -> int:
    """The number of examples where so many are tried every day."""
    return everyday * FACTORS[os.environ.get("HYPOTHESIS_PROFILE", "everyday")]


def moments(stop: int, *, first: int) -> range:
    """Moments to stop something at: all of them on the server that `MONGODB_URI` names.

    The embedded one takes many times as long for each; there it is every fourth.

    Args:
        stop: The first moment that is too late.
        first: Spreads the choice over the cases of a test.
    """
    if "MONGODB_URI" in os.environ:
        return range(1, stop)
    return range(1 + first % 4, stop, 4)
