"""delete_thread, delete_for_runs and prune: removing without losing.

Other processes put checkpoints into the same threads meanwhile. Checkpoints that are to
go are first marked `doomed`: a put that builds on one of them notices (`_commit`).
Then the thread is read again; what checkpoints that came in between still need is
spared, and only the rest is deleted: checkpoints first, then writes, then values. Every
step can be repeated after a crash.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from bson import ObjectId

from langgraph.checkpoint.mongodb._commit import DOOMED, RETAINED, long_ago
from langgraph.checkpoint.mongodb._documents import VALUE_KEY, CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._graph import Graph, key_queries
from langgraph.checkpoint.mongodb._port import Call, Role
from langgraph.checkpoint.mongodb._queries import KEY_FIELDS, checked, value_queries
from langgraph.checkpoint.mongodb._reading import key_of

__all__ = ["delete_for_runs", "delete_thread", "prune"]

logger = logging.getLogger(__name__)

# A running graph can write into a thread as fast as it is deleted.
_PASSES = 20

_NAMES_PER_QUERY = 1000

# The last is what LangGraph's server calls the second.
_STRATEGIES = ("keep_latest", "delete", "delete_all")


async def delete_thread(call: Call, thread_id: str) -> None:
    """Delete a thread; see `MongoDBSaver.delete_thread`.

    Repeated until nothing is found: a put that committed in between, while its values
    were deleted, goes too, and one that commits later finds its parent gone, or its values.
    """
    query = {"thread_id": checked(thread_id, "thread_id")}
    call.io.memory.forget(thread_id)
    for _ in range(_PASSES):
        checkpoints = await _delete_checkpoints(call, query)
        writes = await call.io.delete("writes", query)
        values = await call.io.delete("values", query)
        logger.debug(
            "Thread %r: deleted %d checkpoints, %d pending writes, %d channel values.",
            *(thread_id, checkpoints, writes, values),
        )
        if not checkpoints + writes + values:
            break
    else:
        # Never end on values that were deleted: what was put just before may name them.
        await _delete_checkpoints(call, query)
        logger.debug("Thread %r: is written into as fast as it is deleted.", thread_id)
    call.io.memory.forget(thread_id)


async def _delete_checkpoints(call: Call, query: Document) -> int:
    """Delete until none is found: one may be put on another just before that one goes."""
    deleted = 0
    while found := await call.io.delete("checkpoints", query):
        deleted += found
    return deleted


async def prune(call: Call, thread_ids: Sequence[str], strategy: str, keep_last: int) -> None:
    """Remove old checkpoints; see `MongoDBSaver.prune`."""
    if strategy not in _STRATEGIES:
        raise ValueError(
            f"Unknown strategy {strategy!r}: expected one of {', '.join(_STRATEGIES)}."
        )
    if keep_last < 1:
        raise ValueError(f"Invalid keep_last {keep_last!r}: expected 1 or more.")
    for thread_id in _identifiers(thread_ids, "thread_id"):
        if strategy != "keep_latest":
            await delete_thread(call, thread_id)
        else:
            await _remove(call, thread_id, lambda graph: graph.keys() - graph.newest(keep_last))


async def delete_for_runs(call: Call, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints of runs; see `MongoDBSaver.delete_for_runs`."""
    threads: defaultdict[str, set[CheckpointKey]] = defaultdict(set)
    ids = _identifiers(run_ids, "run_id")
    for at in range(0, len(ids), _NAMES_PER_QUERY):
        for key in await _of_runs(call, ids[at : at + _NAMES_PER_QUERY]):
            threads[key.thread_id].add(key)
    for thread_id, keys in threads.items():
        await _remove(call, thread_id, _only(keys))


def _only(keys: set[CheckpointKey]) -> Callable[[Graph], set[CheckpointKey]]:
    return lambda graph: graph.keys() & keys


async def _of_runs(call: Call, run_ids: Sequence[str]) -> set[CheckpointKey]:
    """The checkpoints of runs: by index, or, of older releases, by their metadata."""
    indexed = {"run_id": {"$in": list(run_ids)}}
    found = await call.io.find("checkpoints", indexed, KEY_FIELDS, fresh=True)
    keys = {key_of(document) for document in found}
    # Of older releases. The stored pair is an array: its index knows the bytes, and the
    # type, which finds forms that are to be compared by value.
    wanted: Document = {"$exists": True}
    typed = [call.codec.dumps(run_id) for run_id in run_ids]
    if all(type_ == "msgpack" for type_, _ in typed):
        wanted = {"$in": [*(data for _, data in typed), "json"]}
    older = {"run_id": {"$exists": False}, "metadata.run_id": wanted}
    fields = {**KEY_FIELDS, "metadata.run_id": 1}
    for document in await call.io.find("checkpoints", older, fields, fresh=True):
        if call.codec.loads_metadata_item(document, "run_id") in run_ids:
            keys.add(key_of(document))
    return keys


async def _remove(
    call: Call, thread_id: str, choose: Callable[[Graph], set[CheckpointKey]]
) -> None:
    """Remove chosen checkpoints of a thread, and what only they name.

    Those from which a delta channel of others is rebuilt are only hidden from readers.
    """
    before = await Graph.read(call, thread_id)
    chosen = (choose(before) | before.retained()) - before.under_way()
    doomed = chosen - before.with_called(before.keys() - chosen)
    token = ObjectId()
    await _mark(call, doomed, {"$addToSet": {DOOMED: token}})
    after = await Graph.read(call, thread_id) if doomed else before
    kept = after.with_called(after.keys() - doomed)
    retained = (await after.ancestors_of(kept) & doomed) - kept
    await _mark(call, doomed & kept, {"$pull": {DOOMED: token}})
    await _mark(call, retained, {"$pull": {DOOMED: token}, "$set": {RETAINED: True}})
    gone = doomed - kept - retained
    named = before.named_values(gone)
    still_named = after.named_values(after.keys() - gone)
    checkpoints = await _delete(call, "checkpoints", key_queries(gone))
    writes = await _delete(call, "writes", key_queries(gone))
    values = await _delete(call, "values", _value_queries(named - still_named))
    logger.debug(
        "Thread %r: removed %d of %d checkpoints, %d pending writes, %d channel values; "
        "%d checkpoints are kept for delta channels alone.",
        *(thread_id, checkpoints, len(before.keys()), writes, values, len(retained)),
    )
    await _collect_garbage(call, thread_id, after.keys(), still_named)


def _identifiers(values: Sequence[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"Invalid {name}s: expected a sequence of strings, got one string.")
    return list(dict.fromkeys(checked(value, name) for value in values))


async def _mark(call: Call, keys: set[CheckpointKey], update: Document) -> None:
    for query in key_queries(keys):
        await call.io.update_many("checkpoints", query, update)


async def _delete(call: Call, role: Role, queries: Iterable[Document]) -> int:
    return sum([await call.io.delete(role, query) for query in queries])


def _value_queries(keys: Iterable[ValueKey]) -> list[Document]:
    """Queries for value documents, of bounded size."""
    ordered = sorted(keys, key=lambda key: (*key[:4], key.part or 0))
    return [
        query
        for at in range(0, len(ordered), _NAMES_PER_QUERY)
        for query in value_queries(ordered[at : at + _NAMES_PER_QUERY])
    ]


async def _collect_garbage(
    call: Call, thread_id: str, keys: set[CheckpointKey], named: set[ValueKey]
) -> None:
    """Delete values and writes that no checkpoint has named for a long time.

    Young ones may be about to be named: a put writes them before its checkpoint.
    """
    values = {ValueKey.of(one) for one in await _distinct(call, "values", thread_id, VALUE_KEY)}
    names = CheckpointKey._fields
    writes = {key_of(one) for one in await _distinct(call, "writes", thread_id, names)}
    old = {"_id": {"$lt": long_ago()}}
    unnamed = [{**query, **old} for query in _value_queries(values - named)]
    orphans = [{**query, **old} for query in key_queries(writes - keys)]
    if deleted := await _delete(call, "values", unnamed) + await _delete(call, "writes", orphans):
        logger.debug("Thread %r: deleted %d documents left by a crash.", thread_id, deleted)


async def _distinct(call: Call, role: Role, thread_id: str, names: Sequence[str]) -> list[Document]:
    """The distinct keys among a thread's documents, from the index alone."""
    pipeline: list[Document] = [
        {"$match": {"thread_id": thread_id}},
        {"$group": {"_id": {name: f"${name}" for name in names}}},
    ]
    return [found["_id"] for found in await call.io.aggregate(role, pipeline)]
