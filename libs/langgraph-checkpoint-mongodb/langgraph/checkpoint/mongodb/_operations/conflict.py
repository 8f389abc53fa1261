"""What a put does when it did not find its parent as it had read it.

Another process is removing the parent, or has removed it. Or it has deleted values to which no
checkpoint referred, perhaps those that this put has just written. `commit` explains why this is
safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    INFO_FIELDS,
    CheckpointInfo,
    parent_id_of,
)
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import layout_of
from langgraph.checkpoint.mongodb._layout.states import (
    DOOMED,
    RETAINED,
    UNPROVEN,
    VISIBLE,
    is_visible,
)
from langgraph.checkpoint.mongodb._operations.commit import contest
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import learn
from langgraph.checkpoint.mongodb._operations.history import AncestorPages, Walk
from langgraph.checkpoint.mongodb.errors import MissingChannelValueError

__all__ = ["ATTEMPTS", "give_up", "parent_again"]


ATTEMPTS = 5
"""How often a put tries: each further attempt needs another removal at that very moment."""


async def parent_again(
    context: Context, key: CheckpointKey, fields: Document, rebuilt: Collection[str]
) -> CheckpointInfo:
    """Read the parent again, after a commit that did not find it unchanged.

    If it, or the checkpoint itself, is being removed, the removal is contested.
    """
    parent_id = parent_id_of(fields)
    query = {**key.namespace(), "checkpoint_id": {"$in": [key.checkpoint_id, parent_id]}}
    marks = {DOOMED: 1, UNPROVEN: 1, RETAINED: 1}
    found = await context.io.find("checkpoints", query, {**INFO_FIELDS, **marks}, primary=True)
    parent = [one for one in found if one["checkpoint_id"] == parent_id and is_visible(one)]
    own = [one for one in found if one["checkpoint_id"] == key.checkpoint_id]
    if any(DOOMED in one for one in [*parent, *own]):
        await contest(context, key)
    if not parent or (rebuilt and not await _is_unbroken(context, key, fields, rebuilt)):
        return CheckpointInfo.absent(layout_of(fields))
    query = {**key.namespace(), "checkpoint_id": parent_id, **VISIBLE}
    found = await context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
    return await learn(context, found[0]) if found else CheckpointInfo.absent(layout_of(fields))


async def _is_unbroken(
    context: Context, key: CheckpointKey, fields: Document, channels: Collection[str]
) -> bool:
    """Whether all ancestors exist from which a checkpoint's delta channels are rebuilt."""
    pages = AncestorPages(context, key.namespace())
    walk = Walk(context, pages, sorted(channels))
    await pages.start(parent_id_of(fields), None)
    await walk.follow({**key.query(), **fields})
    try:
        await walk.check_unbroken()
    except MissingChannelValueError:
        return False
    return True


async def give_up(
    context: Context, key: CheckpointKey, created: bool, lost: Mapping[str, str]
) -> None:
    """Delete what was stored of a checkpoint that cannot be stored completely, and raise."""
    if created:
        await context.io.delete("checkpoints", key.query())
    raise MissingChannelValueError(*key, sorted(lost.items()), "deleted while written")
