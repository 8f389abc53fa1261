"""Ports over mongomock's clients, which imitate a server: tests of graphs use them.

They have no `hello`, no joins of the form that is used here, no bulk that stops at an update
which must fail, and no options of a collection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.aio import AsyncPort
from langgraph.checkpoint.mongodb._database.base import BasePort
from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._database.port import Document, Role, Update, Updated
from langgraph.checkpoint.mongodb._database.sync import SyncPort

__all__ = ["AsyncMockedPort", "MockedPort"]


class _Mocked(BasePort):
    """What is done otherwise for want of a server."""

    def __init__(
        self,
        database: Any,
        collections: Mapping[Role, Any],
        unique: Mapping[Role, Sequence[str]],
    ) -> None:
        super().__init__(database, collections, unique)
        self._joins = False

    def _configured(self, collections: Mapping[Role, Any]) -> dict[Role, Any]:
        return dict(collections)

    def _primary(self, role: Role) -> Any:
        return self._collections[role]

    def _find_arguments(
        self,
        filter: Document,
        projection: Document,
        sort: Sequence[tuple[str, int]] | None,
        limit: int,
    ) -> dict[str, Any]:
        arguments = driver.find_arguments(filter, projection, sort, limit)
        return {**arguments, "limit": limit} if limit else arguments

    async def find_within(
        self,
        role: Role,
        filter: Document,
        *,
        sort: Sequence[tuple[str, int]],
        most_bytes: int,
    ) -> tuple[list[Document], bool]:
        """See `Port`."""
        found = await self.find(role, filter, {}, sort=sort)
        for count, document in enumerate(found, 1):
            most_bytes -= len(document["value"])
            if most_bytes < 0:
                return found[:count], False
        return found, True

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """See `Port`."""
        return await self._send(role, documents)

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """See `Port`."""
        return await self._update_one_by_one(role, updates)

    async def now(self) -> datetime:
        """See `Port`."""
        return wall_time()

    async def document_limit(self, largest: int) -> int:
        """See `Port`."""
        unasked = largest <= driver.UNASKED_BYTES
        return driver.UNASKED_BYTES if unasked else driver.USUAL_LIMIT


class MockedPort(_Mocked, SyncPort):
    """Port over a `mongomock.MongoClient`."""

    async def _all(self, cursor: Any) -> list[Document]:
        return list(cursor)


class AsyncMockedPort(_Mocked, AsyncPort):
    """Port over a `mongomock_motor.AsyncMongoMockClient`."""

    async def _answer(self, answer: Any) -> Any:
        return await answer if isinstance(answer, Awaitable) else answer
