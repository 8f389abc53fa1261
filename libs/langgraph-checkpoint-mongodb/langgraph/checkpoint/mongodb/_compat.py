"""What differs between the releases of langgraph-checkpoint that are supported."""

from __future__ import annotations

import langgraph.checkpoint.serde.types as _types

__all__ = ["DeltaSnapshot"]


class _NoSnapshot:
    """Stands for the snapshot type before langgraph-checkpoint 4: nothing is one."""


DeltaSnapshot: type = getattr(_types, "_DeltaSnapshot", _NoSnapshot)
"""The stored value of a `DeltaChannel`."""
