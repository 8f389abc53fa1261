"""What differs between the releases of langgraph-checkpoint that are supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import langgraph.checkpoint.serde.types as _types

__all__ = ["COUNTERS", "DeltaSnapshot", "steps_since_snapshot"]

COUNTERS = "counters_since_delta_snapshot"
"""Metadata of a checkpoint whose delta channels are rebuilt from its ancestors."""


class _NoSnapshot:
    """Stands for the snapshot type before langgraph-checkpoint 4: nothing is one."""


DeltaSnapshot: type = getattr(_types, "_DeltaSnapshot", _NoSnapshot)
"""The stored value of a `DeltaChannel`."""


def steps_since_snapshot(metadata: Mapping[str, Any]) -> int | None:
    """How many steps back the oldest snapshot lies that delta channels are rebuilt from.

    A hint: LangGraph calls the contents of its counters unsettled.

    Args:
        metadata: A checkpoint's metadata; its counters are updates and steps, by channel.

    Returns:
        The number of steps; None when nothing is rebuilt, or the counters say it otherwise.
    """
    counters = metadata.get(COUNTERS)
    pairs = counters.values() if isinstance(counters, Mapping) else ()
    steps = (pair[1] for pair in pairs if isinstance(pair, (tuple, list)) and len(pair) == 2)
    return max((one for one in steps if isinstance(one, int)), default=None)
