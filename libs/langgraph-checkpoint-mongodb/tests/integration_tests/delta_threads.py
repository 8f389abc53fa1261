"""Threads with delta channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face
from tests.support import Chain

COUNTERS = "counters_since_delta_snapshot"

LARGE = "x" * 2 * INLINE_VALUE_BYTES

COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")

DB = Database[dict[str, Any]]


class DeltaThread(Chain):
    """A thread with delta channels, put as langgraph puts it.

    Args:
        face: The saver.
        config: Where it begins.
        counters: Whether checkpoints count since their snapshots, as langgraph's do.
    """

    def __init__(
        self, face: Face, config: RunnableConfig | None = None, *, counters: bool = True
    ) -> None:
        super().__init__(face, config=config)
        self.counters = counters
        self.counted: dict[str, int] = {}
        self.silent: tuple[str, ...] = ()

    def step(
        self, writes: Mapping[str, Sequence[Any]], stored: Mapping[str, Any] | None = None
    ) -> RunnableConfig:
        """Put a checkpoint and the writes of the step after it.

        Args:
            writes: What the next step writes, by channel.
            stored: Values that the checkpoint holds: snapshots, plain values.
        """
        stored = stored or {}
        for channel in {*writes, *stored}:
            self.counted[channel] = 0 if channel in stored else self.counted.get(channel, 0) + 1
        metadata: dict[str, Any] = {}
        counted = {channel: (n, n) for channel, n in self.counted.items() if n}
        # langgraph counts the steps of every delta channel, written or not.
        counted |= dict.fromkeys(self.silent, (0, 4000))
        if self.counters and counted:
            metadata[COUNTERS] = counted
        self.values = {}
        self.put(stored, touch=writes.keys() - stored.keys(), metadata=metadata)
        for number, (channel, values) in enumerate(writes.items()):
            task = f"task {number}"
            self.face.put_writes(self.config, [(channel, value) for value in values], task)
        return self.config


def by_the_base_class(face: Face, config: RunnableConfig, channels: Sequence[str]) -> Any:
    """What the base class's own walk answers, on the same saver."""
    saver = face.saver
    if isinstance(saver, MongoDBSaver):
        return BaseCheckpointSaver.get_delta_channel_history(
            saver, config=config, channels=channels
        )
    return face.run(
        BaseCheckpointSaver.aget_delta_channel_history(saver, config=config, channels=channels)
    )


def history(face: Face, config: RunnableConfig, *channels: str) -> Any:
    """The history of channels, after it was found equal to the base class's."""
    found = face.get_delta_channel_history(config=config, channels=channels)
    assert found == by_the_base_class(face, config, channels)
    return found


def written(entry: Any) -> list[Any]:
    return [value for _, _, value in entry["writes"]]
