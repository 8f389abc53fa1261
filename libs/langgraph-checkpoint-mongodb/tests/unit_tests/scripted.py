"""A port that answers from a script and keeps what it was asked: operations without a server."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from pymongo.operations import IndexModel

from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._database.port import Join, Port, Role, Update, Updated
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._operations.memory import Memory

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """One thing that an operation asked of the database."""

    method: str
    role: Role
    given: Any
    options: dict[str, Any] = field(default_factory=dict)


class ScriptedPort(Port):
    """Answers each request with the next line of a script.

    Args:
        *script: Method and answer, in order; an exception is raised. Anything that is asked
            out of order, or beyond the end, fails the test.
        limit: The server's document limit, in bytes.
    """

    def __init__(self, *script: tuple[str, Any], limit: int = 16 * 1024 * 1024) -> None:
        self.memory = Memory()
        self.asked: list[Asked] = []
        self._script = deque(script)
        self._limit = limit

    @property
    def methods(self) -> list[str]:
        """What was asked, as `role.method`."""
        return [f"{one.role}.{one.method}" for one in self.asked]

    def play_on(self, *script: tuple[str, Any]) -> None:
        """Forget what was asked, and go on with another script."""
        assert not self._script, f"not asked for: {list(self._script)}"
        self.asked.clear()
        self._script.extend(script)

    def _answer(self, method: str, role: Role, given: Any, **options: Any) -> Any:
        self.asked.append(Asked(method, role, given, options))
        assert self._script, f"beyond the script: {self.asked[-1]}"
        expected, answer = self._script.popleft()
        assert method == expected, f"{self.asked[-1]} instead of {expected}"
        if isinstance(answer, BaseException):
            raise answer
        return answer

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
        options = {"projection": projection, "sort": sort, "limit": limit, "primary": primary}
        found: list[Document] = self._answer("find", role, filter, **options)
        return found

    async def find_within(
        self, role: Role, filter: Document, *, sort: Any, most_bytes: int
    ) -> tuple[list[Document], bool]:
        found = self._answer("find_within", role, filter, sort=sort, most_bytes=most_bytes)
        return found if isinstance(found, tuple) else (found, True)

    async def find_joined(
        self,
        role: Role,
        filter: Document,
        join: Join,
        *,
        sort: Sequence[tuple[str, int]],
        primary: bool = False,
    ) -> tuple[Document, list[Document] | None] | None:
        options = {"join": join, "sort": sort, "primary": primary}
        found: tuple[Document, list[Document] | None] | None
        found = self._answer("find_joined", role, filter, **options)
        return found

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        taken: list[int] = self._answer("insert", role, list(documents))
        return taken

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        updated: Updated = self._answer("update", role, list(updates))
        return updated

    async def update_many(self, role: Role, filter: Document, update: Document) -> int:
        matched: int = self._answer("update_many", role, filter, update=update)
        return matched

    async def delete(self, role: Role, filter: Document) -> int:
        deleted: int = self._answer("delete", role, filter)
        return deleted

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        found: list[Document] = self._answer("aggregate", role, list(pipeline))
        return found

    async def now(self) -> datetime:
        return wall_time()

    async def indexes(self, role: Role) -> dict[str, Document]:
        indexes: dict[str, Document] = self._answer("indexes", role, None)
        return indexes

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        self._answer("create_indexes", role, [model.document for model in models])

    async def drop_index(self, role: Role, name: str) -> None:
        self._answer("drop_index", role, name)

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        self._answer("expire_after", role, name, seconds=seconds)

    async def document_limit(self, largest: int) -> int:
        return self._limit

    async def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        return [await one for one in work]

    async def offload(
        self, size: int | Callable[[], int], function: Callable[..., T], *args: Any
    ) -> T:
        return function(*args)

    async def wait(self, event: threading.Event) -> None:
        assert event.wait(1), "nobody sets the event"

    def name(self, role: Role) -> str:
        return f"db.{role}"
