"""Inserts that several calls ask for at the same moment, sent as one command.

A command costs the client about the same processor time whatever it carries, and many
conversations at once are limited by just that. Each call still waits until its own
documents are stored. Every insert may be repeated: a key that is taken is no error.
"""

from __future__ import annotations

import asyncio
import copy
import math
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pymongo.errors import ConnectionFailure

from langgraph.checkpoint.mongodb._documents import Document
from langgraph.checkpoint.mongodb._port import Role

try:
    from pymongo._csot import get_timeout
except ImportError:  # The driver tells it nowhere else.

    def get_timeout() -> float | None:
        """What a driver knows that has no time limit for the calls of a context."""
        return None


__all__ = ["AsyncGathering", "SyncGathering", "get_timeout"]

_Sent = TypeVar("_Sent")

# What has a larger payload goes by itself: others should not wait for it.
_BYTES = 64 * 1024

# A server that has once answered faster is near: there the processor is what limits many threads,
# not the way, and one lets the command of another end, for so long, while more may gather.
_NEAR_S = 0.002
_PATIENCE_S = 0.003

# A call whose documents another one sends does so itself when that takes as long.
_WAIT_S = 10.0


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
    if get_timeout() is not None:
        return True  # A `pymongo.timeout` of one call is not that of another.
    payloads = [value for one in documents for value in one.values() if type(value) is bytes]
    return sum(map(len, payloads)) > _BYTES


def _close(opened: dict[Role, tuple[_Batch, _Sent]], role: Role, batch: _Batch) -> None:
    """Let nothing more be added to a batch, unless it is closed already."""
    if role in opened and opened[role][0] is batch:
        del opened[role]


class SyncGathering:
    """Gathers the inserts of threads.

    To a near server one command for a collection is under way at a time: what comes meanwhile
    goes with the next. No thread waits long for another's command before it sends its own.

    Args:
        insert: Inserts documents; returns the places of those whose key was taken.
    """

    def __init__(self, insert: Callable[[Role, Sequence[Document]], list[int]]) -> None:
        self._insert = insert
        self._lock = threading.Lock()
        self._fastest_s = math.inf
        self._open: dict[Role, tuple[_Batch, threading.Event]] = {}
        self._under_way: dict[Role, threading.Lock] = {
            role: threading.Lock() for role in ("checkpoints", "writes", "values")
        }

    def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """Insert documents, with those of other threads; see `Port.insert`."""
        under_way = self._under_way[role]
        # Those who wait already go first.
        if role not in self._open and under_way.acquire(blocking=False):
            try:
                return self._timed_insert(role, documents)
            finally:
                under_way.release()
        if self._fastest_s >= _NEAR_S or _goes_alone(documents):
            return self._insert(role, documents)
        return self._insert_with_others(role, documents)

    def _timed_insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        began = time.perf_counter()
        taken = self._insert(role, documents)
        self._fastest_s = min(self._fastest_s, time.perf_counter() - began)
        return taken

    def _insert_with_others(self, role: Role, documents: Sequence[Document]) -> list[int]:
        with self._lock:
            # One that is sent is still open where an interrupt ended its sender.
            leads = role not in self._open or self._open[role][1].is_set()
            if leads:
                self._open[role] = _Batch(), threading.Event()
            batch, sent = self._open[role]
            own = batch.add(documents)
        if leads:
            self._send(role, batch, sent, own)
        elif not sent.wait(_WAIT_S):
            with self._lock:
                # Whoever was to send it may be gone: no one else is to wait for it.
                _close(self._open, role, batch)
        if batch.taken is None:
            # It took too long, or failed: for what the others sent, or for all, who learn it here.
            return self._insert(role, documents)
        return _of_own(batch.taken, own)

    def _send(self, role: Role, batch: _Batch, sent: threading.Event, own: range) -> None:
        under_way, waited = self._under_way[role], False
        try:
            waited = under_way.acquire(timeout=_PATIENCE_S)
            with self._lock:
                _close(self._open, role, batch)
            batch.taken = self._insert(role, batch.documents)
        except Exception as error:
            if batch.is_all(own) or isinstance(error, ConnectionFailure):
                raise
        finally:
            if waited:
                under_way.release()
            sent.set()


class AsyncGathering:
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
            task = asyncio.Task(self._send(role, batch))
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
