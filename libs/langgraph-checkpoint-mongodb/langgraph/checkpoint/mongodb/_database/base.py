"""The body of both ports: pymongo's sync and async APIs mirror each other, but for the waiting.

A subclass says how an answer of the driver is waited for, and what a computation or an event
of this process is waited for with.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any

import pymongo
from pymongo import ReadPreference
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.operations import IndexModel
from pymongo.read_concern import ReadConcern

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.clock import clock_of, object_id
from langgraph.checkpoint.mongodb._database.gathering import get_timeout
from langgraph.checkpoint.mongodb._database.port import Document, Join, Role, Update, Updated

__all__ = ["BasePort"]


class BasePort:
    """What both ports do in the same way; each method is described at `Port`.

    Args:
        database: The database, of either API.
        collections: Its collections.
        unique: The fields of the unique index of each.
    """

    def __init__(
        self,
        database: Any,
        collections: Mapping[Role, Any],
        unique: Mapping[Role, Sequence[str]],
    ) -> None:
        self._database, self._unique = database, unique
        self._collections = self._configured(collections)
        self._joins = True
        self._limit: int | None = None
        self._clock = clock_of(database.client)

    # ------------------------------------------------------------ what waits

    async def _answer(self, answer: Any) -> Any:
        """Wait for what a method of the driver returned."""
        raise NotImplementedError

    async def _apart(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do work outside of the caller's context, which may be in a transaction."""
        raise NotImplementedError

    # ------------------------------------------------------------ reading

    async def find(
        self,
        role: Role,
        filter: Document,
        projection: Document,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        limit: int = 0,
        primary: bool = False,
    ) -> list[Document]:
        """See `Port`."""
        collection = self._primary(role) if primary else self._collections[role]
        arguments = self._find_arguments(filter, projection, sort, limit)
        return await self._all(collection.find(**arguments))

    async def find_within(
        self,
        role: Role,
        filter: Document,
        *,
        sort: Sequence[tuple[str, int]],
        most_bytes: int,
    ) -> tuple[list[Document], bool]:
        """See `Port`."""
        cursor = self._collections[role].find(**self._find_arguments(filter, {}, sort, 0))
        found: list[Document] = []
        while some := await self._answer(cursor.to_list(1)):
            found += some
            most_bytes -= len(some[0]["value"])
            if most_bytes < 0:
                await self._answer(cursor.close())
                return found, False
        return found, True

    async def find_joined(
        self,
        role: Role,
        filter: Document,
        join: Join,
        *,
        sort: Sequence[tuple[str, int]],
        primary: bool = False,
    ) -> tuple[Document, list[Document] | None] | None:
        """See `Port`."""
        if self._joins:
            collection = self._primary(role) if primary else self._collections[role]
            pipeline = driver.join_pipeline(filter, sort, join, self._collections[join.role].name)
            try:
                return driver.unjoin(await self._aggregate(collection, pipeline), join)
            except driver.CANNOT_JOIN as error:
                self._joins = driver.joins_after(error)
        found = await self.find(role, filter, {}, sort=sort, limit=1, primary=primary)
        return (found[0], None) if found else None

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """See `Port`."""
        return await self._aggregate(self._primary(role), pipeline)

    async def _aggregate(
        self, collection: Any, pipeline: Sequence[Mapping[str, Any]]
    ) -> list[Document]:
        return await self._all(await self._answer(collection.aggregate(list(pipeline))))

    async def _all(self, cursor: Any) -> list[Document]:
        # Batch by batch takes a fraction of the time of one by one. And a client's `timeoutMS`
        # holds for all batches together.
        found: list[Document] = await self._answer(cursor.to_list(None))
        return found

    def _configured(self, collections: Mapping[Role, Any]) -> dict[Role, Any]:
        return driver.with_plain_codec(collections)

    def _find_arguments(
        self,
        filter: Document,
        projection: Document,
        sort: Sequence[tuple[str, int]] | None,
        limit: int,
    ) -> dict[str, Any]:
        return driver.find_arguments(filter, projection, sort, limit)

    def _primary(self, role: Role) -> Any:
        # Also what a client reads by majority is there once it is acknowledged, by one member.
        return self._collections[role].with_options(
            read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
        )

    # ------------------------------------------------------------ writing

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """See `Port`."""
        at = await self.now()
        for document in documents:
            document.setdefault("_id", object_id(at))
        return await self._send(role, documents)

    async def _send(self, role: Role, documents: Sequence[Document]) -> list[int]:
        return await self._insert(role, documents)

    async def _insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        collection = self._collections[role]
        if len(documents) == 1:  # Spares the machinery of a bulk.
            try:
                await self._answer(collection.insert_one(documents[0]))
                return []
            except DuplicateKeyError:
                pass  # It does not tell whether the write concern failed, too: a bulk does.
        try:
            await self._answer(collection.insert_many(documents, ordered=False))
        except BulkWriteError as error:
            return driver.duplicates(self._unique[role], error)
        return []

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        if len(updates) == 1:
            return await self._update_one_by_one(role, updates)
        operations = driver.as_operations(updates)
        try:
            bulk = await self._answer(self._collections[role].bulk_write(operations))
        except BulkWriteError as error:
            return driver.stopped(self._unique[role], updates, error)
        for place, made in (bulk.upserted_ids or {}).items():
            if updates[place].required:  # Only an emulation takes its impossible id.
                await self.delete(role, {"_id": made})
        return driver.done(updates, bulk)

    async def _update_one_by_one(self, role: Role, updates: Sequence[Update]) -> Updated:
        collection = self._collections[role]
        inserted = missed = 0
        for one in updates:
            if one.required:
                if not await self._answer(collection.count_documents(one.filter)):
                    return Updated(inserted, stopped=True, missed=missed)
                continue
            done = await self._answer(
                collection.update_one(one.filter, one.update, upsert=one.upsert)
            )
            inserted += done.upserted_id is not None
            missed += done.upserted_id is None and not done.matched_count
        return Updated(inserted, missed=missed)

    async def update_many(self, role: Role, filter: Document, update: Document) -> int:
        """See `Port`."""
        done = await self._answer(self._collections[role].update_many(filter, update))
        matched: int = done.matched_count
        return matched

    async def delete(self, role: Role, filter: Document) -> int:
        """See `Port`."""
        done = await self._answer(self._collections[role].delete_many(filter))
        deleted: int = done.deleted_count
        return deleted

    # ------------------------------------------------------------ what the server tells

    async def now(self) -> datetime:
        """See `Port`."""
        if known := self._clock.now():
            return known
        asked = self._clock.asking()
        return self._clock.learn(asked, await self._apart(self._ask_time(get_timeout())))

    async def _ask_time(self, seconds: float | None) -> datetime | None:
        try:
            with pymongo.timeout(seconds):
                hello = await self._answer(self._database.command("hello"))
        except OperationFailure:
            return None
        answer: datetime | None = hello.get("localTime")
        return answer

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        if largest <= driver.UNASKED_BYTES:
            return driver.UNASKED_BYTES
        if self._limit is None:
            hello = await self._answer(self._database.command("hello"))
            self._limit = int(hello["maxBsonObjectSize"])
        return self._limit

    # ------------------------------------------------------------ indexes

    async def indexes(self, role: Role) -> dict[str, Document]:
        """See `Port`."""
        return dict(await self._answer(self._collections[role].index_information()))

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        """See `Port`."""
        await self._answer(self._collections[role].create_indexes(list(models)))

    async def drop_index(self, role: Role, name: str) -> None:
        """See `Port`."""
        await self._answer(self._collections[role].drop_index(name))

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        """See `Port`."""
        command = driver.ttl_command(self._collections[role].name, name, seconds)
        await self._answer(self._database.command(command))

    def name(self, role: Role) -> str:
        """See `Port`."""
        name: str = self._collections[role].full_name
        return name
