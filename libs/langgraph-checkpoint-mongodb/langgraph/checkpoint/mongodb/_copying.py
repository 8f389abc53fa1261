"""copy_thread: on the server where it can `$merge`, else in bounded batches.

Values go first and checkpoints last, so that no copied checkpoint lacks a value. One copy at
a time claims its target, by a marker among the target's channel values. It takes away what
an earlier one has left half way, and nothing else: what is put there meanwhile stays.

A copy stands alone. Its metadata names its own thread, and it belongs to none of the
source's runs.
"""

from __future__ import annotations

import logging
from datetime import datetime

import bson
from bson import ObjectId
from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb._clock import object_id
from langgraph.checkpoint.mongodb._commit import DOOMED, long_ago
from langgraph.checkpoint.mongodb._documents import (
    COPY_CHANNEL,
    LAYOUT,
    CheckpointKey,
    Document,
)
from langgraph.checkpoint.mongodb._graph import Graph, key_queries
from langgraph.checkpoint.mongodb._port import Call, Role
from langgraph.checkpoint.mongodb._queries import ALL_FIELDS, KEY_FIELDS, checked
from langgraph.checkpoint.mongodb._reading import key_of
from langgraph.checkpoint.mongodb._ttl import value_stamp
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


async def copy_thread(call: Call, source: str, target: str) -> None:
    """Copy a thread; see `MongoDBSaver.copy_thread`."""
    checked(source, "source_thread_id")
    checked(target, "target_thread_id")
    if source == target:
        raise ValueError(f"Cannot copy thread {source!r} onto itself.")
    graph = await Graph.read(call, source)
    if not graph.keys():
        raise ValueError(f"Cannot copy thread {source!r}: it has no checkpoints.")
    keys, whole = graph.keys() - graph.unproven(), graph.whole()
    # One that is migrated meanwhile names values that may not have been copied.
    as_read = [{**query, "layout": None} for query in key_queries(keys & whole)]
    copies: list[tuple[Role, list[Document]]] = [
        ("values", [{"thread_id": source, "channel": {"$ne": COPY_CHANNEL}}]),
        ("writes", [{"thread_id": source}]),
        # Exactly those that were there before their values were copied.
        ("checkpoints", as_read + key_queries(keys - whole)),
    ]
    at = await call.io.now()
    changes = {role: _changes(call, role, target, at) for role, _ in copies}
    for role, queries in copies:
        for query in queries:
            await _check_sizes(call, role, query, changes[role])
    token = object_id(at)
    try:
        again = await _claim(call, source, target, token)
        await _clear(call, graph if again else None, target, token)
        for role, queries in copies:
            for query in queries:
                await _copy(call, role, query, changes[role])
        await _check_not_migrated(call, keys & whole, target)
        await call.io.delete("values", {**_marker_query(target), "claim": token})
    except BaseException:
        # The next copy of this process need not wait. One of another waits for an hour.
        call.io.memory.failed_copies.add(token)
        raise
    logger.debug("Copied %d checkpoints of thread %r to %r.", len(graph.keys()), source, target)


def _marker_query(target: str) -> Document:
    return {"thread_id": target, "checkpoint_ns": "", "channel": COPY_CHANNEL, "version": ""}


async def _claim(call: Call, source: str, target: str, token: ObjectId) -> bool:
    """Claim a target: one copy at a time is made to it.

    Returns:
        Whether another copy had claimed it, and failed.

    Raises:
        ValueError: Another copy is at it.
    """
    claim = {**_marker_query(target), "claim": token}
    marker = {**claim, "source": source, "type": "null", "value": b""}
    if not await call.io.insert("values", [marker]):
        return False
    # Of a copy that failed in this process, or of one that was ended by a crash.
    failed = {"$in": list(call.io.memory.failed_copies)}
    free: Document = {"$or": [{"claim": failed}, {"claim": {"$lt": await long_ago(call)}}]}
    taken = {"$set": {"claim": token, "source": source}}
    if await call.io.update_many("values", {**_marker_query(target), **free}, taken):
        return True
    raise ValueError(
        f"Cannot copy to thread {target!r}: another copy to it is being made. If it was ended by a "
        "crash, try again in an hour, or delete the thread first."
    )


async def _clear(call: Call, graph: Graph | None, target: str, token: ObjectId) -> None:
    """Remove what a copy has left that failed half way; refuse a target with anything else.

    Args:
        call: What the call works with.
        graph: The source, of which another copy may have left a part; None if none did.
        target: The target.
        token: The claim on it.
    """
    found = await call.io.find("checkpoints", {"thread_id": target}, KEY_FIELDS, fresh=True)
    keys = set(map(key_of, found))
    copied = graph.keys() if graph else set()
    if not {key.checkpoint_id for key in keys} <= {key.checkpoint_id for key in copied}:
        await call.io.delete("values", {**_marker_query(target), "claim": token})
        raise ValueError(
            f"Cannot copy to thread {target!r}: it has checkpoints. Delete it first, or choose "
            "another target."
        )
    # By their keys: what is put meanwhile stays.
    for query in key_queries(keys):
        await call.io.delete("checkpoints", query)
    thread = {"thread_id": target}
    call.io.memory.forget(target)
    if keys or await call.io.find("writes", thread, {"_id": 1}, most=1, fresh=True):
        await call.io.delete("writes", thread)
    await call.io.delete("values", {**thread, "channel": {"$ne": COPY_CHANNEL}})


async def _check_not_migrated(call: Call, whole: set[CheckpointKey], target: str) -> None:
    """Make sure that no checkpoint is missing in a copy since its thread was migrated meanwhile.

    Raises:
        ValueError: One is.
    """
    for query in key_queries(whole):
        found = await call.io.find(
            "checkpoints", {**query, "layout": LAYOUT}, KEY_FIELDS, fresh=True
        )
        migrated = {key_of(document)._replace(thread_id=target) for document in found}
        for wanted in key_queries(migrated):
            there = await call.io.find("checkpoints", wanted, KEY_FIELDS, fresh=True)
            migrated -= set(map(key_of, there))
        if migrated:
            raise ValueError(
                f"Cannot copy thread {query['thread_id']!r}: it was migrated meanwhile. "
                "Copy it again."
            )


async def _check_sizes(call: Call, role: Role, query: Document, changes: Document) -> None:
    """Make sure that all documents fit as copies, before the first one is made.

    Raises:
        ChannelTooLargeError: A value or pending write does not.
        CheckpointTooLargeError: A checkpoint does not.
    """
    longer = _growth(changes)
    limit = await call.io.document_limit(_ALWAYS_ASK)
    pipeline: list[Document] = [
        {"$match": query},
        {"$set": {"_size": {"$add": [{"$bsonSize": "$$ROOT"}, longer]}}},
        {"$match": {"_size": {"$gt": limit}}},
        {"$limit": 1},
        {"$project": {"channel": 1, "checkpoint_id": 1, "_size": 1}},
    ]
    try:
        found = await call.io.aggregate(role, pipeline)
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


async def _copy(call: Call, role: Role, query: Document, changes: Document) -> None:
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
        {"$merge": {"into": call.io.name(role).partition(".")[2], "whenMatched": "fail"}},
    ]
    try:
        await call.io.aggregate(role, pipeline)
    except (OperationFailure, NotImplementedError) as error:
        logger.debug("This server does not copy by itself (%s): copying in batches.", error)
        await _copy_in_batches(call, role, query, changes)


def _changes(call: Call, role: Role, target: str, at: datetime) -> Document:
    """What differs in a copy; None removes a field. A TTL starts anew."""
    stamp = None if call.ttl is None else at
    if stamp is not None and call.ttl is not None and role == "values":
        stamp = value_stamp(call.ttl, stamp)
    changes = {"thread_id": target, "created_at": stamp, DOOMED: None}
    if role == "checkpoints":
        changes[_METADATA] = call.codec.dumps_metadata({"thread_id": target})["thread_id"]
    return changes


async def _copy_in_batches(call: Call, role: Role, query: Document, changes: Document) -> None:
    found = await call.io.find(role, query, {"_id": 1}, fresh=True)
    ids = [document["_id"] for document in found]
    while ids:
        batch = {"_id": {"$in": ids[:_BATCH]}}
        # One batch of the server's at a time: at most 16 MB pass through here.
        documents = await call.io.find(
            role, batch, ALL_FIELDS, sort=[("_id", 1)], most=_BATCH, fresh=True
        )
        if not documents:
            ids = ids[_BATCH:]
            continue
        copied = {document["_id"] for document in documents}
        await call.io.insert(role, [_changed(document, changes) for document in documents])
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
