"""get_tuple: a checkpoint, exactly the values that it refers to, and its pending writes.

A checkpoint is read completely or not at all.
"""

from __future__ import annotations

from dataclasses import replace

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from langgraph.checkpoint.mongodb._database.port import Join
from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    CheckpointInfo,
    Life,
    delta_channels,
    parent_id_of,
    parent_key_of,
)
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, steps_since_snapshot
from langgraph.checkpoint.mongodb._layout.found import Found
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, layout_of
from langgraph.checkpoint.mongodb._layout.metadata import native_metadata
from langgraph.checkpoint.mongodb._layout.states import PROVEN, RETAINED, VISIBLE
from langgraph.checkpoint.mongodb._layout.values import values_by_channel
from langgraph.checkpoint.mongodb._layout.writes import pending_writes
from langgraph.checkpoint.mongodb._operations.arguments import (
    NEWEST_FIRST,
    NEWEST_OF_ROOT_FIRST,
    Sort,
    callers_of,
    thread_config,
)
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import complete
from langgraph.checkpoint.mongodb.errors import MissingChannelValueError

__all__ = ["decode", "get_tuple"]


async def get_tuple(context: Context, config: RunnableConfig) -> CheckpointTuple | None:
    """Read one checkpoint; see `MongoDBSaver.get_tuple`."""
    thread_id, checkpoint_ns, checkpoint_id = thread_config(config)
    query: Document = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    if checkpoint_id is None:
        query |= VISIBLE
    else:
        query |= {"checkpoint_id": checkpoint_id, **PROVEN}
    first = await _first(context, query)
    while first is not None:
        document, writes = first
        found = Found.of(document)
        joined = None if writes is None else {found.key: writes}
        if filled := await complete(context, [found], writes=joined):
            read = await decode(context, filled[0])
            _note(context, filled[0], read)
            return read
        if checkpoint_id is not None:
            break
        # Removed meanwhile. A prune removes the newest when there is a newer one.
        first = await _newest(context, query, NEWEST_FIRST, primary=True)
    if checkpoint_id is not None:
        _check_not_expected(context, CheckpointKey(thread_id, checkpoint_ns, checkpoint_id))
    return None


def _note(context: Context, found: Found, read: CheckpointTuple) -> None:
    """Remember what a checkpoint that was read tells."""
    if not found.document.get(RETAINED):
        context.memory.remember(found.key, _remembered(context, found))
    context.memory.met(found.key)
    context.memory.note_life(found.key, _life(context, found))
    parent_id = parent_id_of(found.document)
    versions, values = read.checkpoint["channel_versions"], values_by_channel(read.checkpoint)
    rebuilt = delta_channels(found.document) & versions.keys() - values.keys()
    if rebuilt and parent_id:
        parent = found.key._replace(checkpoint_id=parent_id)
        context.memory.expect(parent, found.key, sorted(rebuilt))


def _check_not_expected(context: Context, key: CheckpointKey) -> None:
    """Make sure that no walk along parents ends before its beginning.

    The base class's walk takes a parent that is not there for the end of the thread, and what
    was found until then for all. It has just read the child of that parent.

    Raises:
        MissingChannelValueError: A checkpoint that was read is rebuilt from this one.
    """
    if expected := context.memory.expected(key):
        child, channels = expected
        before = f"before checkpoint {child.checkpoint_id}"
        missing = [(channel, before) for channel in channels]
        raise MissingChannelValueError(*child, missing, "history cut")


def _remembered(context: Context, found: Found) -> CheckpointInfo:
    """What to remember of a checkpoint that was read."""
    if not native_metadata(found.document, COUNTERS):
        return found.info
    counters = context.codec.loads_metadata_item(found.document, COUNTERS)
    return replace(found.info, steps=steps_since_snapshot(counters))


def _life(context: Context, found: Found) -> Life:
    """What to remember of a checkpoint's stamp."""
    parents = native_metadata(found.document, "parents")
    ids = {ns: context.codec.loads((type_, data)) for ns, (type_, data) in parents.items()}
    return Life.of(found.document, callers_of(found.key, ids))


async def _first(
    context: Context, query: Document
) -> tuple[Document, list[Document] | None] | None:
    """What a config names, with its writes or None; it tells its thread's layout, too."""
    if query["checkpoint_ns"] or "checkpoint_id" in query:
        return await _newest(context, query, NEWEST_FIRST)
    # The root's newest, or else any other: one query tells a thread's layout, too, and
    # with it whether a first checkpoint begins a new thread.
    thread = {"thread_id": query["thread_id"], **VISIBLE}
    found = await _newest(context, thread, NEWEST_OF_ROOT_FIRST)
    layout = layout_of(found[0]) if found else SPLIT
    context.memory.note_layout(query["thread_id"], layout)
    return found if found and not found[0]["checkpoint_ns"] else None


async def _newest(
    context: Context, filter: Document, sort: Sort, *, primary: bool = False
) -> tuple[Document, list[Document] | None] | None:
    """The first checkpoint of a filter on a thread, its pending writes beside it or None."""
    # Without a namespace, it is the root's checkpoint that is looked for.
    within = {"thread_id": filter["thread_id"], "checkpoint_ns": filter.get("checkpoint_ns", "")}
    join = Join("writes", "checkpoint_id", within, CheckpointKey._fields)
    return await context.io.find_joined("checkpoints", filter, join, sort=sort, primary=primary)


async def decode(context: Context, found: Found) -> CheckpointTuple:
    """Deserialize a checkpoint of which everything was read."""
    read = await context.io.offload(found.size, found.to_tuple, context.codec)
    if not layout_of(found.document).divides and read.parent_config:
        await _move_old_sends(context, found, read.checkpoint)
    return read


async def _move_old_sends(context: Context, found: Found, checkpoint: Checkpoint) -> None:
    """Give a checkpoint of a format before 4 the Sends that its step queued.

    Releases of LangGraph with those formats left them among the pending writes of the parent;
    later ones look for them in a channel.
    """
    values = checkpoint["channel_values"]
    if checkpoint.get("v", 1) >= _SENDS_IN_CHANNEL or not isinstance(values, dict):
        return
    parent = parent_key_of(found.key, found.document)
    documents = await context.io.find("writes", {**parent.query(), "channel": TASKS}, ALL_FIELDS)
    if sends := [value for _, _, value in pending_writes(context.codec, documents)]:
        versions = checkpoint["channel_versions"]
        values[TASKS] = sends
        versions[TASKS] = max(versions.values(), default=1)


_SENDS_IN_CHANNEL = 4
"""The format of checkpoints since which LangGraph keeps queued Sends in a channel."""
