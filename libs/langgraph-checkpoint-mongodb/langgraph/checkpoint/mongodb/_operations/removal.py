"""delete_thread, delete_for_runs and prune: nothing that is still needed is removed.

Meanwhile other processes put checkpoints into the same threads. So a removal first marks the
checkpoints as `doomed`: a put that builds on one of them notices (see `commit`). Then it reads
the thread again, and spares what checkpoints that came in between need. Only the rest is
deleted, as far as it is still marked: checkpoints first, then pending writes, then values. Every
step can be repeated after a crash, and any time may pass between two steps: a put takes the
marks off that a failed or suspended removal left.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.mongodb._database.clock import object_id
from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout.checkpoint import KEY_FIELDS
from langgraph.checkpoint.mongodb._layout.keys import (
    VALUE_KEY,
    CheckpointKey,
    Document,
    ValueKey,
    checkpoint_queries,
    value_queries,
)
from langgraph.checkpoint.mongodb._layout.states import DOOMED, REKEYED, RETAINED
from langgraph.checkpoint.mongodb._layout.values import COPY_CHANNEL
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from langgraph.checkpoint.mongodb._operations.arguments import checked
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError

__all__ = ["delete_for_runs", "delete_thread", "prune", "remove"]

logger = logging.getLogger(__name__)

# A running graph can write into a thread as fast as it is deleted, or build on what is pruned.
_PASSES = 20

_RUNS_PER_QUERY = 1000

# The last is what LangGraph's server calls the second.
_STRATEGIES = ("keep_latest", "delete", "delete_all")


async def delete_thread(context: Context, thread_id: str) -> None:
    """Delete a thread; see `MongoDBSaver.delete_thread`.

    Repeated until nothing is found. A checkpoint that was committed in between, while its
    values were deleted, is deleted too; a put that commits later finds its parent, or its
    values, gone.
    """
    query = {"thread_id": checked(thread_id, "thread_id")}
    context.memory.forget(thread_id)
    for _ in range(_PASSES):
        checkpoints = await _delete_checkpoints(context, query)
        writes = await context.io.delete("writes", query)
        values = await context.io.delete("values", query)
        logger.debug(
            "Thread %r: deleted %d checkpoints, %d pending writes, %d channel values.",
            thread_id,
            checkpoints,
            writes,
            values,
        )
        if not checkpoints + writes + values:
            break
    else:
        # Do not end by deleting values: a checkpoint put just before may refer to them.
        await _delete_checkpoints(context, query)
        logger.debug("Thread %r: is written into as fast as it is deleted.", thread_id)
    context.memory.forget(thread_id)


async def _delete_checkpoints(context: Context, query: Document) -> int:
    """Delete until none is found: a checkpoint may be put just before its parent is deleted."""
    deleted = 0
    while found := await context.io.delete("checkpoints", query):
        deleted += found
    return deleted


async def prune(context: Context, thread_ids: Sequence[str], strategy: str, keep_last: Any) -> None:
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
            await delete_thread(context, thread_id)
        return
    newest = dict.fromkeys(ids, lambda ancestry: ancestry.keys() - ancestry.to_keep(keep_last))
    await _remove_from(context, newest)


async def delete_for_runs(context: Context, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints of runs; see `MongoDBSaver.delete_for_runs`."""
    threads: defaultdict[str, set[CheckpointKey]] = defaultdict(set)
    ids = _identifiers(run_ids, "run_id")
    for at in range(0, len(ids), _RUNS_PER_QUERY):
        for key in await _of_runs(context, ids[at : at + _RUNS_PER_QUERY]):
            threads[key.thread_id].add(key)
    await _remove_from(context, {thread_id: _only(keys) for thread_id, keys in threads.items()})


async def _remove_from(
    context: Context, chosen: Mapping[str, Callable[[Ancestry], set[CheckpointKey]]]
) -> None:
    """Remove chosen checkpoints of threads.

    Raises:
        UnknownLayoutError: A newer release wrote to some of them; the others are done.
    """
    unknown: UnknownLayoutError | None = None
    for thread_id, choose in chosen.items():
        try:
            await remove(context, thread_id, choose)
        except UnknownLayoutError as error:
            unknown = unknown or error
    if unknown:
        raise unknown


def _only(keys: set[CheckpointKey]) -> Callable[[Ancestry], set[CheckpointKey]]:
    # Their subgraphs' checkpoints are deleted, too, even if another run resumed them.
    return lambda ancestry: ancestry.with_calls(ancestry.keys() & keys)


async def _of_runs(context: Context, run_ids: Sequence[str]) -> set[CheckpointKey]:
    """The checkpoints of runs: by index, or, of older releases, by their metadata."""
    indexed = {"run_id": {"$in": list(run_ids)}}
    found = await context.io.find("checkpoints", indexed, KEY_FIELDS, primary=True)
    keys = {CheckpointKey.of(document) for document in found}
    # Of older releases. The stored pair is an array: its index knows the bytes, and the
    # type, which finds forms that are to be compared by value.
    wanted: Document = {"$exists": True}
    typed = [context.codec.dumps(run_id) for run_id in run_ids]
    if all(type_ == "msgpack" for type_, _ in typed):
        wanted = {"$in": [*(data for _, data in typed), "json"]}
    older = {"run_id": {"$exists": False}, "metadata.run_id": wanted}
    fields = {**KEY_FIELDS, "metadata.run_id": 1}
    for document in await context.io.find("checkpoints", older, fields, primary=True):
        if context.codec.loads_metadata_item(document, "run_id") in run_ids:
            keys.add(CheckpointKey.of(document))
    return keys


async def remove(
    context: Context, thread_id: str, choose: Callable[[Ancestry], set[CheckpointKey]]
) -> None:
    """Remove chosen checkpoints of a thread, and what only they refer to.

    Those from which others rebuild a delta channel are only hidden from readers.
    """
    ancestry = await Ancestry.read(context, thread_id)
    chosen, unproven = choose(ancestry), ancestry.unproven()
    for _ in range(_PASSES):
        ancestry, contested = await _remove_once(context, ancestry, chosen)
        if not contested:
            break
        chosen -= unproven  # A contested one was not left by a crash.
    else:
        logger.debug("Thread %r: its old checkpoints are built on all the time.", thread_id)
    await _collect_garbage(context, ancestry)


async def _remove_once(
    context: Context, before: Ancestry, chosen: set[CheckpointKey]
) -> tuple[Ancestry, bool]:
    """Remove chosen checkpoints, except those that a put contests meanwhile.

    Returns:
        The thread as it is afterwards, or was just before, and whether something is left.
    """
    chosen = (chosen & before.keys() | before.retained()) - before.under_way()
    doomed = chosen
    token = object_id(await context.io.now())
    await _mark(context, doomed, {}, {"$addToSet": {DOOMED: token}})
    after = await Ancestry.read(context, before.thread_id) if doomed else before
    # One that a crash seemed to have left may have been proven before it was marked.
    proven = before.unproven() - after.unproven()
    kept = after.keys() - (doomed - proven)
    retained = (await after.ancestors_of(kept) & doomed) - kept
    # A put that contested a mark relies on that checkpoint.
    marked: Document = {DOOMED: token}
    # Another removal loses its marks by this, and begins again.
    unmarked: Document = {"$unset": {DOOMED: ""}}
    await _mark(context, doomed & kept, marked, unmarked)
    await _mark(context, retained, marked, {**unmarked, "$set": {RETAINED: True}})
    gone = doomed - kept - retained
    checkpoints = await _delete(context, "checkpoints", checkpoint_queries(gone), marked)
    contested = checkpoints < len(gone)
    if contested:
        after = await Ancestry.read(context, before.thread_id)
        # Some may have been gone before, removed by another.
        contested = not gone.isdisjoint(after.keys())
        gone -= after.keys()
    writes, values = await _delete_contents(context, before, after, gone)
    logger.debug(
        "Thread %r: removed %d of %d checkpoints, %d pending writes, %d channel values; "
        "%d checkpoints are kept for delta channels alone.",
        before.thread_id,
        checkpoints,
        len(before.keys()),
        writes,
        values,
        len(retained),
    )
    return after.without(gone), contested


async def _delete_contents(
    context: Context, before: Ancestry, after: Ancestry, gone: set[CheckpointKey]
) -> tuple[int, int]:
    """Delete the pending writes of checkpoints that are gone, and the values that only they need.

    Returns:
        How many of each were deleted.
    """
    # A put that was suspended stores its unproven checkpoint again, with the same values. So what
    # such a checkpoint has is left to the collection of garbage, which puts notice.
    seen = gone - before.unproven()
    needed = after.referenced_values(after.keys() - gone)
    writes = await _delete(context, "writes", checkpoint_queries(seen))
    values = value_queries(before.referenced_values(seen) - needed)
    return writes, await _delete(context, "values", values)


def _identifiers(values: Sequence[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"Invalid {name}s: expected a sequence of strings, got one string.")
    return list(dict.fromkeys(checked(value, name) for value in values))


async def _mark(
    context: Context, keys: set[CheckpointKey], narrowed: Document, update: Document
) -> None:
    for query in checkpoint_queries(keys):
        await context.io.update_many("checkpoints", {**query, **narrowed}, update)


async def _delete(
    context: Context, role: Role, queries: Iterable[Document], narrowed: Document | None = None
) -> int:
    narrowed = narrowed or {}
    return sum([await context.io.delete(role, {**query, **narrowed}) for query in queries])


async def _collect_garbage(context: Context, ancestry: Ancestry) -> None:
    """Delete values and pending writes to which no checkpoint has referred for a long time.

    Recent ones may belong to a put that has not written its checkpoint yet.

    Args:
        context: What the call works with.
        ancestry: The thread as it was read just before.
    """
    found = await _distinct(context, "values", ancestry.thread_id, VALUE_KEY)
    values = {ValueKey.of(one) for one in found} - ancestry.referenced_values(ancestry.keys())
    if any(key.channel == COPY_CHANNEL for key in values):
        values = set()  # A copy's checkpoints come at its end, or it is to be repeated.
    found = await _distinct(context, "writes", ancestry.thread_id, CheckpointKey._fields)
    writes = {CheckpointKey.of(one) for one in found} - ancestry.keys()
    old: Document = {"_id": {"$lt": ancestry.long_ago}}
    unnamed = {
        ValueKey.of(one)
        for one in await _those(context, "values", value_queries(values), old, VALUE_KEY)
    }
    orphans = {
        CheckpointKey.of(one)
        for one in await _those(
            context, "writes", checkpoint_queries(writes), old, CheckpointKey._fields
        )
    }
    if unnamed or orphans:
        await _sweep(context, ancestry.thread_id, unnamed, orphans, old)


async def _those(
    context: Context,
    role: Role,
    queries: Iterable[Document],
    narrowed: Document,
    names: Sequence[str],
) -> list[Document]:
    """The keys of documents."""
    fields: Document = {"_id": 0, **dict.fromkeys(names, 1)}
    return [
        document
        for query in queries
        for document in await context.io.find(role, {**query, **narrowed}, fields, primary=True)
    ]


async def _sweep(
    context: Context,
    thread_id: str,
    unnamed: set[ValueKey],
    orphans: set[CheckpointKey],
    old: Document,
) -> None:
    """Delete old values and pending writes to which no checkpoint refers.

    A process that was suspended may resume just now and store a checkpoint that refers to the
    values. If it does so before the thread is read again, they are spared. If later, it finds
    its parent changed, or the values marked, and writes them again.
    """
    token = object_id(await context.io.now())
    if unnamed:
        for query in value_queries(unnamed):
            await context.io.update_many("values", query, {"$addToSet": {DOOMED: token}})
        changed: Document = {"$set": {REKEYED: token}}
        await context.io.update_many("checkpoints", {"thread_id": thread_id}, changed)
    after = await Ancestry.read(context, thread_id)
    named = after.referenced_values(after.keys())
    for query in value_queries(unnamed & named):
        await context.io.update_many("values", query, {"$unset": {DOOMED: ""}})
    values = await _delete(context, "values", value_queries(unnamed - named), {DOOMED: token})
    writes = await _delete(context, "writes", checkpoint_queries(orphans - after.keys()), old)
    logger.debug(
        "Thread %r: deleted %d channel values and %d pending writes that a crash left.",
        thread_id,
        values,
        writes,
    )


async def _distinct(
    context: Context, role: Role, thread_id: str, names: Sequence[str]
) -> list[Document]:
    """The distinct keys among a thread's documents, from the index alone."""
    pipeline: list[Document] = [
        {"$match": {"thread_id": thread_id}},
        {"$group": {"_id": {name: f"${name}" for name in names}}},
    ]
    return [found["_id"] for found in await context.io.aggregate(role, pipeline)]
