"""Inserts that several tasks ask for at the same moment, sent as one command.

A command costs the client about the same processor time whatever it carries, and many
conversations at once are limited by just that. Each call still waits until its own
documents are stored. Every insert may be repeated: a key that is taken is no error.

What a caller's context carries (a bound session with its transaction, a time limit, a
tracing span) is the caller's alone: such a call sends its documents by itself, and the
common command runs in a context that is nobody's.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pymongo.errors import ConnectionFailure

from langgraph.checkpoint.mongodb._database.port import Document, Role

try:
    from pymongo._csot import get_timeout
except ImportError:  # The driver tells it nowhere else.

    def get_timeout() -> float | None:
        """What a driver knows that has no time limit for the calls of a context."""
        return None


try:
    from pymongo.asynchronous.client_session import _SESSION
except ImportError:
    # A driver that cannot bind a session to a context.
    _SESSION = contextvars.ContextVar("SESSION", default=None)

__all__ = ["Gathering", "get_timeout"]

_Sent = TypeVar("_Sent")

# A larger payload is sent by itself: others should not wait for it.
_BYTES = 64 * 1024


class _Batch:
    """Documents that go together, and the places of those whose key was taken."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.taken: list[int] | None = None

    def add(self, documents: Sequence[Document]) -> range:
        """Add documents; return their places."""
        start = len(self.documents)
        self.documents += documents
        return range(start, len(self.documents))

    def is_all(self, own: range) -> bool:
        """Whether there are no others than these."""
        return len(own) == len(self.documents)


def _of_own(taken: Sequence[int], own: range) -> list[int]:
    return [place - own.start for place in taken if place in own]


def _goes_alone(documents: Sequence[Document]) -> bool:
    if get_timeout() is not None or _SESSION.get(None) is not None:
        return True
    payloads = [value for one in documents for value in one.values() if type(value) is bytes]
    return sum(map(len, payloads)) > _BYTES


def _close(opened: dict[Role, tuple[_Batch, _Sent]], role: Role, batch: _Batch) -> None:
    """Let nothing more be added to a batch, unless it is closed already."""
    if role in opened and opened[role][0] is batch:
        del opened[role]


class Gathering:
    """Gathers the inserts of tasks that are ready in the same round of the event loop.

    Args:
        insert: Inserts documents; returns the places of those whose key was taken.
    """

    def __init__(
        self, insert: Callable[[Role, Sequence[Document]], Coroutine[Any, Any, list[int]]]
    ) -> None:
        self._insert = insert
        self._open: dict[Role, tuple[_Batch, asyncio.Task[list[int]]]] = {}

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """Insert documents, with those of other tasks; see `Port.insert`."""
        if _goes_alone(documents):
            return await self._insert(role, documents)
        # One that is done is still open where its task was cancelled before it began.
        if role not in self._open or self._open[role][1].done():
            batch = _Batch()
            # Not by `create_task`: in a loop with eager tasks it would begin right here.
            task = asyncio.Task(self._send(role, batch), context=contextvars.Context())
            # Also when every task that waits for it has been cancelled, its error is looked at.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._open[role] = batch, task
        batch, sent = self._open[role]
        own = batch.add(documents)
        try:
            # The others' documents go also when this task is cancelled.
            return _of_own(await asyncio.shield(sent), own)
        except asyncio.CancelledError:
            if batch.is_all(own):
                _close(self._open, role, batch)
                sent.cancel()
            raise
        except Exception as error:
            if batch.is_all(own):
                raise
            if isinstance(error, ConnectionFailure):
                # Each has its own, to add notes and a traceback to.
                raise copy.copy(error) from error
        # What the others sent may be at fault.
        return await self._insert(role, documents)

    async def _send(self, role: Role, batch: _Batch) -> list[int]:
        del self._open[role]
        return await self._insert(role, batch.documents)
