"""put: everything is decided and measured before the first write.

Values are written first, the checkpoint's own document last; `commit` explains what makes that
safe while other processes remove checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    INFO_FIELDS,
    CheckpointInfo,
    Life,
    common_fields,
)
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, config_of
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, layout_of
from langgraph.checkpoint.mongodb._layout.states import VISIBLE
from langgraph.checkpoint.mongodb._layout.values import values_by_channel, version_text
from langgraph.checkpoint.mongodb._operations.arguments import (
    NEWEST_OF_ROOT_FIRST,
    callers_of,
    put_key,
)
from langgraph.checkpoint.mongodb._operations.conflict import give_up
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import learn
from langgraph.checkpoint.mongodb._operations.memory import InputInFlight
from langgraph.checkpoint.mongodb._operations.put_split import SplitPut
from langgraph.checkpoint.mongodb._operations.put_whole import put_whole
from langgraph.checkpoint.mongodb._operations.renewal import renew

__all__ = ["put"]

_INPUT = "__start__"


async def put(
    context: Context,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> RunnableConfig:
    """Store a checkpoint; see `MongoDBSaver.put`."""
    key, parent_id = put_key(config, checkpoint)
    metadata = get_checkpoint_metadata(config, metadata)
    has_input = _INPUT in values_by_channel(checkpoint)
    # From before the first command on: LangGraph stores the input's pending writes meanwhile.
    with context.memory.input_in_flight(key) if has_input else nullcontext() as in_flight:
        await _store(context, key, parent_id, checkpoint, metadata, new_versions, in_flight)
    return config_of(key)


async def _store(
    context: Context,
    key: CheckpointKey,
    parent_id: str | None,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    in_flight: InputInFlight | None,
) -> None:
    parent = await _parent_info(context, key, parent_id)
    began = await context.io.now()
    rebuilt = _rebuilt(checkpoint, metadata)
    uncounted = _uncounted(checkpoint, parent, {*rebuilt, *new_versions})
    rebuilt |= uncounted
    created_at = None if context.ttl is None else began
    fields = common_fields(context.codec, parent_id, metadata, uncounted, created_at)
    callers = callers_of(key, metadata.get("parents"))
    await renew(context, callers)
    if rebuilt and parent_id and not parent.exists:
        await give_up(context, key, False, rebuilt)
    # What is no mapping by channel cannot be divided.
    if parent.layout.divides and isinstance(checkpoint.get("channel_values", {}), Mapping):
        split = SplitPut(context, key, checkpoint, rebuilt, fields, new_versions, began)
        await split.store(parent, in_flight)
    else:
        if in_flight is not None:
            in_flight.decide({})
        rebuilt = rebuilt if parent.exists else {}
        await put_whole(context, key, checkpoint, fields, parent, rebuilt, new_versions)
    context.memory.note_life(key, Life.of(fields, callers))


async def _parent_info(
    context: Context, key: CheckpointKey, parent_id: str | None
) -> CheckpointInfo:
    """What is known of the parent, from memory or by a small query."""
    memory = context.memory
    if parent_id:
        parent_key = key._replace(checkpoint_id=parent_id)
        if known := memory.info(parent_key):
            return known
        query = {**parent_key.query(), **VISIBLE}
        # With its state: it tells how values are cut, and holds those of channels that this
        # graph does not know.
        found = await context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
        if found:
            return await learn(context, found[0])
    layout = memory.layout(key.thread_id)
    if layout is None:
        thread = {"thread_id": key.thread_id}
        found = await context.io.find(
            "checkpoints", thread, INFO_FIELDS, sort=NEWEST_OF_ROOT_FIRST, limit=1, primary=True
        )
        layout = layout_of(found[0]) if found else SPLIT
    return CheckpointInfo.absent(layout)


def _rebuilt(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The delta channels that only a checkpoint's ancestors hold, with their versions."""
    versions = checkpoint.get("channel_versions") or {}
    # A channel that was never written is counted, too.
    counted = metadata.get(COUNTERS) or {}
    return {channel: version_text(versions[channel]) for channel in counted if channel in versions}


def _uncounted(
    checkpoint: Checkpoint, parent: CheckpointInfo, known: Collection[str]
) -> dict[str, str]:
    """The delta channels that only ancestors hold, and that the graph does not know."""
    versions = checkpoint.get("channel_versions") or {}
    values = values_by_channel(checkpoint)
    return {
        channel: version_text(versions[channel])
        for channel in parent.rebuilt
        if channel in versions and channel not in values and channel not in known
        # A snapshot is counted after the next step, and carried over.
        if not parent.holds(channel, version_text(versions[channel]))
    }
