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

FIRST_PAGE = 4
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
    cursor = config["configurable"].get("checkpoint_id")
    below: Checkpoint | None = None  # the parent's line, as far as it was followed
    pending: list[Batch] | None = None
    elsewhere: dict[str, str] = {}
    writer: Outbox | None = None
    async with aclosing(_newest_first(port, config)) as newest:
        async for tuple_ in newest:
            checkpoint = tuple_.checkpoint
            on_line = checkpoint["id"] == cursor
            if on_line and below is not None and _differ(checkpoint, below, messages_key):
                break  # the one before wrote the messages
            outbox = read_outbox(tuple_.pending_writes, channel)
            if outbox is not None and pending is None:
                pending = outbox.waiting()
            if on_line or cursor is None:
                if outbox is not None or messages_key in (checkpoint.get("updated_channels") or ()):
                    writer = outbox
                    break
                below = checkpoint
                parent = tuple_.parent_config
                cursor = parent["configurable"].get("checkpoint_id") if parent else None
                if cursor is None and parent is None and on_line:
                    break
            elif outbox is not None:
                elsewhere.update(outbox.turns())
    if writer is not None:
        for key in writer.turns():
            elsewhere.pop(key, None)  # carried on from there: gone from these messages already
    known = writer.known if writer is not None else []
    if config["configurable"].get("checkpoint_id") is None:
        return Found(pending or [])  # a new beginning holds nothing of what was
    return Found(pending or [], Counter(known) + Counter(elsewhere.values()))


def _differ(one: Checkpoint, other: Checkpoint, messages_key: str) -> bool:
    return one["channel_versions"].get(messages_key) != other["channel_versions"].get(messages_key)


async def _newest_first(
    port: Port, config: RunnableConfig
) -> AsyncGenerator[CheckpointTuple, None]:
    conf = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
    thread: RunnableConfig = {
        "configurable": {**conf, "checkpoint_ns": conf.get("checkpoint_ns", "")}
    }
    before: RunnableConfig | None = None
    limit = FIRST_PAGE
    while True:
        try:
            page = await port.page(thread, before, limit)
        except NotImplementedError:
            logger.warning(
                "the saver cannot list checkpoints: hooks are followed up in this process only"
            )
            return
        for tuple_ in page:
            yield tuple_
        if len(page) < limit:
            return
        before = page[-1].config
        limit = min(limit * 4, LARGEST_PAGE)
