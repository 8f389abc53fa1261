"""Calling functions of the application, sync or async, from sync and from async code.

What has to happen in an order is written once, as `async def` functions that take a `Call`. Async
code awaits them with `call_aside`; sync code runs them with `run_now` and `call_here`, which never
suspends.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

T = TypeVar("T")


class Call(Protocol):
    """Calls a function and returns its result, awaited if need be."""

    async def __call__(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """Call `function(*args)`."""


async def call_here(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call a function in this thread; run what it returns to completion if that is awaitable.

    Args:
        function: Sync or async.
        *args: Its arguments.

    Returns:
        Its result.
    """
    result = function(*args)
    return run_to_completion(result) if inspect.isawaitable(result) else result


async def call_aside(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call a function without holding up the event loop: an async one on it, a sync one beside it.

    Args:
        function: Sync or async.
        *args: Its arguments.

    Returns:
        Its result.
    """
    if is_async(function):
        return await function(*args)
    result = await asyncio.to_thread(function, *args)
    return await result if inspect.isawaitable(result) else result


def is_async(function: Any) -> bool:
    """Tell whether calling a function gives a coroutine, as far as can be seen beforehand.

    Args:
        function: A function, or an object that can be called.
    """
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
    )


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends.

    Args:
        coroutine: One whose awaits all end in functions that do not wait.

    Returns:
        Its result.

    Raises:
        RuntimeError: It suspended, which is a mistake in this package.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    coroutine.close()
    raise RuntimeError("a step of a sync call tried to wait for an event loop")


class _Loop:
    """One event loop in a thread of its own, so that what a hook holds open on it stays usable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, awaitable: Awaitable[T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="agentstate-reducer-loop", daemon=True
                )
                self._thread.start()
            loop, thread = self._loop, self._thread
        if threading.current_thread() is thread:
            return _run_in_new_thread(awaitable)
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), loop).result()


_shared = _Loop()


def _forget_loop() -> None:
    global _shared
    _shared = _Loop()  # its thread did not come along into the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loop)


def run_to_completion(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable from sync code, also while an event loop runs in this thread.

    Args:
        awaitable: A coroutine, say.

    Returns:
        Its result.
    """
    return _shared.run(awaitable)


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _run_in_new_thread(awaitable: Awaitable[T]) -> T:
    """Run an awaitable for a hook that itself runs on the shared loop, which waits for it."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(_awaited(awaitable)))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, name="agentstate-reducer-nested", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
