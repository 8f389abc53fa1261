"""The port of the sync saver: coroutines that never suspend."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import pymongo
from pymongo import MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.operations import IndexModel
from pymongo.read_concern import ReadConcern

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.clock import clock_of, object_id, wall_time
from langgraph.checkpoint.mongodb._database.gathering import get_timeout
from langgraph.checkpoint.mongodb._database.port import Role, Update, Updated
from langgraph.checkpoint.mongodb._layout.documents import Document
from langgraph.checkpoint.mongodb._operations.arguments import ALL_FIELDS
from langgraph.checkpoint.mongodb._operations.memory import Memory

__all__ = ["SyncPort"]

T = TypeVar("T")


class SyncPort:
    """Port over a `pymongo.MongoClient`, or a client that behaves like one (mongomock)."""

    def __init__(
        self, database: Database[Document], collections: Mapping[Role, Collection[Document]]
    ) -> None:
        self.memory = Memory()
        self._database = database
        self._native = isinstance(database.client, MongoClient)
        self._collections = (
            driver.with_plain_codec(collections) if self._native else dict(collections)
        )
        self._joins = self._native
        self._limit: int | None = None
        self._clock = clock_of(database.client)

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
        return self._all(cursor)

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
        for document in cursor:
            found.append(document)
            most_bytes -= len(document["value"])
            if most_bytes < 0:
                cursor.close()
                return found, False
        return found, True

    def _all(self, cursor: Any) -> list[Document]:
        # Batch by batch takes a fraction of the time of one by one. And a client's `timeoutMS`
        # holds for all batches together, as it does in the async port.
        found: list[Document] = cursor.to_list() if self._native else list(cursor)
        return found

    def _primary(self, role: Role) -> Collection[Document]:
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
                return driver.unjoin(self._all(collection.aggregate(pipeline)))
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
        collection = self._collections[role]
        if len(documents) == 1:  # Spares the machinery of a bulk.
            try:
                collection.insert_one(documents[0])
                return []
            except DuplicateKeyError:
                pass  # It does not tell whether the write concern failed, too: a bulk does.
        try:
            collection.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return driver.duplicates(role, error)
        return []

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        collection = self._collections[role]
        if len(updates) > 1 and self._native:
            try:
                bulk = collection.bulk_write(driver.as_operations(updates))
            except BulkWriteError as error:
                return driver.stopped(role, updates, error)
            return driver.done(updates, bulk)
        inserted = missed = 0
        for one in updates:
            if one.required:
                if not collection.count_documents(one.query):
                    return Updated(inserted, stopped=True, missed=missed)
                continue
            done = collection.update_one(one.query, one.update, upsert=one.upsert)
            inserted += done.upserted_id is not None
            missed += done.upserted_id is None and not done.matched_count
        return Updated(inserted, missed=missed)

    async def update_many(self, role: Role, query: Document, update: Document) -> int:
        """See `Port`."""
        return self._collections[role].update_many(query, update).matched_count

    async def delete(self, role: Role, query: Document) -> int:
        """See `Port`."""
        return self._collections[role].delete_many(query).deleted_count

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """See `Port`."""
        return self._all(self._primary(role).aggregate(list(pipeline)))

    async def now(self) -> datetime:
        """See `Port`."""
        if not self._native:
            return wall_time()
        if known := self._clock.now():
            return known
        asked = self._clock.asking()
        # Not in a transaction that the caller's context may be in.
        return self._clock.learn(asked, contextvars.Context().run(self._ask, get_timeout()))

    def _ask(self, seconds: float | None) -> datetime | None:
        try:
            with pymongo.timeout(seconds):
                answer: datetime | None = self._database.command("hello").get("localTime")
        except OperationFailure:
            return None
        return answer

    async def indexes(self, role: Role) -> dict[str, Document]:
        """See `Port`."""
        return dict(self._collections[role].index_information())

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        """See `Port`."""
        self._collections[role].create_indexes(list(models))

    async def drop_index(self, role: Role, name: str) -> None:
        """See `Port`."""
        self._collections[role].drop_index(name)

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        """See `Port`."""
        self._database.command(driver.ttl_command(self._collections[role].name, name, seconds))

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        if largest <= driver.UNASKED_BYTES:
            return driver.UNASKED_BYTES
        if not self._native:
            return driver.USUAL_LIMIT
        if self._limit is None:
            self._limit = self._database.command("hello")["maxBsonObjectSize"]
        return self._limit

    async def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """See `Port`."""
        try:
            return [await one for one in work]
        finally:
            for one in work:
                one.close()  # After a failure the rest is never awaited.

    async def offload(
        self, size: int | Callable[[], int], function: Callable[..., T], *args: Any
    ) -> T:
        """See `Port`."""
        return function(*args)

    async def wait(self, event: threading.Event) -> None:
        """See `Port`."""
        event.wait(driver.WAIT_S)

    def name(self, role: Role) -> str:
        """See `Port`."""
        return self._collections[role].full_name
