"""What a put does when its parent was not there as it had been read.

Someone is removing it, or has done so; or values that no checkpoint named were deleted
meanwhile, maybe those that the put has just written. `_operations.commit` says why this is safe.
"""

from __future__ import annotations

from collections.abc import Collection

from langgraph.checkpoint.mongodb._database.port import Call
from langgraph.checkpoint.mongodb._layout.documents import CheckpointKey, Document, layout_of
from langgraph.checkpoint.mongodb._operations.arguments import ALL_FIELDS, PARENT_FIELDS
from langgraph.checkpoint.mongodb._operations.commit import (
    DOOMED,
    RETAINED,
    UNPROVEN,
    VISIBLE,
    contest,
)
from langgraph.checkpoint.mongodb._operations.history import Chain, Walk
from langgraph.checkpoint.mongodb._operations.memory import Parent
from langgraph.checkpoint.mongodb._operations.reading import learn
from langgraph.checkpoint.mongodb.errors import MissingChannelValueError

__all__ = ["parent_again"]


async def parent_again(
    call: Call, key: CheckpointKey, fields: Document, rebuilt: Collection[str]
) -> Parent:
    """The parent as it is now, after a commit that did not find it as it was.

    Where it, or the checkpoint itself, is being removed, that is contested.
    """
    parent_id = fields["parent_checkpoint_id"]
    query = {**key.namespace(), "checkpoint_id": {"$in": [key.checkpoint_id, parent_id]}}
    marks = {DOOMED: 1, UNPROVEN: 1, RETAINED: 1}
    found = await call.io.find("checkpoints", query, {**PARENT_FIELDS, **marks}, fresh=True)
    parent = [one for one in found if one["checkpoint_id"] == parent_id and _is_visible(one)]
    own = [one for one in found if one["checkpoint_id"] == key.checkpoint_id]
    if any(DOOMED in one for one in [*parent, *own]):
        await contest(call, key)
    if not parent or (rebuilt and not await _is_unbroken(call, key, fields, rebuilt)):
        return Parent(layout_of(fields), {}, stored=False)
    query = {**key.namespace(), "checkpoint_id": parent_id, **VISIBLE}
    whole = await call.io.find("checkpoints", query, ALL_FIELDS, most=1, fresh=True)
    return await learn(call, whole[0]) if whole else Parent(layout_of(fields), {}, stored=False)


def _is_visible(document: Document) -> bool:
    return not any(document.get(mark) for mark in VISIBLE)


async def _is_unbroken(
    call: Call, key: CheckpointKey, fields: Document, channels: Collection[str]
) -> bool:
    """Whether all ancestors are there from which a checkpoint's delta channels are rebuilt."""
    chain = Chain(call, key.namespace())
    walk = Walk(call, chain, sorted(channels))
    await chain.start(fields["parent_checkpoint_id"], None)
    await walk.follow({**key.query(), **fields})
    try:
        await walk.check_unbroken()
    except MissingChannelValueError:
        return False
    return True
