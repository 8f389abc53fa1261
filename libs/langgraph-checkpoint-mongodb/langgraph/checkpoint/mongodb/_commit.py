"""The commit point of a put, and what makes it safe beside a prune or a delete.

A checkpoint is there when its own document is, which is written last, after the values
that it names. Some of those may not be written by the put, but carried over from its
parent; and the value of a delta channel is rebuilt from its ancestors. So the parent, and
what it names, must not vanish meanwhile. Nor must the values that were just written, which
no checkpoint names yet. Without transactions, and however long a process is suspended
between two commands:

* Whoever removes checkpoints marks them `doomed` first. Only then it looks what the
  checkpoints that stay still need, takes the mark off that, and deletes the rest, as far as
  its mark is still there.
* A put that relies on its parent sends three updates in one ordered command: its own
  document, marked `unproven`; an update that fails, and so ends the command, unless the
  parent is there and not doomed; and one that takes the mark off again.
* If the parent is doomed, the put takes the marks off (`contest`) and tries again. Then
  whoever removes finds something left, and looks again.
* Whoever deletes values that no checkpoint names marks them, too, and changes the `rekeyed`
  of all checkpoints. Only then it looks again what they name, and deletes the rest, as far as
  its mark is still there. A put that read its parent earlier notices, writes its values
  again, takes the marks off those that are still there, and looks at them once more before
  it is seen.

If the parent was found, whoever removes it later sees the new checkpoint and keeps what
it needs. If it is gone, the put stores everything again under keys of its own, or fails.
Until then, and after a crash there, readers do not see it.

A checkpoint without a parent stays unproven until its put has seen that its values are
still there and not marked: the thread may have been deleted while it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from bson import ObjectId

from langgraph.checkpoint.mongodb._clock import object_id
from langgraph.checkpoint.mongodb._documents import CheckpointKey, Document
from langgraph.checkpoint.mongodb._port import Call, Update

__all__ = [
    "CLAIMED",
    "DOOMED",
    "REKEYED",
    "RETAINED",
    "UNPROVEN",
    "VISIBLE",
    "Committed",
    "commit",
    "contest",
    "long_ago",
    "required",
]

DOOMED = "doomed"
"""Field of a checkpoint or a value that is being removed: the tokens of those who remove it."""

UNPROVEN = "unproven"
"""Field of a checkpoint whose parent, or values, have not been found there yet."""

RETAINED = "retained"
"""Field of a checkpoint that was removed, but for what delta channels are rebuilt from."""

REKEYED = "rekeyed"
"""Field of a checkpoint: changed when what was read of it before is not to be relied on.

By a put that gives its values other keys, since it was stored without its parent. And by
whoever removes values that no checkpoint names: some may be about to be named.
"""

CLAIMED = "claimed"
"""Field of a whole checkpoint: the manifest that it is about to get. What that names stays."""

VISIBLE: Document = {UNPROVEN: None, RETAINED: None}
"""The query for what readers see."""

# What is older was left by a crash, mostly: it may be removed, but not blindly.
_AT_MOST = timedelta(hours=1)


class Committed(NamedTuple):
    """What became of a commit: whether the document is new, and what it needs was there."""

    created: bool
    proven: bool


async def long_ago(call: Call) -> ObjectId:
    """An id of an hour ago: what began before was ended by a crash, or is suspended."""
    return object_id(await call.io.now() - _AT_MOST)


async def commit(
    call: Call,
    key: CheckpointKey,
    fields: Document,
    *,
    relies_on: CheckpointKey | None,
    rekeyed: ObjectId | None = None,
    whole: Callable[[], Awaitable[bool]] | None = None,
) -> Committed:
    """Write a checkpoint document.

    Args:
        call: What the call works with.
        key: The checkpoint's key.
        fields: The other fields of its document.
        relies_on: The parent, if the checkpoint is worth nothing without it.
        rekeyed: What the parent's `REKEYED` was when its manifest was read.
        whole: Asked when it is written: whether all its values are there. None when they are
            new, and so nobody removes them before the parent has changed.
    """
    if relies_on is None and whole is None:
        # An insert costs the server less than an upsert, and it is nearly always new.
        if not await call.io.insert("checkpoints", [{**key.query(), **fields}]):
            return Committed(True, proven=True)
        # The mark may be there from an attempt before, and a removal may be about to take that.
        marks = {UNPROVEN: "", DOOMED: "", **_moved_fields(fields)}
        update = Update(key.query(), {"$set": fields, "$unset": marks}, upsert=True)
        done = await call.io.update("checkpoints", [update])
        return Committed(bool(done.inserted), proven=True)
    # One that was there before is not hidden for being put again.
    change: Document = {"$set": fields, "$setOnInsert": {UNPROVEN: True}}
    if moved := _moved_fields(fields):
        change["$unset"] = moved
    own = Update(key.query(), change, upsert=True)
    proof = Update({**key.query(), DOOMED: None}, {"$unset": {UNPROVEN: ""}})
    updates = [own, required(key, relies_on, rekeyed)] if relies_on else [own]
    done = await call.io.update("checkpoints", [*updates, proof] if whole is None else updates)
    created, proven = bool(done.inserted), not done.stopped and not done.missed
    if proven and whole is not None:
        proven = await whole() and not (await call.io.update("checkpoints", [proof])).missed
    return Committed(created, proven)


def _moved_fields(fields: Document) -> Document:
    """What a whole checkpoint that is put again has besides, if it was migrated meanwhile."""
    return {} if "layout" in fields else {"layout": "", "channels": ""}


def required(key: CheckpointKey, parent: CheckpointKey, rekeyed: ObjectId | None) -> Update:
    """What stops a command unless a checkpoint's parent is there, as it was read, and stays.

    If it finds nothing, it would insert a document with an id that is impossible, and with the
    key of the first: a server refuses one or the other. (An emulation takes the id, and the
    first may just have been deleted: no reader sees what it inserts then.)
    """
    there = {**parent.query(), **VISIBLE, REKEYED: rekeyed, DOOMED: None}
    insert = {"_id": [], "checkpoint_id": key.checkpoint_id, RETAINED: True}
    return Update(there, {"$setOnInsert": insert}, upsert=True, required=True)


async def contest(call: Call, key: CheckpointKey) -> None:
    """Take off the marks of all who are removing checkpoints of a namespace, or crashed then.

    Those that are at work see that not all went which they had marked, and look again.
    """
    query = {**key.namespace(), DOOMED: {"$exists": True}}
    await call.io.update_many("checkpoints", query, {"$unset": {DOOMED: ""}})
