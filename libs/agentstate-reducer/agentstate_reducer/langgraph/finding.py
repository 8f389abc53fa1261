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
FAR = 16
"""How many checkpoints are read for nothing before an empty outbox is stored, to be found next."""


@dataclass
class Found:
    """What is stored about a thread.

    Attributes:
        pending: Batches that a hook lacks, oldest first.
        handed_over: Digests of turns that were handed over, or wait, and that the messages of the
            checkpoint in question may still hold; how many of each.
        whole: Whether nothing else can be waiting.
        writer: The id of the checkpoint that wrote the messages; "" for none.
        far: Whether many checkpoints had to be read although none has an outbox.
    """

    pending: list[Batch] = field(default_factory=list)
    handed_over: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    writer: str = ""
    far: bool = False


async def find(port: Port, config: RunnableConfig, messages_key: str, channel: str) -> Found:
    """Look through a thread, newest checkpoint first, as far as needed.

    That is to the newest outbox, which says what waits, and to the checkpoint that wrote the
    messages which the coming save goes on from: mostly the newest one or its neighbour. The outbox
    is further back when others saved to the thread. On a new branch the messages are, and what was
    pruned since on other branches is collected on the way: those turns may be in this branch's
    messages.

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
            if stored is None or walk.step(stored):
                break
        else:
            walk.whole = True  # there is nothing older
    pending = list(walk.pending.values())
    if walk.origin not in ("", str(config["configurable"]["thread_id"])) and await _exists(
        port, config, walk.origin
    ):
        pending = []  # this is a copy: they are handed over from the thread they were pruned in
    # A new beginning has nothing of what was.
    known = walk.handed_over() if parent is not None else Counter[str]()
    return Found(pending, known, walk.whole, walk.writer, not walk.origin and walk.steps > FAR)


async def handed_over_around(
    port: Port, config: RunnableConfig, channel: str, since: str
) -> Counter[str]:
    """Look for what the graphs around a subgraph handed over since that saved last.

    A subgraph with a memory of its own may still have those messages. What they handed over before
    stands in its own outbox.

    Args:
        port: The inner saver.
        config: The config of the coming save.
        channel: The outbox's reserved channel.
        since: The checkpoint of the subgraph that wrote its messages last; "" for none.

    Returns:
        Digests of turns with ids, how many of each.
    """
    conf = config["configurable"]
    place = conf.get("checkpoint_ns") or ""
    found: set[str] = set()
    while since and place:
        place = place.rpartition("|")[0]
        around: RunnableConfig = {
            "configurable": {"thread_id": conf["thread_id"], "checkpoint_ns": place}
        }
        async with aclosing(_newest_first(port, around)) as newest:
            async for stored in newest:
                if stored is None:
                    break
                id_ = stored.checkpoint["id"]
                outbox = read_outbox(stored.pending_writes, channel, id_)
                if outbox is not None:
                    found.update(outbox.known)
                    found.update(match for key, match in outbox.pruned.items() if key == match)
                if id_ < since:
                    break  # ids grow with time
    return Counter(found)


async def _exists(port: Port, config: RunnableConfig, thread: str) -> bool:
    place = config["configurable"].get("checkpoint_ns") or ""
    conf = {"thread_id": thread, "checkpoint_ns": place}
    return await port.get({"configurable": conf}) is not None


class _Walk:
    """A walk through a thread, from the newest checkpoint to the one that wrote the messages.

    Args:
        parent: The checkpoint that the coming save goes on from.
        messages_key: The messages channel.
        channel: The outbox's reserved channel.
    """

    def __init__(self, parent: str | None, messages_key: str, channel: str) -> None:
        self.pending: dict[str, Batch] = {}
        self.origin = ""
        self.writer = ""
        self.whole = False
        self.steps = 0
        self._next = parent
        self._key = messages_key
        self._channel = channel
        self._child: Checkpoint | None = None
        self._elsewhere: dict[str, str] = {}
        self._writer: Outbox | None = None
        self._arrived = False
        self._past_writer = False

    def step(self, stored: CheckpointTuple) -> bool:
        """Take in a checkpoint.

        Args:
            stored: The next older one.

        Returns:
            Whether nothing older matters.
        """
        self.steps += 1
        checkpoint = stored.checkpoint
        outbox = read_outbox(stored.pending_writes, self._channel, checkpoint["id"])
        if outbox is not None and outbox.waiting_for:
            outbox = None  # a pointer: the outbox itself comes next
        if outbox is not None and not self.whole:
            older = {batch.id: batch for batch in outbox.waiting()}
            self.pending = {**older, **self.pending}
            self.origin = self.origin or outbox.thread
            self.whole = outbox.whole
        if not self._arrived:
            self._towards_writer(stored, outbox)
        return self._arrived and self.whole

    def _towards_writer(self, stored: CheckpointTuple, outbox: Outbox | None) -> None:
        checkpoint = stored.checkpoint
        ours = checkpoint["id"] == self._next
        if ours and self._child is not None and self._differ(checkpoint, self._child):
            self._past_writer = True
            self.writer = self.writer or self._child["id"]
        on_line = ours or self._next is None
        # Between the snapshots of a delta channel an outbox says nothing about the window.
        if on_line and outbox is not None and self._key in checkpoint["channel_values"]:
            self._writer = outbox
            self.writer = self.writer or checkpoint["id"]
            self._arrived = True
            return
        if outbox is not None:
            for key, match in outbox.pruned.items():
                # The child of this one wrote the messages. Where it has no outbox, either none of
                # them was handed over, or the bare saver wrote them. One without an id, whose key
                # is not its digest, could be taken for a later one that says the same.
                if not self._past_writer or key == match:
                    self._elsewhere[key] = match
        if not on_line:
            return
        self._child = checkpoint
        parent = stored.parent_config
        self._next = parent["configurable"].get("checkpoint_id") if parent else None
        self._arrived = self._next is None

    def handed_over(self) -> Counter[str]:
        """Return the digests of what was handed over and may be in the messages still."""
        known = self._writer.known if self._writer is not None else []
        elsewhere = [
            match
            for key, match in self._elsewhere.items()
            # Where the line is broken, older turns were met as well.
            if self._arrived or key == match
        ]
        return Counter(known) + Counter(elsewhere)

    def _differ(self, one: Checkpoint, other: Checkpoint) -> bool:
        """Tell whether the second wrote the messages; one without a value only added to them."""
        if self._key not in other["channel_values"]:
            return False  # a delta channel between snapshots: the window begins at the snapshot
        return one["channel_versions"].get(self._key) != other["channel_versions"].get(self._key)


async def _newest_first(
    port: Port, config: RunnableConfig
) -> AsyncGenerator[CheckpointTuple | None, None]:
    """Yield the checkpoints, and `None` at last if an older one could not be read."""
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
        for stored in page.found:
            yield stored
        if page.damaged:
            parent = page.found[-1].parent_config if page.found else None
            if parent is None:
                yield None
                return
            before = parent  # that one cannot be read; older ones may be
            continue
        if len(page.found) < limit:
            return
        before = page.found[-1].config
        limit = min(limit * 4, LARGEST_PAGE)
