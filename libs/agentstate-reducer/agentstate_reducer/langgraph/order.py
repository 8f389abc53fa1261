"""One save of a thread after another, from planning until what it handed over is remembered.

A graph and its subgraphs save beside one another and may hold the same messages. A save that plans
while another has not stored its outbox yet would hand the same messages over a second time.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

LONGEST_WAIT = 30.0
"""Seconds after which a save goes on beside the other: rather twice than never."""

_inside: ContextVar[frozenset[int]] = ContextVar("agentstate_reducer_inside", default=frozenset())


class Order:
    """The locks of a saver's threads, each as long as a save holds it or waits for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sync: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._async: weakref.WeakValueDictionary[tuple[str, int], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    @asynccontextmanager
    async def hold_sync(self, thread: str) -> AsyncGenerator[None, None]:
        """Hold a thread in sync code; a nested save of the same thread comes through.

        Args:
            thread: The thread's id.
        """
        with self._guard:
            lock = self._sync.get(thread)
            if lock is None:
                lock = self._sync[thread] = threading.RLock()
        held = lock.acquire(timeout=LONGEST_WAIT)
        try:
            yield
        finally:
            if held:
                lock.release()

    @asynccontextmanager
    async def hold_async(self, thread: str) -> AsyncGenerator[None, None]:
        """Hold a thread in async code; a nested save of the same thread comes through.

        Args:
            thread: The thread's id.
        """
        key = (thread, id(asyncio.get_running_loop()))
        with self._guard:
            lock = self._async.get(key)
            if lock is None:
                lock = self._async[key] = asyncio.Lock()
        if id(lock) in _inside.get():
            yield
            return
        try:
            await asyncio.wait_for(lock.acquire(), LONGEST_WAIT)
            held = True
        except TimeoutError:
            held = False
        token = _inside.set(_inside.get() | {id(lock)})
        try:
            yield
        finally:
            _inside.reset(token)
            if held:
                lock.release()
