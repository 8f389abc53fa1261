"""The commit point of a put, and what makes it safe beside a prune or a deletion.

A checkpoint exists when its document does. That is written last, after the values that it
refers to. But some of these values are not written by this put: they are carried over from the
parent. And the value of a delta channel is rebuilt from ancestors. So the parent, and what it
refers to, must not disappear during the put. Nor must the values that the put has just written,
to which no checkpoint refers yet. There are no transactions, and a process may be suspended for
any time between two commands. So:

* A removal first marks checkpoints as `doomed`. Then it reads the thread again, to see what the
  remaining checkpoints need. It takes its mark off that, and deletes the rest, but only what
  still has its mark.
* A put that relies on its parent sends three updates in one ordered command: its own document,
  marked `unproven`; an update that fails, and so ends the command, unless the parent exists and
  is not doomed; and one that takes the mark `unproven` off again.
* If the parent is doomed, the put takes the marks off (`contest`) and tries again. The removal
  then finds that something is left, and begins again.
* A removal of values to which no checkpoint refers marks these, too, and changes the `rekeyed`
  of all checkpoints. Then it reads again what they refer to, and deletes the rest, but only what
  still has its mark. A put that read its parent earlier finds `rekeyed` changed. It writes its
  values again, takes the marks off those that still exist, and checks them once more before the
  checkpoint becomes visible.

If the parent was found, a later removal sees the new checkpoint and keeps what it needs. If the
parent is gone, the put stores everything again under private keys, or fails. Until then, and
after a crash in between, readers do not see the checkpoint.

A checkpoint without a parent stays unproven until its put has seen that its values still exist
and are not marked: the thread may have been deleted while the put began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from bson import ObjectId

from langgraph.checkpoint.mongodb._database.clock import object_id
from langgraph.checkpoint.mongodb._database.port import Update
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.states import DOOMED, REKEYED, RETAINED, UNPROVEN, VISIBLE
from langgraph.checkpoint.mongodb._operations.context import Context

__all__ = ["Committed", "commit", "contest", "long_ago", "required"]

# Something older was probably left by a crash. It may be removed, but only with precautions.
_AT_MOST = timedelta(hours=1)


class Committed(NamedTuple):
    """The outcome of a commit: whether the document is new, and whether what it needs was found."""

    created: bool
    proven: bool


async def long_ago(context: Context) -> ObjectId:
    """An id of an hour ago: what began before that has crashed, or is suspended."""
    return object_id(await context.io.now() - _AT_MOST)


async def commit(
    context: Context,
    key: CheckpointKey,
    fields: Document,
    *,
    relies_on: CheckpointKey | None,
    rekeyed: ObjectId | None = None,
    complete: Callable[[], Awaitable[bool]] | None = None,
) -> Committed:
    """Write a checkpoint document.

    Args:
        context: What the call works with.
        key: The checkpoint's key.
        fields: The other fields of its document.
        relies_on: The parent, if the checkpoint is incomplete without it.
        rekeyed: What the parent's `REKEYED` was when its manifest was read.
        complete: Called after the document is written, to see whether all its values exist. None
            when they are new: nobody removes them before the parent has changed.
    """
    if relies_on is None and complete is None:
        # An insert costs the server less than an upsert, and it is nearly always new.
        if not await context.io.insert("checkpoints", [{**key.query(), **fields}]):
            return Committed(True, proven=True)
        # An earlier attempt may have left its mark, and a removal may be about to delete that.
        marks = {UNPROVEN: "", DOOMED: "", **_moved_fields(fields)}
        update = Update(key.query(), {"$set": fields, "$unset": marks}, upsert=True)
        done = await context.io.update("checkpoints", [update])
        return Committed(bool(done.inserted), proven=True)
    # A checkpoint that existed before stays visible when it is put again.
    change: Document = {"$set": fields, "$setOnInsert": {UNPROVEN: True}}
    if moved := _moved_fields(fields):
        change["$unset"] = moved
    own = Update(key.query(), change, upsert=True)
    proof = Update({**key.query(), DOOMED: None}, {"$unset": {UNPROVEN: ""}})
    updates = [own, required(key, relies_on, rekeyed)] if relies_on else [own]
    done = await context.io.update(
        "checkpoints", [*updates, proof] if complete is None else updates
    )
    created, proven = bool(done.inserted), not done.stopped and not done.missed
    if proven and complete is not None:
        proven = await complete() and not (await context.io.update("checkpoints", [proof])).missed
    return Committed(created, proven)


def _moved_fields(fields: Document) -> Document:
    """What a whole checkpoint that is put again has besides, if it was migrated meanwhile."""
    return {} if "layout" in fields else {"layout": "", "channels": ""}


def required(key: CheckpointKey, parent: CheckpointKey, rekeyed: ObjectId | None) -> Update:
    """The update that ends a command unless the parent exists, unchanged and not doomed.

    If it finds nothing, it would insert a document with an id that is impossible, and with the
    key of the first: a server refuses one or the other. (An emulation takes the id, and the
    first may just have been deleted: no reader sees what it inserts then.)
    """
    there = {**parent.query(), **VISIBLE, REKEYED: rekeyed, DOOMED: None}
    insert = {"_id": [], "checkpoint_id": key.checkpoint_id, RETAINED: True}
    return Update(there, {"$setOnInsert": insert}, upsert=True, required=True)


async def contest(context: Context, key: CheckpointKey) -> None:
    """Take off the marks of all who are removing checkpoints of a namespace, or crashed then.

    A removal that is at work finds that not all it had marked was deleted, and begins again.
    """
    query = {**key.namespace(), DOOMED: {"$exists": True}}
    await context.io.update_many("checkpoints", query, {"$unset": {DOOMED: ""}})
