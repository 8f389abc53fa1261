"""How the tool reads: by streams in the order of an index, and without making objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.collection import Collection

from langgraph.checkpoint.mongodb._database.driver import with_plain_codec
from langgraph.checkpoint.mongodb._database.port import Role, run
from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.serialized import opaque
from langgraph.checkpoint.mongodb._operations.arguments import checked
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb.saver import MongoDBSaver
from langgraph.checkpoint.mongodb.utils import loads_metadata

__all__ = ["DOCUMENT_BYTES", "ROLES", "TOLD", "LookingCodec", "Progress", "Store", "made_at"]

ROLES: tuple[Role, ...] = tuple(INDEXES)
"""The collections."""

Progress = Callable[[int], None]
"""Called with how many more documents, or threads, are done."""

DOCUMENT_BYTES: Document = {"$bsonSize": "$$ROOT"}
"""The expression for what a document takes in the server, in bytes."""

TOLD = 100
"""Threads that could not be done are told one by one up to this number."""

# Documents that come at a time, when they are small.
_BATCH = 1000


class LookingCodec(Codec):
    """Deserializes without making objects of classes, as far as the serializer is LangGraph's."""

    def loads(self, typed: Typed) -> Any:
        """Deserialize one value; an object in it stays what it is made from."""
        if not self.may_be_cut():
            return super().loads(typed)
        type_, data = self.in_clear(typed)
        if type_ == "msgpack":
            return opaque(data)
        if type_ == "json":
            return json.loads(data)
        # What a pickle holds is only known to whoever runs it.
        return data if type_ == "pickle" else super().loads(typed)

    def loads_in_clear(self, data: bytes) -> Any:
        """Deserialize bytes that were joined."""
        return opaque(data)

    def loads_metadata(self, document: Mapping[str, Any]) -> Any:
        """Deserialize the metadata of a checkpoint document."""
        stored = document["metadata"]
        if isinstance(stored, bytes):
            return self.loads((document["type"], stored))
        return loads_metadata(_Leaves(self), stored)


class _Leaves:
    """A codec as the serializer of metadata's leaves."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def dumps_typed(self, obj: Any) -> Typed:
        return self._codec.dumps(obj)

    def loads_typed(self, data: Typed) -> Any:
        return self._codec.loads(data)


class Store:
    """A saver's collections, to be read from end to end.

    Args:
        saver: The saver.

    Attributes:
        saver: The same.
        context: What an operation works with that only looks.
    """

    def __init__(self, saver: MongoDBSaver) -> None:
        self.saver = saver
        self.context = Context(saver._port, saver._memory, LookingCodec(saver.serde), saver.ttl)
        collections: Mapping[Role, Any] = {
            "checkpoints": saver.checkpoint_collection,
            "writes": saver.writes_collection,
            "values": saver.channel_values_collection,
        }
        self._collections = with_plain_codec(collections)

    def collection(self, role: Role) -> Collection[Document]:
        """One of the collections; it reads plain dicts."""
        found: Collection[Document] = self._collections[role]
        return found

    def now(self) -> datetime:
        """The server's time."""
        return run(self.context.io.now())

    def chosen(self, threads: Iterable[str] | None, after: str | None = None) -> Iterator[str]:
        """Threads that were asked for, or all that have checkpoints.

        Raises:
            ValueError: One of them is not a string.
        """
        if threads is None:
            return self.threads(("checkpoints",), after)
        if isinstance(threads, str):
            raise ValueError("Invalid threads: expected several strings, got one.")
        return (checked(thread_id, "thread_id") for thread_id in threads)

    def threads(self, roles: Sequence[Role], after: str | None = None) -> Iterator[str]:
        """The threads of collections in their order, found one after another in the index.

        Args:
            roles: The collections.
            after: Begin after this one.
        """
        # Each collection is asked again only when its thread was passed.
        nexts: dict[Role, str | None] = {role: self._next(role, after) for role in roles}
        while found := [one for one in nexts.values() if one is not None]:
            first = min(found)
            yield first
            for role in roles:
                if nexts[role] == first:
                    nexts[role] = self._next(role, first)

    def _next(self, role: Role, after: str | None) -> str | None:
        query = {"thread_id": {"$gte": ""} if after is None else {"$gt": after}}
        fields = {"_id": 0, "thread_id": 1}
        order = [("thread_id", 1)]
        found = self.collection(role).find_one(query, fields, sort=order)
        return None if found is None else str(found["thread_id"])

    def stream(
        self,
        role: Role,
        fields: Document,
        thread_id: str | None = None,
        more: Document | None = None,
    ) -> Iterator[Document]:
        """Documents in the order of their unique index, of one thread or of all.

        Args:
            role: The collection.
            fields: What is read of each, expressions among it.
            thread_id: The thread; None for all.
            more: A further condition.
        """
        pipeline: list[Document] = [
            {"$sort": dict(INDEXES[role][0].keys)},
            {"$project": fields},
        ]
        query = {**({} if thread_id is None else {"thread_id": thread_id}), **(more or {})}
        if query:
            pipeline.insert(0, {"$match": query})
        with self.collection(role).aggregate(
            pipeline, allowDiskUse=True, batchSize=_BATCH
        ) as cursor:
            yield from cursor

    def statistics(self, role: Role) -> Document:
        """What the server knows of a collection: count, size, storageSize, indexSizes."""
        pipeline: list[Document] = [{"$collStats": {"storageStats": {}}}]
        if self.collection(role).name not in self.saver.db.list_collection_names():
            return {}
        found = [*self.collection(role).aggregate(pipeline)]
        # A sharded collection answers once for each shard.
        stats = [one["storageStats"] for one in found]
        totals: Document = {
            name: sum(one.get(name, 0) for one in stats)
            for name in ("count", "size", "storageSize", "totalIndexSize")
        }
        sizes: dict[str, int] = {}
        for one in stats:
            for name, size in one.get("indexSizes", {}).items():
                sizes[name] = sizes.get(name, 0) + size
        return {**totals, "indexSizes": sizes}


def made_at(document: Mapping[str, Any]) -> datetime | None:
    """When a document was written, by its `_id`; None where that does not tell."""
    id_ = document.get("_id")
    return id_.generation_time.astimezone(UTC) if isinstance(id_, ObjectId) else None
