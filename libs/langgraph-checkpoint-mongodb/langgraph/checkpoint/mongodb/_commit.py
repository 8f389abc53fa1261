"""The commit point of a put, and what makes it safe beside a prune or a delete.

A checkpoint is there when its own document is, which is written last, after the values
that it names. Some of those may not be written by the put, but carried over from its
parent; and the value of a delta channel is rebuilt from its ancestors. So the parent, and
what it names, must not vanish meanwhile. Without transactions:

* Whoever removes checkpoints marks them `doomed` first. Only then it looks what the
  checkpoints that stay still need, takes the mark off that, and deletes the rest.
* A put that relies on its parent sends three updates in one ordered command: its own
  document, marked `unproven`; an update that fails, and so ends the command, unless the
  parent is there and not doomed; and one that takes the mark off again.

If the parent was found, whoever removes it later sees the new checkpoint and keeps what
it needs. If not, the put stores everything again under keys of its own, or fails. Until
then, and after a crash there, readers do not see it.

A checkpoint without a parent stays unproven until its put has seen that its values are
still there: the thread may have been deleted while it began.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

from bson import ObjectId

from langgraph.checkpoint.mongodb._documents import CheckpointKey, Document
from langgraph.checkpoint.mongodb._port import Call, Update
from langgraph.checkpoint.mongodb._ttl import now

__all__ = [
    "DOOMED",
    "REKEYED",
    "RETAINED",
    "UNPROVEN",
    "VISIBLE",
    "Committed",
    "commit",
    "commit_if",
    "long_ago",
]

DOOMED = "doomed"
"""Field of a checkpoint that is being removed: the tokens of those who remove it."""

UNPROVEN = "unproven"
"""Field of a checkpoint whose parent, or values, have not been found there yet."""

RETAINED = "retained"
"""Field of a checkpoint that was removed, but for what delta channels are rebuilt from."""

REKEYED = "rekeyed"
"""Field of a checkpoint that was stored without its parent: which put gave its values keys.

It may have been put before, and its manifest have been read, with other keys.
"""

VISIBLE: Document = {UNPROVEN: None, RETAINED: None}
"""The query for what readers see."""

# What takes longer was ended by a crash.
_AT_MOST = timedelta(hours=1)


class Committed(NamedTuple):
    """What became of a commit: whether the document is new, and what it needs was there."""

    created: bool
    proven: bool


def long_ago() -> ObjectId:
    """An id of an hour ago: what began before was ended by a crash, if not by itself."""
    return ObjectId.from_datetime(now() - _AT_MOST)


async def commit(
    call: Call,
    key: CheckpointKey,
    fields: Document,
    *,
    relies_on: CheckpointKey | None,
    rekeyed: ObjectId | None = None,
) -> Committed:
    """Write a checkpoint document.

    Args:
        call: What the call works with.
        key: The checkpoint's key.
        fields: The other fields of its document.
        relies_on: The parent, if the checkpoint is worth nothing without it.
        rekeyed: What the parent's `REKEYED` was when its manifest was read.
    """
    if relies_on is None:
        # An insert costs the server less than an upsert, and it is nearly always new.
        if not await call.io.insert("checkpoints", [{**key.query(), **fields}]):
            return Committed(True, proven=True)
        # The mark may be there from an attempt before.
        update = Update(key.query(), {"$set": fields, "$unset": {UNPROVEN: ""}}, upsert=True)
        done = await call.io.update("checkpoints", [update])
        return Committed(bool(done.inserted), proven=True)
    there = {
        **relies_on.query(),
        **VISIBLE,
        REKEYED: rekeyed,
        DOOMED: {"$not": {"$gte": long_ago()}},
    }
    updates = [
        _unproven(key, fields),
        # If it finds nothing, it would insert a document with an id that is impossible, and
        # with the key of the first: a server refuses one or the other. (An emulation takes the
        # id, and the first may just have been deleted: no reader sees what it inserts then.)
        Update(
            there,
            {"$setOnInsert": {"_id": [], "checkpoint_id": key.checkpoint_id, RETAINED: True}},
            upsert=True,
            required=True,
        ),
        _proof(key),
    ]
    done = await call.io.update("checkpoints", updates)
    return Committed(bool(done.inserted), proven=not done.stopped)


async def commit_if(
    call: Call, key: CheckpointKey, fields: Document, whole: Callable[[], Awaitable[bool]]
) -> Committed:
    """Write the document of a checkpoint that has no parent but has values.

    Args:
        call: What the call works with.
        key: The checkpoint's key.
        fields: The other fields of its document.
        whole: Asked when it is written: whether all its values are there.
    """
    done = await call.io.update("checkpoints", [_unproven(key, fields)])
    if proven := await whole():
        await call.io.update("checkpoints", [_proof(key)])
    return Committed(bool(done.inserted), proven)


def _unproven(key: CheckpointKey, fields: Document) -> Update:
    # One that was there before is not hidden for being put again.
    return Update(key.query(), {"$set": fields, "$setOnInsert": {UNPROVEN: True}}, upsert=True)


def _proof(key: CheckpointKey) -> Update:
    return Update(key.query(), {"$unset": {UNPROVEN: ""}})
