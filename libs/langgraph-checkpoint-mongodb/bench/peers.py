"""Opening each peer's saver on a fresh database, and asking its server what it stores."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from typing import Any

from bench.faces import AsyncFace, Face, SyncFace
from bench.meter import CommandCounter

POOL_SIZE = 8  # connections: as many as the concurrent workload has threads or tasks
POSTGRES_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
POSTGRES_MULTIPLY = """
    INSERT INTO checkpoints
    SELECT thread_id, checkpoint_ns, '0-' || gen_random_uuid(), parent_checkpoint_id, type,
           checkpoint, metadata
    FROM (SELECT * FROM checkpoints WHERE thread_id = %(thread_id)s
          ORDER BY checkpoint_id DESC LIMIT 1) AS newest,
         generate_series(1, %(copies)s)"""
NEWEST_FIRST = [("checkpoint_ns", 1), ("checkpoint_id", -1)]
DISTRIBUTIONS = {
    "ours": "langgraph-checkpoint-mongodb",
    "0.5.1": "langgraph-checkpoint-mongodb",
    "postgres": "langgraph-checkpoint-postgres",
    "memory": "langgraph-checkpoint",
}


def batched(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Cut items into lists of at most so many."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


@dataclass
class Opened:
    """A saver ready to be measured.

    Attributes:
        face: How to call it.
        commands: Commands sent so far by its driver; 0 where the driver does not tell.
        stored: Bytes its server holds: data as documents are for MongoDB (indexes and compression
            aside), tables with their indexes for PostgreSQL, where row overhead lies in pages.
        multiply: Gives a thread so many older copies of its newest checkpoint, straight in the
            server; None where putting them is as quick.
    """

    face: Face
    commands: Callable[[], int]
    stored: Callable[[], int]
    multiply: Callable[[str, int], None] | None = None


def versions(peer: str) -> dict[str, str]:
    """Return the installed versions that a comparison depends on."""
    names = ["langgraph", "langgraph-checkpoint", DISTRIBUTIONS[peer]]
    names += {"postgres": ["psycopg"], "memory": []}.get(peer, ["pymongo"])
    return {name: version(name) for name in names}


@asynccontextmanager
async def open_peer(peer: str, face: str, uri: str) -> AsyncIterator[Opened]:
    """Open a peer's saver on an empty database of its own, dropped at the end.

    Args:
        peer: A key of `DISTRIBUTIONS`.
        face: ``sync`` or ``async``.
        uri: Where its server (or the relay before it) listens; unused for ``memory``.
    """
    if peer == "memory":
        from langgraph.checkpoint.memory import InMemorySaver

        saver = InMemorySaver()
        yield Opened(SyncFace(saver) if face == "sync" else AsyncFace(saver), int, int)
    elif peer == "postgres":
        async with _postgres(face, uri) as opened:
            yield opened
    else:
        async with _mongodb(peer, face, uri) as opened:
            yield opened


@asynccontextmanager
async def _mongodb(peer: str, face: str, uri: str) -> AsyncIterator[Opened]:
    from pymongo import AsyncMongoClient, MongoClient
    from pymongo.monitoring import CommandListener

    from langgraph.checkpoint.mongodb import MongoDBSaver

    class Listener(CommandListener):
        def __init__(self) -> None:
            self.counter = CommandCounter()

        def started(self, event: Any) -> None:
            self.counter.add()

        def succeeded(self, event: Any) -> None: ...

        def failed(self, event: Any) -> None: ...

    listener = Listener()
    name = f"bench_{uuid.uuid4().hex[:12]}"
    admin: MongoClient[Any] = MongoClient(uri)

    def stored() -> int:
        return int(admin[name].command("dbStats")["dataSize"])

    def multiply(thread_id: str, copies: int) -> None:
        checkpoints = admin[name]["checkpoints"]
        found = checkpoints.find({"thread_id": thread_id}, {"_id": 0})
        newest = found.sort(NEWEST_FIRST).limit(1)[0]
        ids = (f"0-{uuid.uuid4()}" for _ in range(copies))  # before any real id
        for batch in batched(ids, 10_000):
            checkpoints.insert_many([{**newest, "checkpoint_id": id_} for id_ in batch])

    try:
        if face == "async" and peer == "ours":
            from langgraph.checkpoint.mongodb.aio import AsyncMongoDBSaver

            client: AsyncMongoClient[Any] = AsyncMongoClient(uri, event_listeners=[listener])
            saver = AsyncMongoDBSaver(client, db_name=name)
            await saver.setup()
            yield Opened(AsyncFace(saver), listener.counter, stored, multiply)
            await client.close()
        else:
            with MongoClient[Any](uri, event_listeners=[listener]) as blocking:
                plain = MongoDBSaver(blocking, db_name=name)
                chosen: Face = SyncFace(plain) if face == "sync" else AsyncFace(plain)
                yield Opened(chosen, listener.counter, stored, multiply)
    finally:
        admin.drop_database(name)
        admin.close()


@asynccontextmanager
async def _postgres(face: str, uri: str) -> AsyncIterator[Opened]:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    with psycopg.connect(uri, autocommit=True) as admin:
        admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

        def stored() -> int:
            sizes = [
                admin.execute("SELECT pg_total_relation_size(%s)", (table,)).fetchone()
                for table in POSTGRES_TABLES
            ]
            return sum(int(size[0]) for size in sizes if size)

        def multiply(thread_id: str, copies: int) -> None:
            admin.execute(POSTGRES_MULTIPLY, {"thread_id": thread_id, "copies": copies})

        options: dict[str, Any] = {
            "min_size": POOL_SIZE,
            "max_size": POOL_SIZE,
            "open": False,
            "kwargs": {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        }
        if face == "sync":
            with ConnectionPool(uri, **options) as pool:
                pool.wait()
                saver = PostgresSaver(pool)
                saver.setup()
                yield Opened(SyncFace(saver), int, stored, multiply)
        else:
            async with AsyncConnectionPool(uri, **options) as apool:
                await apool.wait()
                asaver = AsyncPostgresSaver(apool)
                await asaver.setup()
                yield Opened(AsyncFace(asaver), int, stored, multiply)
        admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
