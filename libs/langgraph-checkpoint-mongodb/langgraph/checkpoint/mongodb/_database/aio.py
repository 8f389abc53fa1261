"""The port of the async saver: it awaits the driver, and keeps the event loop free."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.base import BasePort
from langgraph.checkpoint.mongodb._database.forks import ForkSafeLock
from langgraph.checkpoint.mongodb._database.gathering import Gathering
from langgraph.checkpoint.mongodb._database.port import Document, Role

__all__ = ["AsyncPort"]

T = TypeVar("T")

# What serializes for longer than a tick of the event loop should take, about a
# millisecond, is worth the tenth of one that a thread costs.
_OFFLOAD_BYTES = 256 * 1024

_POLL_S = 0.001


class AsyncPort(BasePort):
    """Port over a `pymongo.AsyncMongoClient`.

    Attributes:
        loop: The event loop it is used in, once known.
        ready: Whether the indexes have been seen to.
        setting_up: Held while they are.
    """

    def __init__(
        self,
        database: Any,
        collections: Mapping[Role, Any],
        unique: Mapping[Role, Sequence[str]],
    ) -> None:
        super().__init__(database, collections, unique)
        self._gathering = Gathering(self._insert)
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

    async def _answer(self, answer: Any) -> Any:
        return await answer

    async def _apart(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.create_task(work, context=contextvars.Context())

    async def _send(self, role: Role, documents: Sequence[Document]) -> list[int]:
        return await self._gathering.insert(role, documents)

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
