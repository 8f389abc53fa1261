"""One way to call a saver and its graphs, sync or async, so that each workload is written once.

The methods of both faces are coroutines. Those of the sync face never suspend: they call the sync
API and `run` drives them without an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Config = dict[str, Any]
Node = Callable[[Any], Any]


class Face(Protocol):
    """The calls that workloads make."""

    name: str
    saver: Any

    def node(self, function: Node) -> Any: ...
    async def invoke(self, graph: Any, given: Any, config: Config) -> Any: ...
    async def get_tuple(self, config: Config) -> Any: ...
    def list(self, config: Config, limit: int | None = None) -> AsyncIterator[Any]: ...
    async def put(
        self, config: Config, checkpoint: Any, metadata: Any, versions: Any
    ) -> Config: ...
    async def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None: ...
    async def prune(self, thread_id: str) -> None: ...
    async def history(self, config: Config, channel: str) -> Mapping[str, Any]: ...
    async def together(
        self, jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]]
    ) -> Sequence[T]: ...


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a sync workload suspended")


class SyncFace:
    """Calls the sync API."""

    name = "sync"

    def __init__(self, saver: Any) -> None:
        self.saver = saver

    def node(self, function: Node) -> Node:
        return function

    async def invoke(self, graph: Any, given: Any, config: Config) -> Any:
        return graph.invoke(given, config)

    async def get_tuple(self, config: Config) -> Any:
        return self.saver.get_tuple(config)

    async def list(self, config: Config, limit: int | None = None) -> AsyncIterator[Any]:
        for item in self.saver.list(config, limit=limit):
            yield item

    async def put(self, config: Config, checkpoint: Any, metadata: Any, versions: Any) -> Config:
        stored: Config = self.saver.put(config, checkpoint, metadata, versions)
        return stored

    async def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        self.saver.put_writes(config, writes, task_id)

    async def prune(self, thread_id: str) -> None:
        self.saver.prune([thread_id], strategy="keep_latest")

    async def history(self, config: Config, channel: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.saver.get_delta_channel_history(
            config=config, channels=[channel]
        )
        return found

    async def together(self, jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> Sequence[T]:
        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(lambda job: run(job()), jobs))


class AsyncFace:
    """Calls the async API on the running event loop."""

    name = "async"

    def __init__(self, saver: Any) -> None:
        self.saver = saver

    def node(self, function: Node) -> Any:
        async def node(state: Any) -> Any:
            return function(state)

        return node

    async def invoke(self, graph: Any, given: Any, config: Config) -> Any:
        return await graph.ainvoke(given, config)

    async def get_tuple(self, config: Config) -> Any:
        return await self.saver.aget_tuple(config)

    async def list(self, config: Config, limit: int | None = None) -> AsyncIterator[Any]:
        async for item in self.saver.alist(config, limit=limit):
            yield item

    async def put(self, config: Config, checkpoint: Any, metadata: Any, versions: Any) -> Config:
        stored: Config = await self.saver.aput(config, checkpoint, metadata, versions)
        return stored

    async def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        await self.saver.aput_writes(config, writes, task_id)

    async def prune(self, thread_id: str) -> None:
        await self.saver.aprune([thread_id], strategy="keep_latest")

    async def history(self, config: Config, channel: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self.saver.aget_delta_channel_history(
            config=config, channels=[channel]
        )
        return found

    async def together(self, jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> Sequence[T]:
        return list(await asyncio.gather(*(job() for job in jobs)))
