"""A server for inserts that go together: it stores by key, and tells what it was sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout.keys import Document

ROLES: tuple[Role, ...] = ("checkpoints", "writes", "values")


def document(key: int | str, **fields: Any) -> Document:
    return {"key": key, **fields}


class Server:
    """Stores documents by their keys, and records the commands.

    Attributes:
        commands: The keys of each insert, with the collection.
        stored: What is stored, by collection and key.
        error: Raised instead of storing anything.
        refuses: The key that fails a command which carries it: the others are stored.
    """

    def __init__(self) -> None:
        self.commands: list[tuple[Role, list[Any]]] = []
        self.stored: dict[tuple[Role, Any], Document] = {}
        self.error: Exception | None = None
        self.refuses: Any = None
        self._lock = threading.Lock()

    def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        keys = [one["key"] for one in documents]
        with self._lock:
            self.commands.append((role, keys))
            if self.error is not None:
                raise self.error
            taken = []
            for place, one in enumerate(documents):
                if one["key"] == self.refuses:
                    continue
                if self.stored.setdefault((role, one["key"]), one) is not one:
                    taken.append(place)
            if self.refuses in keys:
                raise OperationFailure("refused")
            return taken

    async def insert_async(self, role: Role, documents: Sequence[Document]) -> list[int]:
        await asyncio.sleep(0)
        return self.insert(role, documents)

    @property
    def sent(self) -> list[list[Any]]:
        """The keys of each insert."""
        return [keys for _, keys in self.commands]


def is_right(
    server: Server, before: set[Any], calls: Sequence[tuple[Role, list[Document]]], answers: Any
) -> bool:
    """Whether each call was told exactly which of its own documents are not what is stored."""
    told = [
        [place for place, one in enumerate(documents) if server.stored[role, one["key"]] is not one]
        for role, documents in calls
    ]
    keys = {(role, one["key"]) for role, documents in calls for one in documents}
    return told == answers and keys | before == server.stored.keys()
