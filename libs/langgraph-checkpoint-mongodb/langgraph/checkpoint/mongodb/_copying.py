"""copy_thread: on the server where it can `$merge`, else in bounded batches.

Values go first and checkpoints last, so that no copied checkpoint lacks a value. While
a copy is under way a marker lies among the target's channel values: only a target with
it may be cleared and copied to again.
"""

from __future__ import annotations

import logging
from datetime import datetime

from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb._commit import DOOMED
from langgraph.checkpoint.mongodb._documents import COPY_CHANNEL, Document
from langgraph.checkpoint.mongodb._graph import Graph, key_queries
from langgraph.checkpoint.mongodb._port import Call, Role
from langgraph.checkpoint.mongodb._queries import ALL_FIELDS, KEY_FIELDS, checked
from langgraph.checkpoint.mongodb._reading import key_of
from langgraph.checkpoint.mongodb._retention import delete_thread
from langgraph.checkpoint.mongodb._ttl import value_stamp

__all__ = ["COPY_CHANNEL", "copy_thread"]

logger = logging.getLogger(__name__)

_BATCH = 100


async def copy_thread(call: Call, source: str, target: str) -> None:
    """Copy a thread; see `MongoDBSaver.copy_thread`."""
    checked(source, "source_thread_id")
    checked(target, "target_thread_id")
    if source == target:
        raise ValueError(f"Cannot copy thread {source!r} onto itself.")
    graph = await Graph.read(call, source)
    await _check_target(call, graph, target)
    await delete_thread(call, target)
    await call.io.insert("values", [_marker(source, target)])
    copies: list[tuple[Role, list[Document]]] = [
        ("values", [{"thread_id": source}]),
        ("writes", [{"thread_id": source}]),
        # Exactly those that were there before their values were copied.
        ("checkpoints", key_queries(graph.keys() - graph.unproven())),
    ]
    for role, queries in copies:
        for query in queries:
            await _copy(call, role, query, target)
    await call.io.delete("values", _marker_query(target))
    logger.debug("Copied %d checkpoints of thread %r to %r.", len(graph.keys()), source, target)


def _marker_query(target: str) -> Document:
    return {"thread_id": target, "checkpoint_ns": "", "channel": COPY_CHANNEL}


def _marker(source: str, target: str) -> Document:
    return {**_marker_query(target), "version": source, "type": "null", "value": b""}


async def _check_target(call: Call, graph: Graph, target: str) -> None:
    """Refuse a target that has checkpoints, but for those of a copy that failed half way."""
    query = {"thread_id": target}
    if not await call.io.find("checkpoints", query, KEY_FIELDS, most=1, fresh=True):
        return
    marker = {**_marker_query(target), "version": graph.thread_id}
    if await call.io.find("values", marker, {"_id": 1}, most=1, fresh=True):
        found = await call.io.find("checkpoints", query, KEY_FIELDS, fresh=True)
        ours = {key._replace(thread_id=graph.thread_id) for key in map(key_of, found)}
        if ours <= graph.keys():
            return
    raise ValueError(
        f"Cannot copy to thread {target!r}: it has checkpoints. Delete it first, or choose "
        "another target."
    )


async def _copy(call: Call, role: Role, query: Document, target: str) -> None:
    changes = _changes(call, role, target, await call.io.now())
    removed = [name for name, value in changes.items() if value is None]
    pipeline: list[Document] = [
        {"$match": query},
        {"$unset": ["_id", *removed]},
        {"$set": {name: {"$literal": v} for name, v in changes.items() if v is not None}},
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
    return {"thread_id": target, "created_at": stamp, DOOMED: None}


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
    copied = {**document, **changes}
    del copied["_id"]
    return {
        name: value
        for name, value in copied.items()
        if value is not None or (name in document and name not in changes)
    }
