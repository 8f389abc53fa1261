"""The port of the sync saver: its coroutines never suspend."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.base import BasePort
from langgraph.checkpoint.mongodb._database.port import run

__all__ = ["SyncPort"]

T = TypeVar("T")


class SyncPort(BasePort):
    """Port over a `pymongo.MongoClient`."""

    async def _answer(self, answer: Any) -> Any:
        return answer

    async def _apart(self, work: Coroutine[Any, Any, Any]) -> Any:
        return contextvars.Context().run(run, work)

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
