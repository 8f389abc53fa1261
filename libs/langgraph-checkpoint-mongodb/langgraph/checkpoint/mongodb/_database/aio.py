"""The port of the async saver: it awaits the driver, and keeps the event loop free."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

import pymongo
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.operations import IndexModel
from pymongo.read_concern import ReadConcern

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.clock import clock_of, object_id, wall_time
from langgraph.checkpoint.mongodb._database.forks import ForkSafeLock
from langgraph.checkpoint.mongodb._database.gathering import Gathering, get_timeout
from langgraph.checkpoint.mongodb._database.port import Role, Update, Updated
from langgraph.checkpoint.mongodb._layout.documents import Document
from langgraph.checkpoint.mongodb._operations.arguments import ALL_FIELDS
from langgraph.checkpoint.mongodb._operations.memory import Memory

__all__ = ["AsyncPort"]

T = TypeVar("T")

# What serializes for longer than a tick of the event loop should take, about a
# millisecond, is worth the tenth of one that a thread costs.
_OFFLOAD_BYTES = 256 * 1024

_POLL_S = 0.001


class AsyncPort:
    """Port over a `pymongo.AsyncMongoClient`, or a client that behaves like one.

    Attributes:
        loop: The event loop it is used in, once known.
        ready: Whether the indexes have been seen to.
        setting_up: Held while they are.
    """

    def __init__(
        self,
        database: AsyncDatabase[Document],
        collections: Mapping[Role, AsyncCollection[Document]],
    ) -> None:
        self.memory = Memory()
        self._database = database
        self._native = isinstance(database.client, AsyncMongoClient)
        self._collections = (
            driver.with_plain_codec(collections) if self._native else dict(collections)
        )
        self._joins = self._native
        self._gathering = Gathering(self._insert)
        self._limit: int | None = None
        self._clock = clock_of(database.client)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ready = False
        self.setting_up = asyncio.Lock()
        self._binding = ForkSafeLock()

    def bind(self, loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop | None:
        """Belong to an event loop, unless to one already that is not closed; return which."""
        with self._binding:
            if self.loop is None or self.loop.is_closed():
                self.loop, self.setting_up = loop, asyncio.Lock()
            return self.loop

    async def find(
        self,
        role: Role,
        query: Document,
        fields: Document,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        most: int = 0,
        fresh: bool = False,
    ) -> list[Document]:
        """See `Port`."""
        collection = self._primary(role) if fresh else self._collections[role]
        cursor = collection.find(**driver.find_arguments(query, fields, sort, most, self._native))
        return await cursor.to_list(None)

    async def find_within(
        self,
        role: Role,
        query: Document,
        *,
        sort: Sequence[tuple[str, int]],
        most_bytes: int,
    ) -> tuple[list[Document], bool]:
        """See `Port`."""
        arguments = driver.find_arguments(query, ALL_FIELDS, sort, 0, self._native)
        found: list[Document] = []
        cursor = self._collections[role].find(**arguments)
        async for document in cursor:
            found.append(document)
            most_bytes -= len(document["value"])
            if most_bytes < 0:
                await cursor.close()
                return found, False
        return found, True

    def _primary(self, role: Role) -> AsyncCollection[Document]:
        collection = self._collections[role]
        if not self._native:
            return collection
        # Also what a client reads by majority is there once it is acknowledged, by one member.
        return collection.with_options(
            read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
        )

    async def newest(
        self, query: Document, sort: Sequence[tuple[str, int]], *, fresh: bool = False
    ) -> tuple[Document, list[Document] | None] | None:
        """See `Port`."""
        if self._joins:
            collection = self._primary("checkpoints") if fresh else self._collections["checkpoints"]
            pipeline = driver.join_pipeline(query, sort, self._collections["writes"].name)
            try:
                return driver.unjoin(await (await collection.aggregate(pipeline)).to_list(None))
            except driver.CANNOT_JOIN as error:
                self._joins = driver.joins_after(error)
        found = await self.find("checkpoints", query, ALL_FIELDS, sort=sort, most=1, fresh=fresh)
        return (found[0], None) if found else None

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """See `Port`."""
        if self._native:
            at = await self.now()
            for document in documents:
                document.setdefault("_id", object_id(at))
        return await self._gathering.insert(role, documents)

    async def _insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        collection = self._collections[role]
        if len(documents) == 1:  # Spares the machinery of a bulk.
            try:
                await collection.insert_one(documents[0])
                return []
            except DuplicateKeyError:
                pass  # It does not tell whether the write concern failed, too: a bulk does.
        try:
            await collection.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return driver.duplicates(role, error)
        return []

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        collection = self._collections[role]
        if len(updates) > 1 and self._native:
            try:
                bulk = await collection.bulk_write(driver.as_operations(updates))
            except BulkWriteError as error:
                return driver.stopped(role, updates, error)
            return driver.done(updates, bulk)
        inserted = missed = 0
        for one in updates:
            if one.required:
                if not await collection.count_documents(one.query):
                    return Updated(inserted, stopped=True, missed=missed)
                continue
            done = await collection.update_one(one.query, one.update, upsert=one.upsert)
            inserted += done.upserted_id is not None
            missed += done.upserted_id is None and not done.matched_count
        return Updated(inserted, missed=missed)

    async def update_many(self, role: Role, query: Document, update: Document) -> int:
        """See `Port`."""
        return (await self._collections[role].update_many(query, update)).matched_count

    async def delete(self, role: Role, query: Document) -> int:
        """See `Port`."""
        return (await self._collections[role].delete_many(query)).deleted_count

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """See `Port`."""
        cursor: Any = self._primary(role).aggregate(list(pipeline))
        if isinstance(cursor, Awaitable):
            cursor = await cursor
        return cast("list[Document]", await cursor.to_list(None))

    async def now(self) -> datetime:
        """See `Port`."""
        if not self._native:
            return wall_time()
        if known := self._clock.now():
            return known
        asked = self._clock.asking()
        # Not in a transaction that the caller's context may be in.
        asking = self._ask(get_timeout())
        answer = await asyncio.create_task(asking, context=contextvars.Context())
        return self._clock.learn(asked, answer)

    async def _ask(self, seconds: float | None) -> datetime | None:
        try:
            with pymongo.timeout(seconds):
                hello = await self._database.command("hello")
        except OperationFailure:
            return None
        answer: datetime | None = hello.get("localTime")
        return answer

    async def indexes(self, role: Role) -> dict[str, Document]:
        """See `Port`."""
        return dict(await self._collections[role].index_information())

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        """See `Port`."""
        await self._collections[role].create_indexes(list(models))

    async def drop_index(self, role: Role, name: str) -> None:
        """See `Port`."""
        await self._collections[role].drop_index(name)

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        """See `Port`."""
        await self._database.command(
            driver.ttl_command(self._collections[role].name, name, seconds)
        )

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        if largest <= driver.UNASKED_BYTES:
            return driver.UNASKED_BYTES
        if not self._native:
            return driver.USUAL_LIMIT
        if self._limit is None:
            hello = await self._database.command("hello")
            self._limit = hello["maxBsonObjectSize"]
        return self._limit

    async def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """See `Port`."""
        return list(await asyncio.gather(*work))

    async def offload(
        self, size: int | Callable[[], int], function: Callable[..., T], *args: Any
    ) -> T:
        """See `Port`."""
        if (size() if callable(size) else size) < _OFFLOAD_BYTES:
            return function(*args)
        return await asyncio.to_thread(function, *args)

    async def wait(self, event: threading.Event) -> None:
        """See `Port`."""
        # Not an asyncio.Event: it is set in another thread, and no thread waits here for it,
        # since the one that sets it may need the last of the pool.
        deadline = time.monotonic() + driver.WAIT_S
        while not event.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    def name(self, role: Role) -> str:
        """See `Port`."""
        return self._collections[role].full_name
