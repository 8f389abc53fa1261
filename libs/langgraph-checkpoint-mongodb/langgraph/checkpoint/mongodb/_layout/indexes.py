"""The indexes that there must be. One that exists counts by its keys and properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.checkpoint.mongodb._layout.keys import VALUE_KEY, WRITE_KEY, Document

__all__ = ["INDEXES", "TTL_KEYS", "UNIQUE_FIELDS", "Index"]

Keys = tuple[tuple[str, int], ...]

_CHECKPOINT_KEYS: Keys = (("thread_id", 1), ("checkpoint_ns", 1), ("checkpoint_id", -1))
_DESCENDING = "checkpoint_id"

TTL_KEYS: Keys = (("created_at", 1),)


@dataclass(frozen=True, slots=True)
class Index:
    """An index that a query of the savers relies on.

    Attributes:
        keys: Fields and directions.
        unique: Whether correctness, not only speed, depends on it.
        partial: The filter of the documents it holds, None for all.
    """

    keys: Keys
    unique: bool = False
    partial: Document | None = None

    def options(self) -> dict[str, Any]:
        """What the driver makes it with, besides the keys."""
        options: dict[str, Any] = {}
        if self.unique:
            options["unique"] = True
        if self.partial is not None:
            options["partialFilterExpression"] = self.partial
        return options

    def is_met_by(self, existing: Mapping[str, Any]) -> bool:
        """Whether an existing index serves."""
        return (
            tuple(existing["key"]) == self.keys
            and (not self.unique or bool(existing.get("unique")))
            and existing.get("partialFilterExpression") in (None, self.partial)
            and not existing.get("sparse")
        )


Role = Literal["checkpoints", "writes", "values"]

INDEXES: Mapping[Role, tuple[Index, ...]] = {
    "checkpoints": (
        Index(_CHECKPOINT_KEYS, unique=True),
        Index((("thread_id", 1), ("checkpoint_id", -1), ("checkpoint_ns", 1))),
        Index((("checkpoint_id", -1), ("thread_id", 1), ("checkpoint_ns", 1))),
        Index((("run_id", 1),), partial={"run_id": {"$exists": True}}),
        # Older releases have it in the metadata alone.
        Index((("metadata.run_id", 1),), partial={"metadata.run_id": {"$exists": True}}),
    ),
    "writes": (
        Index(
            tuple((name, -1 if name == _DESCENDING else 1) for name in WRITE_KEY),
            unique=True,
        ),
    ),
    "values": (Index(tuple((name, 1) for name in VALUE_KEY), unique=True),),
}

UNIQUE_FIELDS: Mapping[Role, tuple[str, ...]] = {
    role: tuple(name for name, _ in index.keys)
    for role, indexes in INDEXES.items()
    for index in indexes
    if index.unique
}
"""What identifies the documents of each collection."""
