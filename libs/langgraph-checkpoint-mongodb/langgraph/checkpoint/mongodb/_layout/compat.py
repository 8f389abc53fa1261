"""What differs between the releases of langgraph-checkpoint that are supported."""

from __future__ import annotations

from collections.abc import Mapping

import langgraph.checkpoint.serde.types as _types

__all__ = ["COUNTERS", "DeltaSnapshot", "steps_since_snapshot"]

COUNTERS = "counters_since_delta_snapshot"
"""Metadata of a checkpoint whose delta channels are rebuilt from its ancestors."""


class _NoSnapshot:
    """Stands for the snapshot type before langgraph-checkpoint 4: nothing is one."""


DeltaSnapshot: type = getattr(_types, "_DeltaSnapshot", _NoSnapshot)
"""The stored value of a `DeltaChannel`."""


def steps_since_snapshot(counters: object) -> dict[str, int]:
    """How many steps back the last snapshots of delta channels lie.

    A hint at most: LangGraph calls the contents of its counters unsettled.

    Args:
        counters: The counters in a checkpoint's metadata: updates and steps, by channel.

    Returns:
        The steps by channel; counters of another form are left out.
    """
    pairs = counters.items() if isinstance(counters, Mapping) else ()
    return {
        channel: pair[1]
        for channel, pair in pairs
        if isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[1], int)
    }
