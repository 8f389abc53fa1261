"""One way to drive both savers, so that a test is written once and runs on each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, Protocol, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from pymongo import AsyncMongoClient, MongoClient

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb.aio import AsyncMongoDBSaver

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")
# After a server's "not primary" the driver waits for the next heartbeat: 10 s by its default.
CLIENT_DEFAULTS: Mapping[str, Any] = {"heartbeatFrequencyMS": 500}
T = TypeVar("T")
Rows = list[CheckpointTuple]


class Face:
    """A saver, sync or async, on a client and a database of a test, with synchronous methods.

    The async saver runs in a private event loop, so a test that uses a face is a plain
    function: inside a running loop its methods raise.
    """

    def __init__(
        self,
        kind: Kind,
        uri: str,
        db_name: str,
        *,
        closing: ExitStack,
        client_kwargs: Mapping[str, Any] | None = None,
        **saver_kwargs: Any,
    ) -> None:
        """Connect, and build the saver.

        Args:
            kind: Which saver.
            uri: The server's connection string.
            db_name: The database.
            closing: Closes the client and the event loop at its end, and those of every face
                that `fresh` makes of this one.
            client_kwargs: Arguments for the client, as `event_listeners`.
            **saver_kwargs: Arguments for the saver, as `ttl`, `serde` or collection names.
        """
        self.kind: Kind = kind
        self.client_kwargs = {**CLIENT_DEFAULTS, **(client_kwargs or {})}
        self.saver_kwargs = saver_kwargs
        self._uri, self._db_name, self._closing = uri, db_name, closing
        self._runner = asyncio.Runner()
        closing.callback(self._runner.close)
        self.client: MongoClient[Any] | AsyncMongoClient[Any]
        self.saver: MongoDBSaver | AsyncMongoDBSaver
        if kind == "sync":
            self._open()
        else:
            self.run(self._open_async())

    def _open(self) -> None:
        client = MongoClient[Any](self._uri, **self.client_kwargs)
        self._closing.callback(client.close)
        self.client = client
        self.saver = MongoDBSaver(client, self._db_name, **self.saver_kwargs)

    async def _open_async(self) -> None:
        # Inside the loop: the client binds to it.
        client = AsyncMongoClient[Any](self._uri, **self.client_kwargs)
        self._closing.callback(lambda: self.run(client.close()))
        self.client = client
        self.saver = AsyncMongoDBSaver(client, self._db_name, **self.saver_kwargs)

    def fresh(self, *, client_kwargs: Mapping[str, Any] | None = None, **saver_kwargs: Any) -> Face:
        """Return a new face of the same kind on the same database, with a client of its own.

        Args:
            client_kwargs: Client arguments that are added or replaced.
            **saver_kwargs: Saver arguments that are added or replaced.
        """
        return Face(
            self.kind,
            self._uri,
            self._db_name,
            closing=self._closing,
            client_kwargs={**self.client_kwargs, **(client_kwargs or {})},
            **{**self.saver_kwargs, **saver_kwargs},
        )

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run an awaitable in this face's event loop and return its result."""

        async def waited() -> T:
            return await awaitable

        return self._runner.run(waited())

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            return getattr(self.saver, method)(*args, **kwargs)
        return self.run(getattr(self.saver, f"a{method}")(*args, **kwargs))

    # ------------------------------------------------------------------ the saver's methods

    def setup(self) -> None:
        """Create the indexes."""
        answer = self.saver.setup()
        if answer is not None:
            self.run(answer)

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Return the version after one, or the first for None."""
        return self.saver.get_next_version(current, channel)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, str | int | float],
    ) -> RunnableConfig:
        """Store a checkpoint; return the config that names it."""
        stored: RunnableConfig = self._call("put", config, checkpoint, metadata, new_versions)
        return stored

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store a task's pending writes."""
        self._call("put_writes", config, writes, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint: the one the config names, else the newest."""
        found: CheckpointTuple | None = self._call("get_tuple", config)
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Rows:
        """Read all checkpoints that match, newest first."""
        wanted: dict[str, Any] = {"filter": filter, "before": before, "limit": limit}
        if isinstance(self.saver, MongoDBSaver):
            return [*self.saver.list(config, **wanted)]
        rows = self.saver.alist(config, **wanted)

        async def collected() -> Rows:
            return [row async for row in rows]

        return self.run(collected())

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        self._call("delete_thread", thread_id)

    def prune(self, thread_ids: Sequence[str], **kwargs: Any) -> None:
        """Prune threads; `strategy` and `keep_last` as in the saver."""
        self._call("prune", thread_ids, **kwargs)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to one that does not exist yet."""
        self._call("copy_thread", source_thread_id, target_thread_id)

    def migrate_thread(self, thread_id: str) -> int:
        """Move an old thread into the split layout; return how many checkpoints were moved."""
        moved: int = self._call("migrate_thread", thread_id)
        return moved

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs."""
        self._call("delete_for_runs", run_ids)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Read delta channels' writes and seeds along the checkpoint's ancestors."""
        history: Mapping[str, Any] = self._call(
            "get_delta_channel_history", config=config, channels=channels
        )
        return history

    # ------------------------------------------------------------------ graphs

    def compile(self, builder: Any, **kwargs: Any) -> Any:
        """Compile a graph builder with this face's saver."""
        return builder.compile(checkpointer=self.saver, **kwargs)

    def _graph(self, graph: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            return getattr(graph, method)(*args, **kwargs)
        return self.run(getattr(graph, f"a{method}")(*args, **kwargs))

    def invoke(self, graph: Any, input: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        """Run a graph to its end or to an interrupt; return what `invoke` returns."""
        return self._graph(graph, "invoke", input, config, **kwargs)

    def get_state(self, graph: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        """Return a graph's state snapshot."""
        return self._graph(graph, "get_state", config, **kwargs)

    def update_state(self, graph: Any, config: RunnableConfig, values: Any, **kwargs: Any) -> Any:
        """Change a graph's state; return the config of the new checkpoint."""
        return self._graph(graph, "update_state", config, values, **kwargs)

    def state_history(self, graph: Any, config: RunnableConfig, **kwargs: Any) -> Any:
        """Return a graph's state snapshots, newest first, as a list."""
        if self.kind == "sync":
            return [*graph.get_state_history(config, **kwargs)]

        async def collected() -> Any:
            return [row async for row in graph.aget_state_history(config, **kwargs)]

        return self.run(collected())


class MakeFace(Protocol):
    """Makes faces on the test's database, of the kind that the test runs on."""

    def __call__(
        self, *, client_kwargs: Mapping[str, Any] | None = None, **saver_kwargs: Any
    ) -> Face:
        """Make one; the arguments are those of `Face`."""
        ...
