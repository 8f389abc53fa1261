"""copy_thread: on the server if it can `$merge`, otherwise in batches of bounded size.

Values are copied first and checkpoints last, so no copied checkpoint lacks a value. One copy at
a time claims its target, by a marker among the target's channel values. It deletes what an
earlier, failed copy has left, and nothing else: checkpoints that are put there meanwhile stay.

A copy stands alone: its metadata has its own thread id, and it belongs to none of the source's
runs.
"""

from __future__ import annotations

import logging
from datetime import datetime

import bson
from bson import ObjectId
from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb._database.clock import object_id
from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout.checkpoint import ALL_FIELDS, KEY_FIELDS
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, checkpoint_queries
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.states import DOOMED
from langgraph.checkpoint.mongodb._layout.ttl import value_stamp
from langgraph.checkpoint.mongodb._layout.values import COPY_CHANNEL
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from langgraph.checkpoint.mongodb._operations.arguments import checked
from langgraph.checkpoint.mongodb._operations.commit import long_ago
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb.errors import ChannelTooLargeError, CheckpointTooLargeError

__all__ = ["COPY_CHANNEL", "copy_thread"]

logger = logging.getLogger(__name__)

_BATCH = 100

_REMOVED = ("created_at", DOOMED)

# What a copy's metadata names as its thread, serialized.
_METADATA = "metadata.thread_id"

_HAS_FIELDS: Document = {"$eq": [{"$type": "$metadata"}, "object"]}

# More than can be taken for granted.
_ALWAYS_ASK = 2**30


async def copy_thread(context: Context, source: str, target: str) -> None:
    """Copy a thread; see `MongoDBSaver.copy_thread`."""
    checked(source, "source_thread_id")
    checked(target, "target_thread_id")
    if source == target:
        raise ValueError(f"Cannot copy thread {source!r} onto itself.")
    ancestry = await Ancestry.read(context, source)
    if not ancestry.keys():
        raise ValueError(f"Cannot copy thread {source!r}: it has no checkpoints.")
    keys, whole = ancestry.keys() - ancestry.unproven(), ancestry.whole()
    # One that is migrated meanwhile names values that may not have been copied.
    as_read = [{**query, "layout": None} for query in checkpoint_queries(keys & whole)]
    copies: list[tuple[Role, list[Document]]] = [
        ("values", [{"thread_id": source, "channel": {"$ne": COPY_CHANNEL}}]),
        ("writes", [{"thread_id": source}]),
        # Exactly those that were there before their values were copied.
        ("checkpoints", as_read + checkpoint_queries(keys - whole)),
    ]
    at = await context.io.now()
    changes = {role: _changes(context, role, target, at) for role, _ in copies}
    for role, queries in copies:
        for query in queries:
            await _check_sizes(context, role, query, changes[role])
    token = object_id(at)
    try:
        again = await _claim(context, source, target, token)
        await _clear(context, ancestry if again else None, target, token)
        for role, queries in copies:
            for query in queries:
                await _copy(context, role, query, changes[role])
        await _check_not_migrated(context, keys & whole, target)
        await context.io.delete("values", {**_marker_query(target), "claim": token})
    except BaseException:
        # The next copy of this process need not wait. One of another waits for an hour.
        context.memory.failed_copies.add(token)
        raise
    logger.debug("Copied %d checkpoints of thread %r to %r.", len(ancestry.keys()), source, target)


def _marker_query(target: str) -> Document:
    return {"thread_id": target, "checkpoint_ns": "", "channel": COPY_CHANNEL, "version": ""}


async def _claim(context: Context, source: str, target: str, token: ObjectId) -> bool:
    """Claim a target: one copy at a time is made to it.

    Returns:
        Whether another copy had claimed it, and failed.

    Raises:
        ValueError: Another copy to it is being made.
    """
    claim = {**_marker_query(target), "claim": token}
    marker = {**claim, "source": source, "type": "null", "value": b""}
    if not await context.io.insert("values", [marker]):
        return False
    # Of a copy that failed in this process, or of one that was ended by a crash.
    failed = {"$in": list(context.memory.failed_copies)}
    free: Document = {"$or": [{"claim": failed}, {"claim": {"$lt": await long_ago(context)}}]}
    taken = {"$set": {"claim": token, "source": source}}
    if await context.io.update_many("values", {**_marker_query(target), **free}, taken):
        return True
    raise ValueError(
        f"Cannot copy to thread {target!r}: another copy to it is being made. If it was ended by a "
        "crash, try again in an hour, or delete the thread first."
    )


async def _clear(context: Context, ancestry: Ancestry | None, target: str, token: ObjectId) -> None:
    """Delete what a failed copy has left; refuse a target with anything else.

    Args:
        context: What the call works with.
        ancestry: The source, of which another copy may have left a part; None if none did.
        target: The target.
        token: The claim on it.
    """
    found = await context.io.find("checkpoints", {"thread_id": target}, KEY_FIELDS, primary=True)
    keys = set(map(CheckpointKey.of, found))
    copied = ancestry.keys() if ancestry else set()
    if not {key.checkpoint_id for key in keys} <= {key.checkpoint_id for key in copied}:
        await context.io.delete("values", {**_marker_query(target), "claim": token})
        raise ValueError(
            f"Cannot copy to thread {target!r}: it has checkpoints. Delete it first, or choose "
            "another target."
        )
    # By their keys, so that checkpoints that are put meanwhile stay.
    for query in checkpoint_queries(keys):
        await context.io.delete("checkpoints", query)
    thread = {"thread_id": target}
    context.memory.forget(target)
    if keys or await context.io.find("writes", thread, {"_id": 1}, limit=1, primary=True):
        await context.io.delete("writes", thread)
    await context.io.delete("values", {**thread, "channel": {"$ne": COPY_CHANNEL}})


async def _check_not_migrated(context: Context, whole: set[CheckpointKey], target: str) -> None:
    """Make sure that no checkpoint is missing in a copy since its thread was migrated meanwhile.

    Raises:
        ValueError: One is.
    """
    for query in checkpoint_queries(whole):
        now_split = {**query, "layout": SPLIT.number}
        found = await context.io.find("checkpoints", now_split, KEY_FIELDS, primary=True)
        migrated = {CheckpointKey.of(document)._replace(thread_id=target) for document in found}
        for wanted in checkpoint_queries(migrated):
            there = await context.io.find("checkpoints", wanted, KEY_FIELDS, primary=True)
            migrated -= set(map(CheckpointKey.of, there))
        if migrated:
            raise ValueError(
                f"Cannot copy thread {query['thread_id']!r}: it was migrated meanwhile. "
                "Copy it again."
            )


async def _check_sizes(context: Context, role: Role, query: Document, changes: Document) -> None:
    """Make sure that all documents fit as copies, before the first one is made.

    Raises:
        ChannelTooLargeError: A value or pending write does not.
        CheckpointTooLargeError: A checkpoint does not.
    """
    longer = _growth(changes)
    limit = await context.io.document_limit(_ALWAYS_ASK)
    pipeline: list[Document] = [
        {"$match": query},
        {"$set": {"_size": {"$add": [{"$bsonSize": "$$ROOT"}, longer]}}},
        {"$match": {"_size": {"$gt": limit}}},
        {"$limit": 1},
        {"$project": {"channel": 1, "checkpoint_id": 1, "_size": 1}},
    ]
    try:
        found = await context.io.aggregate(role, pipeline)
    except (OperationFailure, NotImplementedError) as error:
        logger.debug("This server does not measure documents (%s): not checked.", error)
        return
    for one in found:
        if role == "checkpoints":
            what = "its metadata, or its values, and the longer thread id of the copy"
            raise CheckpointTooLargeError(what, one["_size"], limit, one["checkpoint_id"])
        where = "the copy of its document, with a longer thread id"
        raise ChannelTooLargeError(one["channel"], one["_size"], limit, where)


def _growth(changes: Document) -> Document:
    """An expression for how many bytes larger a document's copy is, at most."""
    target = len(changes["thread_id"].encode())
    stamp = 0 if changes["created_at"] is None else len(bson.encode({"created_at": None})) + 8
    metadata = (
        0 if changes.get(_METADATA) is None else len(bson.encode({"thread_id": changes[_METADATA]}))
    )
    missing = {"$eq": [{"$type": "$created_at"}, "missing"]}
    return {
        "$add": [
            target,
            {"$multiply": [-1, {"$strLenBytes": "$thread_id"}]},
            {"$cond": [missing, stamp, 0]},
            {"$cond": [_HAS_FIELDS, metadata, 0]},
        ]
    }


async def _copy(context: Context, role: Role, query: Document, changes: Document) -> None:
    removed = [name for name, value in changes.items() if value is None and name in _REMOVED]
    fields: Document = {"thread_id": {"$literal": changes["thread_id"]}}
    if changes["created_at"] is not None:
        fields["created_at"] = changes["created_at"]
    if role == "checkpoints":
        # Of no run: who deletes the original's runs means the original.
        of_a_run = {"$ne": [{"$type": "$metadata.run_id"}, "missing"]}
        fields["run_id"] = {"$cond": [of_a_run, None, "$$REMOVE"]}
        named = {"$mergeObjects": ["$metadata", {"thread_id": {"$literal": changes[_METADATA]}}]}
        fields["metadata"] = {"$cond": [_HAS_FIELDS, named, "$metadata"]}
    pipeline: list[Document] = [
        {"$match": query},
        {"$unset": ["_id", *removed]},
        {"$set": fields},
        {"$merge": {"into": context.io.name(role).partition(".")[2], "whenMatched": "fail"}},
    ]
    try:
        await context.io.aggregate(role, pipeline)
    except (OperationFailure, NotImplementedError) as error:
        logger.debug("This server does not copy by itself (%s): copying in batches.", error)
        await _copy_in_batches(context, role, query, changes)


def _changes(context: Context, role: Role, target: str, at: datetime) -> Document:
    """What differs in a copy; None removes a field. A TTL starts anew."""
    stamp = None if context.ttl is None else at
    if stamp is not None and context.ttl is not None and role == "values":
        stamp = value_stamp(context.ttl, stamp)
    changes = {"thread_id": target, "created_at": stamp, DOOMED: None}
    if role == "checkpoints":
        changes[_METADATA] = context.codec.dumps_metadata({"thread_id": target})["thread_id"]
    return changes


async def _copy_in_batches(
    context: Context, role: Role, query: Document, changes: Document
) -> None:
    found = await context.io.find(role, query, {"_id": 1}, primary=True)
    ids = [document["_id"] for document in found]
    while ids:
        batch = {"_id": {"$in": ids[:_BATCH]}}
        # One batch of the server's at a time: at most 16 MB pass through here.
        documents = await context.io.find(
            role, batch, ALL_FIELDS, sort=[("_id", 1)], limit=_BATCH, primary=True
        )
        if not documents:
            ids = ids[_BATCH:]
            continue
        copied = {document["_id"] for document in documents}
        await context.io.insert(role, [_changed(document, changes) for document in documents])
        ids = [one for one in ids if one not in copied]


def _changed(document: Document, changes: Document) -> Document:
    """A document as it is in the copy."""
    copied = {name: value for name, value in document.items() if name not in (*_REMOVED, "_id")}
    copied["thread_id"] = changes["thread_id"]
    if changes["created_at"] is not None:
        copied["created_at"] = changes["created_at"]
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and _METADATA in changes:
        if "run_id" in metadata:
            copied["run_id"] = None
        copied["metadata"] = {**metadata, "thread_id": changes[_METADATA]}
    return copied
