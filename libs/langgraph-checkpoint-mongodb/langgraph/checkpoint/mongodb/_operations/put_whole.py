"""How a put stores a checkpoint in the whole layout: one document, every channel value in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    CheckpointInfo,
    parent_key_of,
)
from langgraph.checkpoint.mongodb._layout.codec import explained
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import WHOLE
from langgraph.checkpoint.mongodb._layout.states import UNPROVEN, VISIBLE
from langgraph.checkpoint.mongodb._layout.values import values_by_channel, version_text
from langgraph.checkpoint.mongodb._layout.whole import integer_version
from langgraph.checkpoint.mongodb._operations.commit import commit
from langgraph.checkpoint.mongodb._operations.conflict import ATTEMPTS, give_up, parent_again
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import small_values
from langgraph.checkpoint.mongodb._operations.measuring import check_checkpoint, size_of

__all__ = ["put_whole"]


async def put_whole(
    context: Context,
    key: CheckpointKey,
    checkpoint: Checkpoint,
    fields: Document,
    parent: CheckpointInfo,
    rebuilt: Mapping[str, str],
    new_versions: ChannelVersions,
) -> None:
    """Store a checkpoint of a thread that began in the whole layout.

    Args:
        context: What the call works with.
        key: The checkpoint's key.
        checkpoint: The checkpoint.
        fields: Those fields of its document that do not depend on the channel values.
        parent: What is known of its parent.
        rebuilt: Its delta channels that only its ancestors hold, with their versions.
        new_versions: The channels that the step wrote.
    """
    known = {*new_versions, *rebuilt}
    if kept := await _values_unknown(context, key, checkpoint, fields, parent, known):
        checkpoint = {**checkpoint, "channel_values": {**values_by_channel(checkpoint), **kept}}
    values: Any = checkpoint.get("channel_values") or {}
    by_channel = values if isinstance(values, Mapping) else {"": values}
    with explained(context.codec, by_channel.items(), key.thread_id):
        fields |= await context.io.offload(
            size_of(by_channel), WHOLE.fields, context.codec, checkpoint
        )
    what = "its channel values, which this thread's old layout keeps together"
    await check_checkpoint(context, key, {**fields, UNPROVEN: True} if rebuilt else fields, what)
    parent_key = parent_key_of(key, fields) if rebuilt else None
    created = False
    for attempt in range(ATTEMPTS):
        done = await commit(context, key, fields, relies_on=parent_key, rekeyed=parent.rekeyed)
        created |= done.created
        if done.proven:
            break
        parent = await parent_again(context, key, fields, rebuilt)
        if not parent.exists or attempt + 1 == ATTEMPTS:
            await give_up(context, key, created, rebuilt)
    versions = checkpoint.get("channel_versions") or {}
    held = {one: _whole_text(versions.get(one)) for one in values_by_channel(checkpoint)}
    stamped = fields.get("created_at")
    info = CheckpointInfo(WHOLE, {}, stamped, inline=held, rebuilt=frozenset(rebuilt))
    context.memory.remember(key, info)


async def _values_unknown(
    context: Context,
    key: CheckpointKey,
    checkpoint: Checkpoint,
    fields: Document,
    parent: CheckpointInfo,
    known: Collection[str],
) -> dict[str, Any]:
    """Read the parent's values of channels that the graph does not know, of a whole thread.

    What a graph emptied has another version than in the parent.

    Args:
        context: What the call works with.
        key: The checkpoint.
        checkpoint: What is to be stored.
        fields: The fields of its document.
        parent: What is known of its parent.
        known: Channels that the graph wrote, or that only ancestors hold.

    Returns:
        The values by channel.

    Raises:
        MissingChannelValueError: The parent is gone.
    """
    versions = checkpoint.get("channel_versions") or {}
    wanted = {
        channel: held
        for channel, held in parent.inline.items()
        if channel not in values_by_channel(checkpoint)
        and channel not in known
        and _whole_text(versions.get(channel)) == held
    }
    if not wanted or not isinstance(checkpoint.get("channel_values", {}), Mapping):
        return {}
    query = {**parent_key_of(key, fields).query(), **VISIBLE}
    found = await context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
    if not found:
        await give_up(context, key, False, wanted)
    values = await small_values(context, found[0])
    return {channel: values[channel] for channel in wanted if channel in values}


def _whole_text(version: Any) -> str:
    return version_text(integer_version(version))
