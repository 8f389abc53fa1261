"""The async saver, on pymongo's `AsyncMongoClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from langgraph.checkpoint.mongodb._base import (
    SaverBase,
    checked_client,
    checked_limit,
    collection_names,
)
from langgraph.checkpoint.mongodb._database.aio import AsyncPort
from langgraph.checkpoint.mongodb._database.mocked import AsyncMockedPort
from langgraph.checkpoint.mongodb._layout.indexes import UNIQUE_FIELDS
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._operations import (
    copying,
    history,
    migration,
    put,
    put_writes,
    reading,
    removal,
    setup,
)
from langgraph.checkpoint.mongodb._operations.arguments import list_query
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.listing import Listing
from langgraph.checkpoint.mongodb.utils import DRIVER_METADATA, _append_client_metadata

if TYPE_CHECKING:
    # Not in langgraph-checkpoint 3.
    from langgraph.checkpoint.base import DeltaChannelHistory

__all__ = ["AsyncMongoDBSaver"]

T = TypeVar("T")


class AsyncMongoDBSaver(SaverBase):
    """The same checkpointer as `MongoDBSaver`, async by nature, on an `AsyncMongoClient`.

    The constructor does no I/O: the indexes are seen to by `setup`, which the first use
    calls if nobody did. An instance belongs to the event loop it is made or first used in;
    its sync methods work from other threads while that loop runs, and refuse inside it.

    Args:
        client: The client; it is not closed by the saver unless `close` is called.
        db_name: The database.
        checkpoint_collection_name: The collection of checkpoints.
        writes_collection_name: The collection of pending writes.
        ttl: Seconds after which what was written expires; None for never. A thread in
            use keeps its newest checkpoints; those from which a `DeltaChannel` is rebuilt
            must be younger than it. Changing it changes the existing indexes.
        serde: The serializer of everything stored; LangGraph's own by default.
        channel_values_collection_name: The collection of channel values. None follows the
            first: `checkpoint_channel_values` for `checkpoints`, else its name with
            `_channel_values` after it.
        create_indexes: False where the indexes are there already, made by a saver whose
            user may create them. The unique ones must be there.
        **ignored: Unknown arguments are ignored, as `MongoDBSaver` does, and logged.

    Attributes:
        client: The client.
        db: The database.
        checkpoint_collection: The collection of checkpoints.
        writes_collection: The collection of pending writes.
        channel_values_collection: The collection of channel values.
        ttl: As given.
        serde: The serializer.

    Raises:
        TypeError: `client` is no `AsyncMongoClient`.
        ValueError: `ttl` is not a positive integer, two collections have one
            name, or the client does not acknowledge writes.

    Example:
        ```python
        from langgraph.checkpoint.mongodb import AsyncMongoDBSaver

        async with AsyncMongoDBSaver.from_conn_string("mongodb://localhost:27017") as saver:
            graph = builder.compile(checkpointer=saver)
            await graph.ainvoke(input, {"configurable": {"thread_id": "1"}})
        ```
    """

    client: AsyncMongoClient[Document]
    db: AsyncDatabase[Document]
    checkpoint_collection: AsyncCollection[Document]
    writes_collection: AsyncCollection[Document]
    channel_values_collection: AsyncCollection[Document]
    _port: AsyncPort

    def __init__(
        self,
        client: AsyncMongoClient[Any],
        db_name: str = "checkpointing_db",
        checkpoint_collection_name: str = "checkpoints",
        writes_collection_name: str = "checkpoint_writes",
        ttl: int | None = None,
        serde: SerializerProtocol | None = None,
        *,
        channel_values_collection_name: str | None = None,
        create_indexes: bool = True,
        **ignored: Any,
    ) -> None:
        super().__init__(ttl=ttl, serde=serde, ignored=ignored)
        is_native = checked_client(client, AsyncMongoClient)
        names = collection_names(
            client,
            db_name,
            {
                "checkpoints": checkpoint_collection_name,
                "writes": writes_collection_name,
                "values": channel_values_collection_name,
            },
        )
        _append_client_metadata(client)
        self.client = client
        self.db = client[db_name]
        collections = {role: self.db[name] for role, name in names.items()}
        self.checkpoint_collection = collections["checkpoints"]
        self.writes_collection = collections["writes"]
        self.channel_values_collection = collections["values"]
        port = AsyncPort if is_native else AsyncMockedPort
        self._port = port(self.db, collections, UNIQUE_FIELDS)
        self._port.ready = not create_indexes
        self._bind()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        conn_string: str | None = None,
        db_name: str = "checkpointing_db",
        checkpoint_collection_name: str = "checkpoints",
        writes_collection_name: str = "checkpoint_writes",
        ttl: int | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AsyncMongoDBSaver]:
        """Make a saver with a client of its own, closed when the context ends.

        Args:
            conn_string: MongoDB connection string; the local server by default.
            db_name: The database.
            checkpoint_collection_name: The collection of checkpoints.
            writes_collection_name: The collection of pending writes.
            ttl: Seconds after which what was written expires; None for never.
            **kwargs: Further arguments of the constructor.

        Yields:
            The saver.

        Raises:
            ValueError: `ttl` is not a positive integer.
        """
        async with AsyncMongoClient[Document](conn_string, driver=DRIVER_METADATA) as client:
            yield cls(
                client,
                db_name,
                checkpoint_collection_name,
                writes_collection_name,
                ttl,
                **kwargs,
            )

    async def close(self) -> None:
        """Close the client, for whoever handed one over and wants the saver to close it."""
        await self.client.close()

    async def setup(self) -> None:
        """Create the indexes that are missing, and set the TTL; the first use calls it.

        May be called again, and with `create_indexes=False`, too.

        Raises:
            pymongo.errors.OperationFailure: The server refuses a unique index; a note on
                the error tells which, and what to do.
        """
        self._bind()
        async with self._port.setting_up:
            await setup.setup(self._port, self.ttl)
            self._port.ready = True

    def _bind(self) -> None:
        """Take the running event loop for the saver's, unless it has one.

        Raises:
            RuntimeError: It has another one.
        """
        running = _running_loop()
        bound = self._port.bind(running)
        if running is not None and bound is not running:
            raise RuntimeError(
                f"This AsyncMongoDBSaver belongs to another event loop ({bound!r}), as its "
                "AsyncMongoClient does. Make a client and a saver in each event loop, for "
                "example by `async with AsyncMongoDBSaver.from_conn_string(...)` inside it, or "
                "use MongoDBSaver, which any thread may use."
            )

    async def _ready(self) -> Context:
        """What a call works with, the indexes seen to."""
        self._bind()
        port = self._port
        if not port.ready:
            async with port.setting_up:
                if not port.ready:
                    await setup.setup(port, self.ttl)
                    port.ready = True
        return self._context()

    def _loop_to_wait_for(self) -> asyncio.AbstractEventLoop:
        """The saver's event loop, for a caller in another thread.

        Raises:
            asyncio.InvalidStateError: This is the loop itself, or there is none running.
        """
        loop = self._port.loop
        if loop is not None and loop.is_running() and loop is not _running_loop():
            return loop
        problem = "this is its own event loop, which would wait for itself"
        if loop is None or not loop.is_running():
            problem = "no running event loop has used it yet, or that loop has ended"
        raise asyncio.InvalidStateError(
            f"A sync method of AsyncMongoDBSaver cannot run: {problem}. Await the async "
            "method (graph.ainvoke, aget_tuple, ...), or use MongoDBSaver in sync code."
        )

    def _wait_for(self, method: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kw: Any) -> T:
        """Run an async method in the saver's event loop, from another thread."""
        loop = self._loop_to_wait_for()
        return asyncio.run_coroutine_threadsafe(method(*args, **kw), loop).result()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint.

        Args:
            config: Names the thread, its namespace (the root by default) and the
                checkpoint (the newest by default).

        Returns:
            The checkpoint with all its channel values, and its pending writes in
            `(task_path, task_id, idx)` order; None when there is none.

        Raises:
            ValueError: An identifier is not a string.
            MissingChannelValueError: A value that the checkpoint names is not stored, or it is
                gone itself, and one that was read is rebuilt from it.
            UnknownLayoutError: A newer release wrote the checkpoint.
        """
        return await reading.get_tuple(await self._ready(), config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, newest first, read page by page as they are asked for.

        Args:
            config: Names the thread; a namespace and a checkpoint narrow it further. None
                lists all threads.
            filter: Metadata that must be equal, key by key, by value.
            before: Only checkpoints older than the one this config names.
            limit: At most this many; 0 is none.

        Yields:
            The checkpoints, as `aget_tuple` answers them.

        Raises:
            ValueError: An identifier is not a string, a filter key is a MongoDB operator,
                or `limit` is negative.
            MissingChannelValueError: A value that the next checkpoint names is not stored.
            UnknownLayoutError: After the last one, if a newer release wrote some.
            OldMetadataError: After the last one, if a release before 0.2.2 wrote some.
        """
        wanted, most = list_query(config, filter, before), checked_limit(limit)
        listing = Listing(await self._ready(), wanted, most)
        while not listing.ended:
            for found in await listing.page():
                yield await reading.decode(listing.context, found)
            listing.check()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: the channel values that changed, then the checkpoint itself.

        Repeating the same put is harmless.

        Args:
            config: Names the thread and namespace, and as `checkpoint_id` the parent.
            checkpoint: The checkpoint with all its channel values.
            metadata: Its metadata.
            new_versions: The channels that the step wrote, with their new versions.

        Returns:
            The config that names the stored checkpoint.

        Raises:
            ValueError: An identifier is not a string.
            ChannelTooLargeError: A channel value does not fit into one document.
            CheckpointTooLargeError: Something else does not. Nothing was written then.
            MissingChannelValueError: The thread was deleted meanwhile, and with it what
                this checkpoint builds on.
        """
        context = await self._ready()
        return await put.put(context, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, until the next checkpoint takes it over.

        A write that is stored already stays as it is. An error, an interrupt, a resume value
        or a schedule replaces the one that the task stored before.

        Args:
            config: Names the checkpoint that the task belongs to.
            writes: Pairs of channel and value; none is a no-op.
            task_id: The task.
            task_path: Where in the graph it ran, which orders the writes of a step.

        Raises:
            ValueError: An identifier is not a string.
            ChannelTooLargeError: A value does not fit into one document; nothing was
                written.
        """
        await put_writes.put_writes(await self._ready(), config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread: checkpoints, pending writes and channel values, all namespaces.

        Args:
            thread_id: The thread.

        Raises:
            ValueError: It is not a string.
        """
        await removal.delete_thread(await self._ready(), thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their pending writes and values.

        What checkpoints of other runs still need stays: shared values, and the ancestors
        from which their delta channels are rebuilt.

        Args:
            run_ids: The `run_id`s in the checkpoints' metadata.

        Raises:
            ValueError: One of them is not a string.
        """
        await removal.delete_for_runs(await self._ready(), run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, all its namespaces and its history, on the server.

        A copy that failed can be repeated. A TTL begins again for the copy.

        Args:
            source_thread_id: The thread to copy.
            target_thread_id: The thread to make; it must have no checkpoints.

        Raises:
            ValueError: An identifier is not a string, both are the same, or the target
                has checkpoints.
        """
        await copying.copy_thread(await self._ready(), source_thread_id, target_thread_id)

    async def amigrate_thread(self, thread_id: str) -> int:
        """Move a thread that an older release began into the split layout, in place.

        It resumes, forks and lists as before, and may then grow past 16 MB; older releases
        cannot open it any more. Each checkpoint is replaced by one write: a reader sees it
        whole at any moment. May be stopped, repeated, and called while graphs run; a run
        that is under way goes on in the old layout, and is moved when this is called again.

        Args:
            thread_id: The thread. One that is split already stays as it is.

        Returns:
            How many checkpoints were moved.

        Raises:
            ValueError: The identifier is not a string, or its state holds objects whose
                classes cannot be imported here. What was moved until then stays so.
            UnknownLayoutError: A newer release wrote to the thread.
            OldMetadataError: A release before 0.2.2 wrote it.
        """
        return await migration.migrate_thread(await self._ready(), thread_id)

    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
    ) -> None:
        """Remove old checkpoints of threads, and never what a kept one needs.

        Kept besides: values that a kept checkpoint names, paused subgraphs that its
        pending interrupts lead to, and the ancestors from which its delta channels are
        rebuilt.

        Args:
            thread_ids: The threads.
            strategy: `"keep_latest"`, or `"delete"` to delete the threads.
            keep_last: How many of the newest checkpoints of each namespace to keep.

        Raises:
            ValueError: The strategy is unknown, `keep_last` is below 1, or an identifier
                is not a string.
        """
        await removal.prune(await self._ready(), thread_ids, strategy, keep_last)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read what delta channels are rebuilt from: the nearest stored value, the writes since.

        Args:
            config: Names the checkpoint; its own writes do not count.
            channels: The channels.

        Returns:
            For each channel the writes along its ancestors, oldest first, and as `seed`
            the value they start from, where there is one.

        Raises:
            ValueError: An identifier is not a string.
            MissingChannelValueError: A seed that an ancestor names is not stored.
        """
        return await history.get_delta_channel_history(await self._ready(), config, channels)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple`, from another thread than the event loop's."""
        return self._wait_for(self.aget_tuple, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist`, from another thread than the event loop's."""
        self._loop_to_wait_for()
        return self._rows(self.alist(config, filter=filter, before=before, limit=limit))

    def _rows(self, rows: AsyncIterator[CheckpointTuple]) -> Iterator[CheckpointTuple]:
        while (row := self._wait_for(_next, rows)) is not None:
            yield row

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput`, from another thread than the event loop's."""
        return self._wait_for(self.aput, config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """`aput_writes`, from another thread than the event loop's."""
        self._wait_for(self.aput_writes, config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread`, from another thread than the event loop's."""
        self._wait_for(self.adelete_thread, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs`, from another thread than the event loop's."""
        self._wait_for(self.adelete_for_runs, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread`, from another thread than the event loop's."""
        self._wait_for(self.acopy_thread, source_thread_id, target_thread_id)

    def migrate_thread(self, thread_id: str) -> int:
        """`amigrate_thread`, from another thread than the event loop's."""
        return self._wait_for(self.amigrate_thread, thread_id)

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
    ) -> None:
        """`aprune`, from another thread than the event loop's."""
        self._wait_for(self.aprune, thread_ids, strategy=strategy, keep_last=keep_last)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history`, from another thread than the event loop's."""
        return self._wait_for(self.aget_delta_channel_history, config=config, channels=channels)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _next(rows: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(rows, None)
