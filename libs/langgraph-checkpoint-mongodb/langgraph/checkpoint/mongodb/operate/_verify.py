"""verify: whether every checkpoint is whole, and what crashes, or others, have left."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from bson import ObjectId

from langgraph.checkpoint.mongodb._database.port import run
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES
from langgraph.checkpoint.mongodb._layout.keys import WRITE_KEY, CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._layout.states import RETAINED
from langgraph.checkpoint.mongodb._layout.writes import complete_attempts, referred
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from langgraph.checkpoint.mongodb._operations.commit import long_ago
from langgraph.checkpoint.mongodb.errors import MongoDBSaverError
from langgraph.checkpoint.mongodb.operate._checkpoints import Checkpoints
from langgraph.checkpoint.mongodb.operate._findings import Finding
from langgraph.checkpoint.mongodb.operate._indexes import indexes
from langgraph.checkpoint.mongodb.operate._store import ROLES, Progress, Store
from langgraph.checkpoint.mongodb.operate._values import Values
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["Finding", "Verified", "verify"]


class Verified:
    """How far a verification has come; it may be given to several, one after another.

    Attributes:
        threads: Threads that were looked at.
        checkpoints: Checkpoints that were.
        last: The last thread that was done with; the next begins `after` it.
    """

    def __init__(self) -> None:
        self.threads = self.checkpoints = 0
        self.last: str | None = None


def verify(
    saver: MongoDBSaver,
    threads: Iterable[str] | None = None,
    *,
    after: str | None = None,
    verified: Verified | None = None,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Look for what is wrong.

    Every document is read once, and pieces of values once more; of one thread at a time the
    keys are held, and of one document the contents. Nothing is made into objects, and nothing
    is changed. What is younger than an hour may be under way, and is not told.

    Args:
        saver: The saver; with a `ttl` it is also seen whether documents expire.
        threads: The threads; None for all, and for the indexes.
        after: Begin after this thread: one that ended goes on so.
        verified: Told how far it has come.
        progress: Called with the number of checkpoints that were looked at since.

    Yields:
        What is wrong.

    Raises:
        ValueError: A thread is not a string.
    """
    store, verified = Store(saver), verified or Verified()
    if threads is None and after is None:
        yield from _indexes(saver)
    # What nothing names may be all that is left of a thread.
    chosen = store.threads(ROLES, after) if threads is None else store.chosen(threads)
    for thread_id in chosen:
        before = verified.checkpoints
        yield from _thread(store, thread_id, verified)
        verified.threads += 1
        verified.last = thread_id
        if progress:
            progress(verified.checkpoints - before)


def _indexes(saver: MongoDBSaver) -> Iterator[Finding]:
    there = indexes(saver)
    for one in there:
        if one.state == "missing":
            what = f"{one.collection} has no index on {one.keys}, needed for {one.needed_for}"
            yield Finding("index-missing", what)
        elif one.state == "not unique":
            what = f"{one.collection}: the index {one.name!r} does not serve: it is to be unique"
            yield Finding("index-not-unique", what)
    expiring = {one.collection for one in there if one.needed_for == "expiry" and one.name}
    collections = {one.collection for one in there}
    if expiring and saver.ttl is None and expiring != collections:
        missing = ", ".join(sorted(collections - expiring))
        yield Finding("ttl", f"documents expire in some collections, and not in {missing}")


def _thread(store: Store, thread_id: str, verified: Verified) -> Iterator[Finding]:
    """Look at one thread; once more at what is wrong, since others write meanwhile."""
    first = [*_look(store, thread_id, verified)]
    if not first:
        return
    again = {*_look(store, thread_id, Verified())}
    yield from dict.fromkeys(one for one in first if one in again)


def _look(store: Store, thread_id: str, verified: Verified) -> Iterator[Finding]:
    old = run(long_ago(store.context))
    values = Values()
    # Checkpoints are put after their values; but a value that is read after them may be new.
    yield from values.read(store, thread_id, old)
    checkpoints = Checkpoints(store, values, old)
    with store.collection("checkpoints").find({"thread_id": thread_id}) as cursor:
        for document in cursor:
            verified.checkpoints += 1
            yield from checkpoints.see(document)
    yield from checkpoints.end()
    yield from values.unnamed(thread_id, checkpoints.named, old)
    yield from _writes(store, thread_id, checkpoints, values, old)
    if checkpoints.retained:
        yield from _retained(store, thread_id)


def _writes(
    store: Store, thread_id: str, checkpoints: Checkpoints, values: Values, old: ObjectId
) -> Iterator[Finding]:
    order = [*INDEXES["writes"][0].keys]
    with store.collection("writes").find({"thread_id": thread_id}, sort=order) as cursor:
        for of_task, documents in itertools.groupby(cursor, key=_task):
            yield from _writes_of_task(store, of_task, [*documents], checkpoints, values, old)


def _task(document: Document) -> tuple[str, ...]:
    return tuple(str(document.get(name)) for name in WRITE_KEY[:4])


def _writes_of_task(
    store: Store,
    task: tuple[str, ...],
    documents: Sequence[Document],
    checkpoints: Checkpoints,
    values: Values,
    old: ObjectId,
) -> Iterator[Finding]:
    key = CheckpointKey(*task[:3])
    name = f"of task {task[3]!r}"
    is_old = all(isinstance(one["_id"], ObjectId) and one["_id"] < old for one in documents)
    if key not in checkpoints.parents and is_old:
        yield Finding("write-unnamed", f"a pending write {name} has no checkpoint", *key)
    seen: set[object] = set()
    for document in documents:
        place = document.get("idx"), document.get("attempt")
        if place in seen:
            yield Finding(
                "duplicate-write", f"pending write {place[0]} {name} is there twice", *key
            )
        seen.add(place)
        yield from _write(store, key, name, document, values)
    ordinary = [one for one in documents if isinstance(one.get("idx"), int) and one["idx"] >= 0]
    if ordinary and is_old and not _is_whole(ordinary):
        yield Finding("write-partial", f"only some of the pending writes {name} are there", *key)


def _is_whole(documents: Sequence[Document]) -> bool:
    try:
        return bool(complete_attempts(documents))
    except KeyError:
        return False  # One of several that does not say of how many.


def _write(
    store: Store, key: CheckpointKey, name: str, document: Document, values: Values
) -> Iterator[Finding]:
    where = f"pending write {document.get('idx')!r} {name}"
    try:
        stored: ValueKey | None = referred(document)
        if stored is not None:
            if stored not in values.known:
                what = f"{where}: its value, of {stored.channel!r}, is not there"
                yield Finding("write-missing", what, *key)
            return
        store.context.codec.loads((document["type"], document["value"]))
    except Exception as error:
        # Whatever the serializer raises for bytes that are not its own.
        reason = f"{type(error).__name__}: {error}"
        yield Finding("write", f"{where} cannot be read: {reason[:200]}", *key)


def _retained(store: Store, thread_id: str) -> Iterator[Finding]:
    """Checkpoints that are kept for delta channels, and that nothing is rebuilt from."""
    try:
        graph = run(Ancestry.read(store.context, thread_id))
        needed = run(graph.ancestors_of(graph.keys() - graph.retained()))
    except (MongoDBSaverError, LookupError, TypeError, ValueError):
        return  # What is wrong there was told.
    for key in sorted(graph.retained() - needed):
        yield Finding(RETAINED, "nothing is rebuilt from it any more", *key)
