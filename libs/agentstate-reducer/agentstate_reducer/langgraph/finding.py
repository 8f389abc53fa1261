"""Finding out what waits for hooks, and what was handed over, from what is stored."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple

from ..delivery import Batch
from .outbox import Outbox, read_outbox
from .ports import Port

logger = logging.getLogger(__name__)

FIRST_PAGE = 4  # mostly enough: the run's input, and the last steps of the run before
LARGEST_PAGE = 64


@dataclass
class Found:
    """What is stored about a thread.

    Attributes:
        pending: Batches that a hook lacks, oldest first.
        handed_over: Digests of turns that were handed over, or wait, and that the messages of the
            checkpoint in question may still hold; how many of each.
    """

    pending: list[Batch] = field(default_factory=list)
    handed_over: Counter[str] = field(default_factory=Counter)


async def find(port: Port, config: RunnableConfig, messages_key: str, channel: str) -> Found:
    """Look through a thread, newest checkpoint first, as far as needed.

    That is to the checkpoint that wrote the messages which the coming save goes on from: mostly the
    newest one or its neighbour. On a new branch it is further back, and what was pruned since on
    other branches is collected on the way: those turns may be in this branch's messages.

    Args:
        port: The inner saver.
        config: The config of the coming save; its checkpoint id is the parent.
        messages_key: The messages channel.
        channel: The outbox's reserved channel.

    Returns:
        What was found.
    """
    parent = config["configurable"].get("checkpoint_id")
    walk = _Walk(parent, messages_key, channel)
    async with aclosing(_newest_first(port, config)) as newest:
        async for stored in newest:
            if walk.step(stored):
                break
    # A new beginning has nothing of what was.
    return Found(walk.pending or [], walk.handed_over() if parent is not None else Counter())


class _Walk:
    """A walk through a thread, from the newest checkpoint to the one that wrote the messages.

    Args:
        parent: The checkpoint that the coming save goes on from.
        messages_key: The messages channel.
        channel: The outbox's reserved channel.
    """

    def __init__(self, parent: str | None, messages_key: str, channel: str) -> None:
        self.pending: list[Batch] | None = None
        self._next = parent
        self._key = messages_key
        self._channel = channel
        self._child: Checkpoint | None = None
        self._elsewhere: dict[str, str] = {}
        self._writer: Outbox | None = None
        self._arrived = False

    def step(self, stored: CheckpointTuple) -> bool:
        """Take in a checkpoint.

        Args:
            stored: The next older one.

        Returns:
            Whether nothing older matters.
        """
        checkpoint = stored.checkpoint
        ours = checkpoint["id"] == self._next
        if ours and self._child is not None and self._differ(checkpoint, self._child):
            self._arrived = True  # its child wrote the messages
            return True
        outbox = read_outbox(stored.pending_writes, self._channel)
        if outbox is not None and self.pending is None:
            self.pending = outbox.waiting()
        on_line = ours or self._next is None
        if on_line and outbox is not None and not outbox.carried:
            self._writer = outbox
            self._arrived = True
            return True
        if outbox is not None:
            self._elsewhere.update(outbox.turns())
        if not on_line:
            return False
        self._child = checkpoint
        parent = stored.parent_config
        self._next = parent["configurable"].get("checkpoint_id") if parent else None
        self._arrived = self._next is None
        return self._arrived

    def handed_over(self) -> Counter[str]:
        """Return the digests of what was handed over and may be in the messages still."""
        # What other branches carried on from the writer is gone from these messages.
        gone = self._writer.turns() if self._writer is not None else {}
        known = self._writer.known if self._writer is not None else []
        elsewhere = [
            match
            for key, match in self._elsewhere.items()
            # Where the line is broken, older turns were met as well. One without an id, whose key
            # is not its digest, could be taken for a later one that says the same.
            if key not in gone and (self._arrived or key == match)
        ]
        return Counter(known) + Counter(elsewhere)

    def _differ(self, one: Checkpoint, other: Checkpoint) -> bool:
        return one["channel_versions"].get(self._key) != other["channel_versions"].get(self._key)


async def _newest_first(
    port: Port, config: RunnableConfig
) -> AsyncGenerator[CheckpointTuple, None]:
    conf = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
    conf["checkpoint_ns"] = conf.get("checkpoint_ns") or ""
    before: RunnableConfig | None = None
    limit = FIRST_PAGE
    while True:
        try:
            page = await port.page({"configurable": conf}, before, limit)
        except NotImplementedError:
            logger.warning(
                "the saver cannot list checkpoints: hooks are followed up in this process only"
            )
            return
        for stored in page:
            yield stored
        if len(page) < limit:
            return
        before = page[-1].config
        limit = min(limit * 4, LARGEST_PAGE)
