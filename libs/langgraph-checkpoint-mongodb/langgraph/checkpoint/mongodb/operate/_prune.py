"""prune: old checkpoints, and idle threads, of all threads or some; what would go, first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from langgraph.checkpoint.mongodb._database.clock import object_id
from langgraph.checkpoint.mongodb._database.port import Role, run
from langgraph.checkpoint.mongodb._layout.keys import (
    CheckpointKey,
    Document,
    checkpoint_queries,
    value_queries,
)
from langgraph.checkpoint.mongodb._operations import removal
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from langgraph.checkpoint.mongodb.errors import MongoDBSaverError
from langgraph.checkpoint.mongodb.operate._store import (
    DOCUMENT_BYTES,
    ROLES,
    TOLD,
    Progress,
    Store,
)
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["Pruned", "prune"]


@dataclass(slots=True)
class Pruned:
    """What was removed, or would be.

    Attributes:
        threads: Threads of which something goes.
        deleted_threads: Those of them that go whole, since they were idle.
        checkpoints: Checkpoints that go; those that are kept for delta channels alone are not
            among them.
        bytes: Bytes of their documents, of their pending writes, and of values that only they
            name. Before a removal: what a running graph adds meanwhile may keep some.
        failed: How many threads could not be pruned.
        failures: Thread and reason of the first 100 of them.
        dry_run: Whether nothing was removed.
    """

    threads: int = 0
    deleted_threads: int = 0
    checkpoints: int = 0
    bytes: int = 0
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    dry_run: bool = False


def prune(
    saver: MongoDBSaver,
    threads: Iterable[str] | None = None,
    *,
    keep_last: int | None = None,
    older_than: timedelta | None = None,
    idle: timedelta | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Pruned:
    """Remove old checkpoints, and idle threads, thread by thread.

    It may run beside running graphs, be stopped, and be begun again. What a kept checkpoint
    needs is kept, as by `MongoDBSaver.prune`.

    Args:
        saver: The saver.
        threads: The threads; None for all.
        keep_last: Keep that many of the newest checkpoints of each namespace; 1 by default
            where `older_than` is given.
        older_than: Remove only checkpoints that were stored longer ago.
        idle: Delete whole threads into which nothing was stored for as long.
        dry_run: Only count.
        progress: Called with the number of threads that were done since.

    Returns:
        What was removed, or would be. A thread that a newer release wrote to, or that is damaged,
        stays, and the others are done.

    Raises:
        ValueError: Nothing says what is to go, `keep_last` is below 1, a time is negative, or a
            thread is not a string.
    """
    if keep_last is None and older_than is None and idle is None:
        raise ValueError("Say what is to go: keep_last, older_than, or idle.")
    if keep_last is not None and (isinstance(keep_last, bool) or keep_last < 1):
        raise ValueError(f"Invalid keep_last {keep_last!r}: expected a whole number from 1 on.")
    for name, time in (("older_than", older_than), ("idle", idle)):
        if time is not None and time < timedelta(0):
            raise ValueError(f"Invalid {name}: expected no negative time.")
    store, done = Store(saver), Pruned(dry_run=dry_run)
    pruning = _Pruning(store, keep_last, older_than, idle, done)
    for thread_id in store.chosen(threads):
        try:
            pruning.thread(thread_id)
        except MongoDBSaverError as error:
            # Of a newer release, or damaged: the others are done.
            done.failed += 1
            if len(done.failures) < TOLD:
                done.failures.append((thread_id, str(error)))
        if progress:
            progress(1)
    return done


class _Pruning:
    """Prunes thread after thread, and counts."""

    def __init__(
        self,
        store: Store,
        keep_last: int | None,
        older_than: timedelta | None,
        idle: timedelta | None,
        done: Pruned,
    ) -> None:
        self._store, self._done = store, done
        self._keep_last, self._older_than, self._idle = keep_last, older_than, idle

    def thread(self, thread_id: str) -> None:
        if self._idle is not None and self._is_idle(thread_id, self._idle):
            self._delete(thread_id)
        elif self._keep_last is not None or self._older_than is not None:
            self._prune(thread_id)

    def _is_idle(self, thread_id: str, idle: timedelta) -> bool:
        """Whether nothing of a thread is younger; nobody writes a value alone."""
        since = {"_id": {"$gte": object_id(self._store.now() - idle)}}
        query = {"thread_id": thread_id, **since}
        fields = {"_id": 1}
        return not any(
            self._store.collection(role).find_one(query, fields)
            for role in ROLES
            if role != "values"
        )

    def _delete(self, thread_id: str) -> None:
        of_thread: Document = {"thread_id": thread_id}
        count = self._store.collection("checkpoints").count_documents(of_thread)
        self._done.threads += 1
        self._done.deleted_threads += 1
        self._done.checkpoints += count
        self._done.bytes += sum(self._bytes(role, [of_thread]) for role in ROLES)
        if not self._done.dry_run:
            self._store.saver.delete_thread(thread_id)

    def _prune(self, thread_id: str) -> None:
        context = self._store.saver._context()
        graph = run(Ancestry.read(context, thread_id))
        chosen = self._choose(graph)
        ancestors = run(graph.ancestors_of(graph.keys() - chosen)) if chosen else set()
        gone = chosen - ancestors - graph.under_way()
        named = graph.referenced_values(gone) - graph.referenced_values(graph.keys() - gone)
        keys = checkpoint_queries(gone)
        self._done.threads += bool(gone)
        self._done.checkpoints += len(gone)
        self._done.bytes += self._bytes("checkpoints", keys) + self._bytes("writes", keys)
        self._done.bytes += self._bytes("values", value_queries(named))
        if not self._done.dry_run:
            # Also where nothing goes: what a crash left does.
            run(removal.remove(context, thread_id, self._choose))

    def _choose(self, graph: Ancestry) -> set[CheckpointKey]:
        """The checkpoints that are to go."""
        kept = graph.to_keep(self._keep_last or 1)
        if self._older_than is not None:
            bound: datetime = self._store.now() - self._older_than
            young = graph.younger_than(object_id(bound)) - graph.retained() - graph.unproven()
            kept = graph.with_called(kept | young)
        return graph.keys() - kept

    def _bytes(self, role: Role, queries: list[Document]) -> int:
        total = 0
        for query in queries:
            pipeline: list[Document] = [
                {"$match": query},
                {"$group": {"_id": None, "bytes": {"$sum": DOCUMENT_BYTES}}},
            ]
            total += sum(one["bytes"] for one in self._store.collection(role).aggregate(pipeline))
        return total
