"""The inner saver's methods that a save uses, sync and async behind one face."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from ..calls import Call, call_aside, call_here, run_now
from .order import Order
from .streams import Stream

logger = logging.getLogger(__name__)

Writes = Sequence[tuple[str, Any]]
Visit = Callable[[CheckpointTuple], Any]


class Port(Protocol):
    """What a save does outside this package.

    Attributes:
        call: Calls a function of the application.
    """

    call: Call

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint."""

    async def put_writes(self, config: RunnableConfig, writes: Writes, task_id: str) -> None:
        """Store pending writes."""

    def hold(self, order: Order, thread: str) -> AbstractAsyncContextManager[None]:
        """Hold a thread while one save of it plans and stores."""

    async def page(self, config: RunnableConfig, before: RunnableConfig | None, limit: int) -> Page:
        """Return checkpoints of a thread, newest first, as far as they can be read."""

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""

    async def each(self, config: RunnableConfig | None, filter: Any, visit: Visit) -> None:
        """Visit all checkpoints that a config and metadata name."""

    def from_threads(self) -> Callable[[Coroutine[Any, Any, None]], None]:
        """Return what runs work, sooner or later, that began on another thread."""

    async def finish(self, stream: Stream, work: Coroutine[Any, Any, None]) -> None:
        """Run work for a stream to its end, also when the caller is cancelled."""

    async def wait(self, stream: Stream) -> None:
        """Wait for work that went on after its caller was cancelled."""


class Page(NamedTuple):
    """Some checkpoints of a thread.

    Attributes:
        found: Newest first.
        damaged: Whether the next older one could not be read.
    """

    found: list[CheckpointTuple]
    damaged: bool


def _has_writes(stored: CheckpointTuple) -> bool:
    """Tell whether a listed checkpoint came with its pending writes; some savers leave them out."""
    return stored.pending_writes is not None


def _warn_of_damage(config: RunnableConfig) -> None:
    """Log that a checkpoint could not be read: the save goes on with the newer ones."""
    logger.warning(
        "an older checkpoint of thread %r cannot be read; turns that wait for hooks beside it are "
        "not found, and may be handed over again from other branches",
        config["configurable"].get("thread_id"),
        exc_info=True,
    )


class SyncPort:
    """Calls the sync methods; nothing here ever suspends.

    Args:
        saver: The inner saver.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        self.call: Call = call_here

    def hold(self, order: Order, thread: str) -> AbstractAsyncContextManager[None]:
        """Hold a thread while one save of it plans and stores."""
        return order.hold_sync(thread)

    async def put(self, *args: Any) -> RunnableConfig:
        """Store a checkpoint."""
        return self._saver.put(*args)

    async def put_writes(self, *args: Any) -> None:
        """Store pending writes."""
        self._saver.put_writes(*args)

    async def page(self, config: RunnableConfig, before: RunnableConfig | None, limit: int) -> Page:
        """Return checkpoints of a thread, newest first."""
        found: list[CheckpointTuple] = []
        try:
            for t in self._saver.list(config, before=before, limit=limit):
                found.append(t if _has_writes(t) else self._saver.get_tuple(t.config) or t)
        except NotImplementedError:
            raise
        except Exception:
            if not found and before is None:
                raise  # nothing can be read: the saver is down, rather than one row damaged
            _warn_of_damage(config)
            return Page(found, damaged=True)
        return Page(found, damaged=False)

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return self._saver.get_tuple(config)

    async def each(self, config: RunnableConfig | None, filter: Any, visit: Visit) -> None:
        """Visit all checkpoints that a config and metadata name."""
        for t in self._saver.list(config, filter=filter):
            visit(t if _has_writes(t) else self._saver.get_tuple(t.config) or t)

    def from_threads(self) -> Callable[[Coroutine[Any, Any, None]], None]:
        """Return what runs work at once."""
        return run_now

    async def finish(self, stream: Stream, work: Coroutine[Any, Any, None]) -> None:
        """Run work; nothing cancels a sync call."""
        await work

    async def wait(self, stream: Stream) -> None:
        """Return: there is nothing to wait for."""


class AsyncPort:
    """Awaits the async methods; functions of the application run beside the event loop.

    Args:
        saver: The inner saver.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        self.call: Call = call_aside

    def hold(self, order: Order, thread: str) -> AbstractAsyncContextManager[None]:
        """Hold a thread while one save of it plans and stores."""
        return order.hold_async(thread)

    async def put(self, *args: Any) -> RunnableConfig:
        """Store a checkpoint."""
        return await self._saver.aput(*args)

    async def put_writes(self, *args: Any) -> None:
        """Store pending writes."""
        await self._saver.aput_writes(*args)

    async def page(self, config: RunnableConfig, before: RunnableConfig | None, limit: int) -> Page:
        """Return checkpoints of a thread, newest first."""
        found: list[CheckpointTuple] = []
        try:
            async for t in self._saver.alist(config, before=before, limit=limit):
                found.append(t if _has_writes(t) else await self._saver.aget_tuple(t.config) or t)
        except NotImplementedError:
            raise
        except Exception:
            if not found and before is None:
                raise  # nothing can be read: the saver is down, rather than one row damaged
            _warn_of_damage(config)
            return Page(found, damaged=True)
        return Page(found, damaged=False)

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint."""
        return await self._saver.aget_tuple(config)

    async def each(self, config: RunnableConfig | None, filter: Any, visit: Visit) -> None:
        """Visit all checkpoints that a config and metadata name."""
        async for t in self._saver.alist(config, filter=filter):
            visit(t if _has_writes(t) else await self._saver.aget_tuple(t.config) or t)

    def from_threads(self) -> Callable[[Coroutine[Any, Any, None]], None]:
        """Return what runs work on the loop that runs now, unless that has ended."""
        loop = asyncio.get_running_loop()

        def run(work: Coroutine[Any, Any, None]) -> None:
            try:
                asyncio.run_coroutine_threadsafe(work, loop)
            except RuntimeError:  # the loop is closed
                work.close()

        return run

    async def finish(self, stream: Stream, work: Coroutine[Any, Any, None]) -> None:
        """Run work to its end, also when the caller is cancelled.

        A sync hook runs in a thread that nothing can stop: without its acknowledgement it would get
        its turns again.
        """
        stream.work = asyncio.ensure_future(work)
        await asyncio.shield(stream.work)

    async def wait(self, stream: Stream) -> None:
        """Wait for work that went on after its caller was cancelled."""
        work = stream.work
        if work is not None and not work.done() and work.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([work])
