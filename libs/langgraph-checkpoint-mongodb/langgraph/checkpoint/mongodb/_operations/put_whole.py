"""How a put stores a checkpoint in the whole layout: one document, every channel value in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import explained
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import WHOLE
from langgraph.checkpoint.mongodb._layout.states import UNPROVEN
from langgraph.checkpoint.mongodb._operations.commit import commit
from langgraph.checkpoint.mongodb._operations.conflict import ATTEMPTS, give_up, parent_again
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.measuring import check_checkpoint, size_of

__all__ = ["put_whole"]


async def put_whole(
    context: Context,
    key: CheckpointKey,
    checkpoint: Checkpoint,
    fields: Document,
    parent: CheckpointInfo,
    rebuilt: Mapping[str, str],
) -> None:
    """Store a checkpoint of a thread that began in the whole layout.

    Args:
        context: What the call works with.
        key: The checkpoint's key.
        checkpoint: The checkpoint.
        fields: Those fields of its document that do not depend on the channel values.
        parent: What is known of its parent.
        rebuilt: Its delta channels that only its ancestors hold, with their versions.
    """
    values: Any = checkpoint.get("channel_values") or {}
    by_channel = values if isinstance(values, Mapping) else {"": values}
    with explained(context.codec, by_channel.items(), key.thread_id):
        fields |= await context.io.offload(
            size_of(by_channel), WHOLE.fields, context.codec, checkpoint
        )
    what = "its channel values, which this thread's old layout keeps together"
    await check_checkpoint(context, key, {**fields, UNPROVEN: True} if rebuilt else fields, what)
    parent_key = key._replace(checkpoint_id=fields["parent_checkpoint_id"]) if rebuilt else None
    created = False
    for attempt in range(ATTEMPTS):
        done = await commit(context, key, fields, relies_on=parent_key, rekeyed=parent.rekeyed)
        created |= done.created
        if done.proven:
            break
        parent = await parent_again(context, key, fields, rebuilt)
        if not parent.exists or attempt + 1 == ATTEMPTS:
            await give_up(context, key, created, rebuilt)
    known = CheckpointInfo(WHOLE, {}, fields.get("created_at"), rebuilt=frozenset(rebuilt))
    context.memory.remember(key, known)
