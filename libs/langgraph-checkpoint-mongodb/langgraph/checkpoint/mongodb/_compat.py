"""What differs between the releases of langgraph-checkpoint that are supported."""

from __future__ import annotations

import langgraph.checkpoint.serde.types as _types

__all__ = ["COUNTERS", "DeltaSnapshot"]

COUNTERS = "counters_since_delta_snapshot"
"""Metadata of a checkpoint whose delta channels are rebuilt from its ancestors."""


class _NoSnapshot:
    """Stands for the snapshot type before langgraph-checkpoint 4: nothing is one."""


DeltaSnapshot: type = getattr(_types, "_DeltaSnapshot", _NoSnapshot)
"""The stored value of a `DeltaChannel`."""
