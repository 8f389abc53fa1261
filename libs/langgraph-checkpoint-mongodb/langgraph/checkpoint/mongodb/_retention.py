"""delete_thread, delete_for_runs and prune: removing without losing.

Other processes put checkpoints into the same threads meanwhile. Checkpoints that are to
go are first marked `doomed`: a put that builds on one of them notices (`_commit`).
Then the thread is read again; what checkpoints that came in between still need is
spared, and only the rest is deleted, as far as it is still marked: checkpoints first, then
writes, then values. Every step can be repeated after a crash, and no two need be close in
time: a put takes the marks of a removal off that failed, or is suspended.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.mongodb._clock import object_id
from langgraph.checkpoint.mongodb._commit import DOOMED, REKEYED, RETAINED
from langgraph.checkpoint.mongodb._documents import (
    COPY_CHANNEL,
    VALUE_KEY,
    CheckpointKey,
    Document,
    ValueKey,
)
from langgraph.checkpoint.mongodb._graph import Graph, key_queries
from langgraph.checkpoint.mongodb._port import Call, Role
from langgraph.checkpoint.mongodb._queries import KEY_FIELDS, checked, value_queries
from langgraph.checkpoint.mongodb._reading import key_of
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError

__all__ = ["delete_for_runs", "delete_thread", "prune", "queries_of_values", "remove"]

logger = logging.getLogger(__name__)

# A running graph can write into a thread as fast as it is deleted, or build on what is pruned.
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


async def prune(call: Call, thread_ids: Sequence[str], strategy: str, keep_last: Any) -> None:
    """Remove old checkpoints; see `MongoDBSaver.prune`."""
    if strategy not in _STRATEGIES:
        raise ValueError(
            f"Unknown strategy {strategy!r}: expected one of {', '.join(_STRATEGIES)}."
        )
    if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1:
        raise ValueError(f"Invalid keep_last {keep_last!r}: expected a whole number from 1 on.")
    ids = _identifiers(thread_ids, "thread_id")
    if strategy != "keep_latest":
        for thread_id in ids:
            await delete_thread(call, thread_id)
        return
    newest = dict.fromkeys(ids, lambda graph: graph.keys() - graph.to_keep(keep_last))
    await _remove_from(call, newest)


async def delete_for_runs(call: Call, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints of runs; see `MongoDBSaver.delete_for_runs`."""
    threads: defaultdict[str, set[CheckpointKey]] = defaultdict(set)
    ids = _identifiers(run_ids, "run_id")
    for at in range(0, len(ids), _NAMES_PER_QUERY):
        for key in await _of_runs(call, ids[at : at + _NAMES_PER_QUERY]):
            threads[key.thread_id].add(key)
    await _remove_from(call, {thread_id: _only(keys) for thread_id, keys in threads.items()})


async def _remove_from(
    call: Call, chosen: Mapping[str, Callable[[Graph], set[CheckpointKey]]]
) -> None:
    """Remove chosen checkpoints of threads.

    Raises:
        UnknownLayoutError: A newer release wrote to some of them; the others are done.
    """
    unknown: UnknownLayoutError | None = None
    for thread_id, choose in chosen.items():
        try:
            await remove(call, thread_id, choose)
        except UnknownLayoutError as error:
            unknown = unknown or error
    if unknown:
        raise unknown


def _only(keys: set[CheckpointKey]) -> Callable[[Graph], set[CheckpointKey]]:
    # What subgraphs did for them goes, too, though another run resumed it.
    return lambda graph: graph.with_calls(graph.keys() & keys)


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


async def remove(call: Call, thread_id: str, choose: Callable[[Graph], set[CheckpointKey]]) -> None:
    """Remove chosen checkpoints of a thread, and what only they name.

    Those from which a delta channel of others is rebuilt are only hidden from readers.
    """
    graph = await Graph.read(call, thread_id)
    chosen, unproven = choose(graph), graph.unproven()
    for _ in range(_PASSES):
        graph, contested = await _remove_once(call, graph, chosen)
        if not contested:
            break
        chosen -= unproven  # One that is contested was not left by a crash.
    else:
        logger.debug("Thread %r: its old checkpoints are built on all the time.", thread_id)
    await _collect_garbage(call, graph)


async def _remove_once(call: Call, before: Graph, chosen: set[CheckpointKey]) -> tuple[Graph, bool]:
    """Remove chosen checkpoints, but for those that a put contests meanwhile.

    Returns:
        The thread as it is afterwards, or was just before, and whether something is left.
    """
    chosen = (chosen & before.keys() | before.retained()) - before.under_way()
    doomed = chosen
    token = object_id(await call.io.now())
    await _mark(call, doomed, {}, {"$addToSet": {DOOMED: token}})
    after = await Graph.read(call, before.thread_id) if doomed else before
    # What a crash seemed to have left may have been proven before it was marked.
    proven = before.unproven() - after.unproven()
    kept = after.keys() - (doomed - proven)
    retained = (await after.ancestors_of(kept) & doomed) - kept
    # A put that contested a mark relies on what had it.
    marked: Document = {DOOMED: token}
    # Another that removes, and loses its marks by this, looks again.
    unmarked: Document = {"$unset": {DOOMED: ""}}
    await _mark(call, doomed & kept, marked, unmarked)
    await _mark(call, retained, marked, {**unmarked, "$set": {RETAINED: True}})
    gone = doomed - kept - retained
    checkpoints = await _delete(call, "checkpoints", key_queries(gone), marked)
    contested = checkpoints < len(gone)
    if contested:
        after = await Graph.read(call, before.thread_id)
        # Some may have been gone before, removed by another.
        contested = not gone.isdisjoint(after.keys())
        gone -= after.keys()
    # A put that was suspended writes its unproven checkpoint anew, with the same values: what is
    # of such a one is left to the collection of garbage, which puts notice.
    seen = gone - before.unproven()
    named = before.named_values(seen)
    still_named = after.named_values(after.keys() - gone)
    writes = await _delete(call, "writes", key_queries(seen))
    values = await _delete(call, "values", queries_of_values(named - still_named))
    logger.debug(
        "Thread %r: removed %d of %d checkpoints, %d pending writes, %d channel values; "
        "%d checkpoints are kept for delta channels alone.",
        *(before.thread_id, checkpoints, len(before.keys()), writes, values, len(retained)),
    )
    return after.without(gone), contested


def _identifiers(values: Sequence[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"Invalid {name}s: expected a sequence of strings, got one string.")
    return list(dict.fromkeys(checked(value, name) for value in values))


async def _mark(call: Call, keys: set[CheckpointKey], narrowed: Document, update: Document) -> None:
    for query in key_queries(keys):
        await call.io.update_many("checkpoints", {**query, **narrowed}, update)


async def _delete(
    call: Call, role: Role, queries: Iterable[Document], narrowed: Document | None = None
) -> int:
    narrowed = narrowed or {}
    return sum([await call.io.delete(role, {**query, **narrowed}) for query in queries])


def queries_of_values(keys: Iterable[ValueKey]) -> list[Document]:
    """Queries for value documents, of bounded size."""
    ordered = sorted(keys, key=lambda key: (*key[:4], key.part or 0))
    return [
        query
        for at in range(0, len(ordered), _NAMES_PER_QUERY)
        for query in value_queries(ordered[at : at + _NAMES_PER_QUERY])
    ]


async def _collect_garbage(call: Call, graph: Graph) -> None:
    """Delete values and writes that no checkpoint has named for a long time.

    Young ones may be about to be named: a put writes them before its checkpoint.

    Args:
        call: What the call works with.
        graph: The thread as it was read just before.
    """
    found = await _distinct(call, "values", graph.thread_id, VALUE_KEY)
    values = {ValueKey.of(one) for one in found} - graph.named_values(graph.keys())
    if any(key.channel == COPY_CHANNEL for key in values):
        values = set()  # A copy names them at its end, or is to be repeated.
    found = await _distinct(call, "writes", graph.thread_id, CheckpointKey._fields)
    writes = {key_of(one) for one in found} - graph.keys()
    old: Document = {"_id": {"$lt": graph.long_ago}}
    unnamed = {
        ValueKey.of(one)
        for one in await _those(call, "values", queries_of_values(values), old, VALUE_KEY)
    }
    orphans = {
        key_of(one)
        for one in await _those(call, "writes", key_queries(writes), old, CheckpointKey._fields)
    }
    if unnamed or orphans:
        await _sweep(call, graph.thread_id, unnamed, orphans, old)


async def _those(
    call: Call, role: Role, queries: Iterable[Document], narrowed: Document, names: Sequence[str]
) -> list[Document]:
    """The keys of documents."""
    fields: Document = {"_id": 0, **dict.fromkeys(names, 1)}
    return [
        document
        for query in queries
        for document in await call.io.find(role, {**query, **narrowed}, fields, fresh=True)
    ]


async def _sweep(
    call: Call,
    thread_id: str,
    unnamed: set[ValueKey],
    orphans: set[CheckpointKey],
    old: Document,
) -> None:
    """Delete old values and writes that no checkpoint names.

    A process that was suspended may wake up just now and name the values. If it does so before
    the thread is read again, they are spared. If later, it finds its parent changed, or them
    marked, and writes them again.
    """
    token = object_id(await call.io.now())
    if unnamed:
        for query in queries_of_values(unnamed):
            await call.io.update_many("values", query, {"$addToSet": {DOOMED: token}})
        changed: Document = {"$set": {REKEYED: token}}
        await call.io.update_many("checkpoints", {"thread_id": thread_id}, changed)
    after = await Graph.read(call, thread_id)
    named = after.named_values(after.keys())
    for query in queries_of_values(unnamed & named):
        await call.io.update_many("values", query, {"$unset": {DOOMED: ""}})
    values = await _delete(call, "values", queries_of_values(unnamed - named), {DOOMED: token})
    writes = await _delete(call, "writes", key_queries(orphans - after.keys()), old)
    logger.debug(
        "Thread %r: deleted %d channel values and %d pending writes that a crash left.",
        *(thread_id, values, writes),
    )


async def _distinct(call: Call, role: Role, thread_id: str, names: Sequence[str]) -> list[Document]:
    """The distinct keys among a thread's documents, from the index alone."""
    pipeline: list[Document] = [
        {"$match": {"thread_id": thread_id}},
        {"$group": {"_id": {name: f"${name}" for name in names}}},
    ]
    return [found["_id"] for found in await call.io.aggregate(role, pipeline)]
