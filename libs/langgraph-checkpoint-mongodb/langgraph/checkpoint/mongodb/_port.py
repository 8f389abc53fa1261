"""The only place that talks to the driver: one Protocol, a sync and an async port.

Operations are coroutines over a port. The sync port's methods never suspend, so
`run` finishes such a coroutine in one step, without an event loop or a thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, MongoClient, ReadPreference, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError
from pymongo.operations import IndexModel

from langgraph.checkpoint.mongodb._codec import Codec
from langgraph.checkpoint.mongodb._documents import Document
from langgraph.checkpoint.mongodb._memory import Memory

__all__ = ["AsyncPort", "Call", "Port", "Role", "SyncPort", "Update", "Updated", "run"]

Role = Literal["checkpoints", "writes", "values"]
T = TypeVar("T")

_DUPLICATE_KEY = 11000

# How a server refuses the insert of a required update: a taken key, an impossible id.
_REFUSED = frozenset({_DUPLICATE_KEY, 53})

# Below this the server's own limit needs no asking: none is known to be smaller.
_UNASKED_BYTES = 1024 * 1024

# Clients that imitate a server have no `hello` to ask.
_USUAL_LIMIT = 16 * 1024 * 1024

# What serializes for longer than a tick of the event loop should take, about a
# millisecond, is worth the tenth of one that a thread costs.
_OFFLOAD_BYTES = 256 * 1024

_WAIT_S = 10.0
_POLL_S = 0.001

# A find that is read to its end comes in as few batches as the server allows.
_BATCH = 100_000


class Update(NamedTuple):
    """One update of a bulk: of the one document that `query` identifies.

    A `required` one changes nothing: the bulk stops at it unless its document is there.
    What it would insert must be refused.
    """

    query: Document
    update: Document
    upsert: bool = False
    required: bool = False


class Updated(NamedTuple):
    """What a bulk of updates did."""

    inserted: int
    stopped: bool = False


class Port(Protocol):
    """What an operation may ask of the database."""

    memory: Memory

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
        """Read documents.

        Args:
            role: The collection.
            query: The query.
            fields: The projection.
            sort: The order.
            most: With a number, at most that many, and only as many as the server
                sends in one batch; all of them with 0.
            fresh: Ask the primary, whatever read preference the client has.
        """
        ...

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """Insert documents; return the places of those whose key was already taken."""
        ...

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """Apply updates in their order, in one command where that can be.

        Returns:
            How many documents were inserted, and whether a required one was not there.
        """
        ...

    async def update_many(self, role: Role, query: Document, update: Document) -> int:
        """Update all documents of a query; return how many it matched."""
        ...

    async def delete(self, role: Role, query: Document) -> int:
        """Delete all documents of a query; return how many."""
        ...

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """Run an aggregation on the primary and read its result to the end."""
        ...

    async def indexes(self, role: Role) -> dict[str, Document]:
        """The indexes of a collection by name, none when it does not exist."""
        ...

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        """Create indexes in one command."""
        ...

    async def drop_index(self, role: Role, name: str) -> None:
        """Drop one index."""
        ...

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        """Change the TTL of an existing index."""
        ...

    async def document_limit(self, largest: int) -> int:
        """The server's `maxBsonObjectSize`, asked once, and only if a document may pass it."""
        ...

    async def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Do independent reads, beside each other where that costs nothing."""
        ...

    async def offload(
        self, size: int | Callable[[], int], function: Callable[..., T], *args: Any
    ) -> T:
        """Compute; where an event loop would be blocked for long, in a thread.

        Args:
            size: How many bytes are computed on, or what tells it where it matters.
            function: The computation.
            *args: Its arguments.
        """
        ...

    async def wait(self, event: threading.Event) -> None:
        """Wait for another call of this process, a few seconds at most."""
        ...

    def name(self, role: Role) -> str:
        """The full name of a collection, for messages."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What one call of a saver works with.

    Attributes:
        io: The port.
        codec: The serializer of this moment.
        ttl: Seconds that documents live, None for ever.
    """

    io: Port
    codec: Codec
    ttl: int | None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine over a sync port.

    Raises:
        RuntimeError: It suspended, which an operation over a sync port never does.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RuntimeError("An operation over a sync port suspended.")


def _duplicates(error: BulkWriteError) -> list[int]:
    """The places of the documents whose key was taken; any other failure is raised."""
    failed = error.details.get("writeErrors", [])
    if error.details.get("writeConcernErrors") or any(
        one.get("code") != _DUPLICATE_KEY for one in failed
    ):
        raise error
    return [one["index"] for one in failed]


def _with_plain_codec(collections: Mapping[Role, Any]) -> dict[Role, Any]:
    """Collections that read plain dicts, whatever document class the client is set to."""
    plain: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return {role: one.with_options(codec_options=plain) for role, one in collections.items()}


def _as_operations(updates: Sequence[Update]) -> list[UpdateOne]:
    return [UpdateOne(one.query, one.update, upsert=one.upsert) for one in updates]


def _stopped(updates: Sequence[Update], error: BulkWriteError) -> Updated:
    """What a bulk did that stopped at a required update; any other failure is raised."""
    failed = error.details.get("writeErrors", [])
    if error.details.get("writeConcernErrors") or not all(
        updates[one["index"]].required and one["code"] in _REFUSED for one in failed
    ):
        raise error
    return Updated(error.details["nUpserted"], stopped=True)


def _ttl_command(collection: str, name: str, seconds: int) -> Document:
    index = {"name": name, "expireAfterSeconds": seconds}
    return {"collMod": collection, "index": index}


def _find_arguments(
    query: Document,
    fields: Document,
    sort: Sequence[tuple[str, int]] | None,
    most: int,
    native: bool,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"filter": query, "projection": fields}
    if sort:
        arguments["sort"] = list(sort)
    if most:
        # A negative limit is a single batch: nothing is held open on the server.
        arguments["limit"] = -most if native else most
        arguments["batch_size"] = most
    else:
        arguments["batch_size"] = _BATCH
    return arguments


class SyncPort:
    """Port over a `pymongo.MongoClient`, or a client that behaves like one (mongomock)."""

    def __init__(
        self, database: Database[Document], collections: Mapping[Role, Collection[Document]]
    ) -> None:
        self.memory = Memory()
        self._database = database
        self._native = isinstance(database.client, MongoClient)
        self._collections = _with_plain_codec(collections) if self._native else dict(collections)
        self._limit: int | None = None

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
        return list(collection.find(**_find_arguments(query, fields, sort, most, self._native)))

    def _primary(self, role: Role) -> Collection[Document]:
        collection = self._collections[role]
        if not self._native:
            return collection
        return collection.with_options(read_preference=ReadPreference.PRIMARY)

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """See `Port`."""
        try:
            self._collections[role].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return _duplicates(error)
        return []

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        collection = self._collections[role]
        if len(updates) > 1 and self._native:
            try:
                bulk = collection.bulk_write(_as_operations(updates))
            except BulkWriteError as error:
                return _stopped(updates, error)
            return Updated(bulk.upserted_count)
        inserted = 0
        for one in updates:
            if one.required:
                if not collection.count_documents(one.query):
                    return Updated(inserted, stopped=True)
                continue
            done = collection.update_one(one.query, one.update, upsert=one.upsert)
            inserted += done.upserted_id is not None
        return Updated(inserted)

    async def update_many(self, role: Role, query: Document, update: Document) -> int:
        """See `Port`."""
        return self._collections[role].update_many(query, update).matched_count

    async def delete(self, role: Role, query: Document) -> int:
        """See `Port`."""
        return self._collections[role].delete_many(query).deleted_count

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """See `Port`."""
        return list(self._primary(role).aggregate(list(pipeline)))

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
        self._database.command(_ttl_command(self._collections[role].name, name, seconds))

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        if largest <= _UNASKED_BYTES:
            return _UNASKED_BYTES
        if not self._native:
            return _USUAL_LIMIT
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
        event.wait(_WAIT_S)

    def name(self, role: Role) -> str:
        """See `Port`."""
        return self._collections[role].full_name


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
        self._collections = _with_plain_codec(collections) if self._native else dict(collections)
        self._limit: int | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ready = False
        self.setting_up = asyncio.Lock()

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
        cursor = collection.find(**_find_arguments(query, fields, sort, most, self._native))
        return await cursor.to_list(None)

    def _primary(self, role: Role) -> AsyncCollection[Document]:
        collection = self._collections[role]
        if not self._native:
            return collection
        return collection.with_options(read_preference=ReadPreference.PRIMARY)

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """See `Port`."""
        try:
            await self._collections[role].insert_many(documents, ordered=False)
        except BulkWriteError as error:
            return _duplicates(error)
        return []

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        collection = self._collections[role]
        if len(updates) > 1 and self._native:
            try:
                bulk = await collection.bulk_write(_as_operations(updates))
            except BulkWriteError as error:
                return _stopped(updates, error)
            return Updated(bulk.upserted_count)
        inserted = 0
        for one in updates:
            if one.required:
                if not await collection.count_documents(one.query):
                    return Updated(inserted, stopped=True)
                continue
            done = await collection.update_one(one.query, one.update, upsert=one.upsert)
            inserted += done.upserted_id is not None
        return Updated(inserted)

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
        await self._database.command(_ttl_command(self._collections[role].name, name, seconds))

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        if largest <= _UNASKED_BYTES:
            return _UNASKED_BYTES
        if not self._native:
            return _USUAL_LIMIT
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
        deadline = time.monotonic() + _WAIT_S
        while not event.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    def name(self, role: Role) -> str:
        """See `Port`."""
        return self._collections[role].full_name
