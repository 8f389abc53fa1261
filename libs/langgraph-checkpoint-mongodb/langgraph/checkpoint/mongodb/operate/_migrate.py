"""migrate: threads of older releases moved into the split layout, some or all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pymongo.errors import PyMongoError

from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.states import UNPROVEN
from langgraph.checkpoint.mongodb.errors import MongoDBSaverError
from langgraph.checkpoint.mongodb.operate._store import DOCUMENT_BYTES, TOLD, Progress, Store
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["Migrated", "migrate"]


@dataclass(slots=True)
class Migrated:
    """What was migrated, or would be.

    Attributes:
        threads: Threads with checkpoints in the old layout.
        checkpoints: Those checkpoints.
        bytes: The bytes of their documents before; 0 if it was not asked for.
        failed: How many threads could not be migrated.
        failures: Thread and reason of the first 100 of them.
        dry_run: Whether nothing was changed.
    """

    threads: int = 0
    checkpoints: int = 0
    bytes: int = 0
    failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    dry_run: bool = False


def migrate(
    saver: MongoDBSaver,
    threads: Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Migrated:
    """Move threads that older releases began into the split layout.

    Thread by thread, by `MongoDBSaver.migrate_thread`: it may be stopped and begun again, and
    run beside graphs. It needs the application's classes and serializer. A thread that cannot
    be migrated stays as it is, and the others are done.

    Args:
        saver: The saver.
        threads: The threads; None for all.
        dry_run: Only count.
        progress: Called with the number of threads that were done since.

    Returns:
        What was done.

    Raises:
        ValueError: A thread is not a string.
    """
    store, done = Store(saver), Migrated(dry_run=dry_run)
    for thread_id in store.chosen(threads):
        waiting = _waiting(store, thread_id)
        if waiting:
            done.threads += 1
            done.bytes += waiting["bytes"]
            if dry_run:
                done.checkpoints += waiting["checkpoints"]
            else:
                _migrate(saver, thread_id, done)
        if progress:
            progress(1)
    return done


def _waiting(store: Store, thread_id: str) -> Document | None:
    """How many checkpoints of a thread are in the old layout, and their bytes; None for none."""
    pipeline: list[Document] = [
        {"$match": {"thread_id": thread_id, "layout": None, UNPROVEN: None}},
        {"$group": {"_id": None, "checkpoints": {"$sum": 1}, "bytes": {"$sum": DOCUMENT_BYTES}}},
    ]
    found = [*store.collection("checkpoints").aggregate(pipeline)]
    return found[0] if found else None


def _migrate(saver: MongoDBSaver, thread_id: str, done: Migrated) -> None:
    try:
        done.checkpoints += saver.migrate_thread(thread_id)
    except Exception as error:
        # The server's troubles end it; whatever else is about this thread.
        if isinstance(error, PyMongoError) and not isinstance(error, MongoDBSaverError):
            raise
        done.failed += 1
        if len(done.failures) < TOLD:
            done.failures.append((thread_id, str(error)))
