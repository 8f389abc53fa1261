"""put_writes: what a task wrote is stored completely, or does not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from bson import ObjectId
from langchain_core.runnables import RunnableConfig
from pymongo.errors import DuplicateKeyError

from langgraph.checkpoint.mongodb._database.port import Update
from langgraph.checkpoint.mongodb._layout.codec import estimate_size, explained
from langgraph.checkpoint.mongodb._layout.keys import WRITE_KEY, CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.parts import LARGE_ITEM_BYTES, digest
from langgraph.checkpoint.mongodb._layout.writes import (
    complete_attempts,
    refer,
    write_documents,
    write_order,
)
from langgraph.checkpoint.mongodb._operations.arguments import writes_key
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.measuring import OFFLOAD_ENOUGH, check_payload
from langgraph.checkpoint.mongodb._operations.renewal import renew_for_writes

__all__ = ["put_writes"]

_ATTEMPT_FIELDS: Document = {"_id": 0, "idx": 1, "attempt": 1, "count": 1}

# Each further attempt needs another process that stores the same task's writes at that moment.
_ATTEMPTS = 10

_SECOND = timedelta(seconds=1)


async def put_writes(
    context: Context,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> None:
    """Store pending writes; see `MongoDBSaver.put_writes`."""
    key = writes_key(config, task_id, task_path)
    if not writes:
        return
    stamp = None if context.ttl is None else await context.io.now()
    with explained(context.codec, writes, key.thread_id):
        documents = await context.io.offload(
            lambda: estimate_size(*(value for _, value in writes), enough=OFFLOAD_ENOUGH),
            write_documents,
            context.codec,
            key,
            writes,
            task_id,
            task_path,
            stamp,
        )
    for document in documents:
        await check_payload(context, document, lambda: f"the pending write of task {task_id!r}")
    await _refer_to_input(context, key, documents)
    await renew_for_writes(context, key)
    ordinary = [document for document in documents if document["idx"] >= 0]
    if ordinary and await context.io.insert("writes", ordinary):
        await _settle(context, ordinary)
    # In the order of their places, so that after a crash an answer is there without the next
    # question, and not the other way round.
    special = sorted((one for one in documents if one["idx"] < 0), key=write_order)
    if special:
        await context.io.update("writes", [_replacement(document) for document in special])


async def _settle(context: Context, documents: Sequence[Document]) -> None:
    """Let one attempt count, after others stored writes of the same task.

    A complete attempt stays as it is: the task ran before. The rest of one that was interrupted
    is deleted, and the writes are stored again. Of two attempts at the same moment the one with
    the greater token goes on, unless the other is complete by then.

    Raises:
        DuplicateKeyError: Others stored writes of this task again and again meanwhile.
    """
    ours = documents[0].get("attempt")
    task = {**{name: documents[0][name] for name in WRITE_KEY if name != "idx"}, "idx": {"$gte": 0}}
    for _ in range(_ATTEMPTS):
        found = await context.io.find("writes", task, _ATTEMPT_FIELDS, primary=True)
        complete = complete_attempts(found)
        if complete:
            if ours is not None and complete[0][0].get("attempt") != ours:
                await context.io.delete("writes", {**task, "attempt": ours})
            return
        others = {one["attempt"] for one in found} - {ours}
        if ours is not None and any(other > ours for other in others):
            ours = _after(max(others))
        # All that was found is incomplete: a write without a token would be complete.
        parts = sorted({one["attempt"] for one in found})
        await context.io.delete("writes", {**task, "attempt": {"$in": parts}})
        fresh = [_stored_again(document, ours) for document in documents]
        await context.io.insert("writes", fresh)
    raise DuplicateKeyError(
        f"Task {documents[0]['task_id']!r} of checkpoint {documents[0]['checkpoint_id']!r}: other "
        f"processes stored its writes at the same time, {_ATTEMPTS} times. Run it in one process.",
        code=11000,
    )


def _after(token: ObjectId) -> ObjectId:
    """A token that is greater than another."""
    made = ObjectId()
    return made if made > token else ObjectId.from_datetime(token.generation_time + _SECOND)


def _stored_again(document: Document, attempt: ObjectId | None) -> Document:
    again = {name: value for name, value in document.items() if name != "_id"}
    return again if attempt is None else {**again, "attempt": attempt}


async def _refer_to_input(
    context: Context, key: CheckpointKey, documents: Sequence[Document]
) -> None:
    """Let large writes refer to the items of the graph's input that are the same bytes."""
    large = [document for document in documents if len(document["value"]) > LARGE_ITEM_BYTES]
    if not large:
        return
    digests: Mapping[bytes, ManifestEntry] = {}
    if in_flight := context.memory.in_flight(key):
        await context.io.wait(in_flight.done)
        digests = in_flight.digests
    elif known := context.memory.info(key):
        digests = known.digests
    if digests:
        await context.io.offload(OFFLOAD_ENOUGH, _refer, large, digests)


def _refer(documents: Sequence[Document], digests: Mapping[bytes, ManifestEntry]) -> None:
    for document in documents:
        if stored := digests.get(digest((document["type"], document["value"]))):
            refer(document, stored)


def _replacement(document: Document) -> Update:
    """Store a special write (an error, a resume value) in place of the one before."""
    query = {name: document[name] for name in WRITE_KEY}
    rest = {name: value for name, value in document.items() if name not in query}
    return Update(query, {"$set": rest}, upsert=True)
