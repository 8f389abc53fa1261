"""On how many examples properties are tried; more with HYPOTHESIS_PROFILE=thorough."""

from __future__ import annotations

import os

FACTORS = {"everyday": 1, "thorough": 3}


def examples(everyday: int) -> int:
    """The number of examples where so many are tried every day."""
    return everyday * FACTORS[os.environ.get("HYPOTHESIS_PROFILE", "everyday")]
