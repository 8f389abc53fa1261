"""A thread of checkpoints put by hand, for what a graph would take too long to build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint

from bench.faces import Config, Face


class HandMadeThread:
    """Puts checkpoints one after another, as LangGraph's loop does.

    Args:
        face: The saver to put into.
        thread_id: The thread's name.
    """

    def __init__(self, face: Face, thread_id: str) -> None:
        self.face = face
        self.thread_id = thread_id
        self.config: Config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        self.values: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.step = 0
        self._latest: Any = empty_checkpoint()

    @property
    def latest_id(self) -> str:
        """The id of the newest checkpoint."""
        latest: str = self._latest["id"]
        return latest

    async def put(self, changed: Mapping[str, Any]) -> None:
        """Put a checkpoint in which the given channels have new values."""
        saver = self.face.saver
        current = max(self.versions.values(), default=None)
        version = saver.get_next_version(current, None)
        self.values.update(changed)
        new = dict.fromkeys(changed, version)
        self.versions.update(new)
        checkpoint = create_checkpoint(self._latest, None, self.step)
        checkpoint["channel_values"] = dict(self.values)
        checkpoint["channel_versions"] = dict(self.versions)
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        self.config = await self.face.put(self.config, checkpoint, metadata, new)
        self._latest = checkpoint
        self.step += 1
