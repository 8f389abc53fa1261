"""The sync saver, on pymongo's `MongoClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database

from langgraph.checkpoint.mongodb._base import (
    SaverBase,
    checked_client,
    checked_limit,
    collection_names,
)
from langgraph.checkpoint.mongodb._database.mocked import MockedPort
from langgraph.checkpoint.mongodb._database.port import run
from langgraph.checkpoint.mongodb._database.sync import SyncPort
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
from langgraph.checkpoint.mongodb._operations.listing import Listing
from langgraph.checkpoint.mongodb.utils import DRIVER_METADATA, _append_client_metadata

if TYPE_CHECKING:
    # Not in langgraph-checkpoint 3.
    from langgraph.checkpoint.base import DeltaChannelHistory

__all__ = ["MongoDBSaver"]


class MongoDBSaver(SaverBase):
    """A checkpointer that keeps the state of LangGraph threads in MongoDB.

    Each large channel value is a document of its own, so MongoDB's 16 MB is the limit of
    one channel, not of the state, and a step writes only what changed. A thread that an
    older release began keeps its format and goes on working.

    Its async methods run the sync ones in a thread; `AsyncMongoDBSaver` is the one that
    is async by nature. Instances may be shared between threads.

    Identifiers (`thread_id`, `checkpoint_ns`, `checkpoint_id`, `task_id`, `task_path`)
    must be strings: anything else is a `ValueError` before a query is sent, so that an
    operator document can never widen a query beyond its thread.

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
        **ignored: Unknown arguments are ignored, as older releases did, and logged.

    Attributes:
        client: The client.
        db: The database.
        checkpoint_collection: The collection of checkpoints.
        writes_collection: The collection of pending writes.
        channel_values_collection: The collection of channel values.
        ttl: As given.
        serde: The serializer.

    Raises:
        TypeError: `client` is no `MongoClient`.
        ValueError: `ttl` is not a positive integer, two collections have one
            name, or the client does not acknowledge writes.
        pymongo.errors.PyMongoError: The server cannot be reached, or refuses a unique
            index.

    Example:
        ```python
        from langgraph.checkpoint.mongodb import MongoDBSaver
        from pymongo import MongoClient

        checkpointer = MongoDBSaver(MongoClient("mongodb://localhost:27017"))
        graph = builder.compile(checkpointer=checkpointer)
        graph.invoke(input, {"configurable": {"thread_id": "1"}})
        ```
    """

    client: MongoClient[Document]
    db: Database[Document]
    checkpoint_collection: Collection[Document]
    writes_collection: Collection[Document]
    channel_values_collection: Collection[Document]
    _port: SyncPort

    def __init__(
        self,
        client: MongoClient[Any],
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
        is_native = checked_client(client, MongoClient)
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
        port = SyncPort if is_native else MockedPort
        self._port = port(self.db, collections, UNIQUE_FIELDS)
        if create_indexes:
            self.setup()

    @classmethod
    @contextmanager
    def from_conn_string(
        cls,
        conn_string: str | None = None,
        db_name: str = "checkpointing_db",
        checkpoint_collection_name: str = "checkpoints",
        writes_collection_name: str = "checkpoint_writes",
        ttl: int | None = None,
        **kwargs: Any,
    ) -> Iterator[MongoDBSaver]:
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
            pymongo.errors.PyMongoError: The server cannot be reached.
        """
        with MongoClient[Document](conn_string, driver=DRIVER_METADATA) as client:
            yield cls(
                client,
                db_name,
                checkpoint_collection_name,
                writes_collection_name,
                ttl,
                **kwargs,
            )

    def close(self) -> None:
        """Close the client, for whoever handed one over and wants the saver to close it."""
        self.client.close()

    def setup(self) -> None:
        """Create the indexes that are missing, and set the TTL; the constructor calls it.

        May be called again, and with `create_indexes=False`, too.

        Raises:
            pymongo.errors.OperationFailure: The server refuses a unique index; a note on
                the error tells which, and what to do.
        """
        run(setup.setup(self._port, self.ttl))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
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
        return run(reading.get_tuple(self._context(), config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first, read page by page as they are asked for.

        Args:
            config: Names the thread; a namespace and a checkpoint narrow it further. None
                lists all threads.
            filter: Metadata that must be equal, key by key, by value.
            before: Only checkpoints older than the one this config names.
            limit: At most this many; 0 is none.

        Yields:
            The checkpoints, as `get_tuple` answers them.

        Raises:
            ValueError: An identifier is not a string, a filter key is a MongoDB operator,
                or `limit` is negative.
            MissingChannelValueError: A value that the next checkpoint names is not stored.
            UnknownLayoutError: After the last one, if a newer release wrote some.
            OldMetadataError: After the last one, if a release before 0.2.2 wrote some.
        """
        wanted = list_query(config, filter, before)
        return self._listed(Listing(self._context(), wanted, checked_limit(limit)))

    def _listed(self, listing: Listing) -> Iterator[CheckpointTuple]:
        while not listing.ended:
            for found in run(listing.page()):
                yield run(reading.decode(listing.context, found))
            listing.check()

    def put(
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
        return run(put.put(self._context(), config, checkpoint, metadata, new_versions))

    def put_writes(
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
        run(put_writes.put_writes(self._context(), config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread: checkpoints, pending writes and channel values, all namespaces.

        Args:
            thread_id: The thread.

        Raises:
            ValueError: It is not a string.
        """
        run(removal.delete_thread(self._context(), thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, with their pending writes and values.

        What checkpoints of other runs still need stays: shared values, and the ancestors
        from which their delta channels are rebuilt.

        Args:
            run_ids: The `run_id`s in the checkpoints' metadata.

        Raises:
            ValueError: One of them is not a string.
        """
        run(removal.delete_for_runs(self._context(), run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, all its namespaces and its history, on the server.

        A copy that failed can be repeated. A TTL begins again for the copy.

        Args:
            source_thread_id: The thread to copy.
            target_thread_id: The thread to make; it must have no checkpoints.

        Raises:
            ValueError: An identifier is not a string, both are the same, or the target
                has checkpoints.
        """
        run(copying.copy_thread(self._context(), source_thread_id, target_thread_id))

    def migrate_thread(self, thread_id: str) -> int:
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
        return run(migration.migrate_thread(self._context(), thread_id))

    def prune(
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
        run(removal.prune(self._context(), thread_ids, strategy, keep_last))

    def get_delta_channel_history(
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
        return run(history.get_delta_channel_history(self._context(), config, channels))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple` in a thread."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list` with each page read in a thread, when it is asked for."""
        rows = self.list(config, filter=filter, before=before, limit=limit)
        while (row := await asyncio.to_thread(next, rows, None)) is not None:
            yield row

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put` in a thread."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """`put_writes` in a thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread` in a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs` in a thread."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread` in a thread."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def amigrate_thread(self, thread_id: str) -> int:
        """`migrate_thread` in a thread."""
        return await asyncio.to_thread(self.migrate_thread, thread_id)

    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
    ) -> None:
        """`prune` in a thread."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy, keep_last=keep_last)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history` in a thread."""
        return await asyncio.to_thread(
            self.get_delta_channel_history, config=config, channels=channels
        )
