"""A checkpoint saver that keeps the messages of another one bounded."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ..calls import run_now
from ..reducer import MessageReducer
from .capabilities import mirroring
from .delta import is_delta
from .keeping import keep_waiting, threads_of
from .namespaces import memory_namespace
from .ports import AsyncPort, Port, SyncPort
from .reading import visible, without_stale_writes
from .saving import Core, Save

_MISSING = object()


class ReducingSaver(BaseCheckpointSaver[Any]):
    """Applies a `MessageReducer` to the messages of every checkpoint that another saver stores.

    It can do what the inner saver can: what that one does not implement, this one does not either.
    An inner saver that applies reducers itself is given this one, and everything is passed through.

    Args:
        inner: The saver that stores.
        reducer: The reducer.
        messages_key: The channel with the messages.

    Attributes:
        inner: The saver that stores.
        reducer: The reducer in force.
        messages_key: The channel with the messages.
        passthrough: Whether the inner saver reduces this channel and this one only passes calls on.

    Raises:
        TypeError: `inner` is no saver, or `reducer` no reducer.
        ValueError: `reducer` is `None`, or the inner saver has another reducer for this channel.
    """

    _is_own_wrapper = True

    inner: BaseCheckpointSaver[Any]
    reducer: MessageReducer
    messages_key: str
    passthrough: bool

    def __init__(
        self,
        inner: BaseCheckpointSaver[Any],
        reducer: MessageReducer,
        *,
        messages_key: str = "messages",
    ) -> None:
        _check(inner, reducer)
        # The base class's __init__ would only set a serializer, and that is the inner saver's.
        self.inner = inner
        self.messages_key = messages_key
        self.reducer = reducer
        self.passthrough = _hand_over(inner, reducer, messages_key)
        self._core = Core(reducer, messages_key)
        self.__class__ = mirroring(type(self), type(inner))

    @property
    def waiting(self) -> int:
        """How many messages wait for a hook, in the threads that this process saved lately."""
        return self._core.streams.waiting()

    @property
    def serde(self) -> SerializerProtocol:
        """The inner saver's serializer."""
        return self.inner.serde

    @serde.setter
    def serde(self, value: SerializerProtocol) -> None:
        self.inner.serde = value

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, its messages pruned.

        Args:
            config: The config; its checkpoint id is the parent's.
            checkpoint: The checkpoint. It is left as it is.
            metadata: Its metadata.
            new_versions: The versions of the channels that it writes. Without the messages' channel
                among them nothing is pruned and nothing called.

        Returns:
            What the inner saver returns.
        """
        if self.passthrough:
            return self.inner.put(config, checkpoint, metadata, new_versions)
        save = self._save(SyncPort(self.inner), config, checkpoint, metadata, new_versions)
        return run_now(save.run())

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, its messages pruned; hooks do not hold up the event loop.

        Args:
            config: The config; its checkpoint id is the parent's.
            checkpoint: The checkpoint. It is left as it is.
            metadata: Its metadata.
            new_versions: The versions of the channels that it writes. Without the messages' channel
                among them nothing is pruned and nothing called.

        Returns:
            What the inner saver returns.
        """
        if self.passthrough:
            return await self.inner.aput(config, checkpoint, metadata, new_versions)
        save = self._save(AsyncPort(self.inner), config, checkpoint, metadata, new_versions)
        return await save.run()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint without what this wrapper stored beside it.

        Args:
            config: Which checkpoint; the thread's latest without an id.

        Returns:
            The checkpoint, or `None`.
        """
        return self._show(config, self.inner.get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint without what this wrapper stored beside it.

        Args:
            config: Which checkpoint; the thread's latest without an id.

        Returns:
            The checkpoint, or `None`.
        """
        return self._show(config, await self.inner.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints without what this wrapper stored beside them.

        Args:
            config: Which thread, namespace and checkpoint; all without one.
            filter: Metadata to look for.
            before: Only checkpoints before this one.
            limit: How many at the most.

        Yields:
            The checkpoints, newest first.
        """
        for stored in self.inner.list(config, filter=filter, before=before, limit=limit):
            yield self._visible(stored)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints without what this wrapper stored beside them.

        Args:
            config: Which thread, namespace and checkpoint; all without one.
            filter: Metadata to look for.
            before: Only checkpoints before this one.
            limit: How many at the most.

        Yields:
            The checkpoints, newest first.
        """
        async for stored in self.inner.alist(config, filter=filter, before=before, limit=limit):
            yield self._visible(stored)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return what delta channels are rebuilt from, without removals of what was pruned.

        Args:
            config: Which checkpoint.
            channels: The channels.

        Returns:
            By channel, the last snapshot and the writes since.
        """
        history = self.inner.get_delta_channel_history(config=config, channels=channels)
        return self._rebuilt(history)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return what delta channels are rebuilt from, without removals of what was pruned.

        Args:
            config: Which checkpoint.
            channels: The channels.

        Returns:
            By channel, the last snapshot and the writes since.
        """
        history = await self.inner.aget_delta_channel_history(config=config, channels=channels)
        return self._rebuilt(history)

    def _rebuilt(self, history: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.passthrough:
            return history
        changed: Mapping[str, Any] = without_stale_writes(history, self.messages_key)
        return changed

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, but not what waits for hooks beside them.

        Args:
            thread_ids: The threads.
            strategy: As the inner saver takes it.
        """
        if strategy == "keep_latest":
            run_now(self._keep(SyncPort(self.inner), thread_ids))
        self.inner.prune(thread_ids, strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete checkpoints of threads, but not what waits for hooks beside them.

        Args:
            thread_ids: The threads.
            strategy: As the inner saver takes it.
        """
        if strategy == "keep_latest":
            await self._keep(AsyncPort(self.inner), thread_ids)
        await self.inner.aprune(thread_ids, strategy=strategy)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, but not what waits for hooks since before them.

        Args:
            run_ids: The runs.
        """
        run_now(self._keep(SyncPort(self.inner), None, run_ids))
        self.inner.delete_for_runs(run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, but not what waits for hooks since before them.

        Args:
            run_ids: The runs.
        """
        await self._keep(AsyncPort(self.inner), None, run_ids)
        await self.inner.adelete_for_runs(run_ids)

    async def _keep(
        self, port: Port, threads: Sequence[str] | None, runs: Sequence[str] | None = None
    ) -> None:
        """Move what waits for hooks to where it is not deleted."""
        if self.passthrough or not self.reducer.config.on_prune:
            return
        if threads is None:
            threads = await threads_of(port, runs or ())
        for thread in threads:
            async with port.hold(self._core.order, str(thread)):
                await keep_waiting(port, str(thread), self._core.channel, runs)
            self._core.streams.look_again(str(thread))

    def with_allowlist(
        self, extra_allowlist: Collection[tuple[str, ...]]
    ) -> BaseCheckpointSaver[Any]:
        """Return a wrapper of the inner saver with a stricter serializer.

        Args:
            extra_allowlist: Types to allow beside the usual ones.

        Returns:
            A wrapper that shares this one's memory, or this one if nothing changes.
        """
        inner = self.inner.with_allowlist(extra_allowlist)
        return self if inner is self.inner else self._around(inner)

    def _around(self, inner: BaseCheckpointSaver[Any]) -> ReducingSaver:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.inner = inner
        return clone

    def __copy__(self) -> ReducingSaver:
        return self._around(copy.copy(self.inner))

    def _save(
        self,
        port: Port,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Save:
        namespace = memory_namespace(self.reducer, config)
        return Save(self._core, port, config, checkpoint, metadata, new_versions, namespace)

    def _show(
        self, config: RunnableConfig, stored: CheckpointTuple | None
    ) -> CheckpointTuple | None:
        if self.passthrough:
            return stored
        self._core.saw(config, stored)
        return None if stored is None else self._visible(stored)

    def _visible(self, stored: CheckpointTuple) -> CheckpointTuple:
        if self.passthrough:
            return stored
        return visible(stored, self.messages_key, self._core.channel)

    def __getattr__(self, name: str) -> Any:
        if name == "inner" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)  # before __init__, and for what Python asks of any object
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        mode = "passthrough" if self.passthrough else "reducing"
        return f"ReducingSaver({self.inner!r}, {self.reducer!r}, {self.messages_key!r}, {mode})"


def apply_reducer(
    reducer: Any, checkpoint: Any, config: Any, messages_key: str = "messages"
) -> Any:
    """Return a checkpoint with its messages reduced, for savers that call a reducer themselves.

    Args:
        reducer: The reducer, or `None`.
        checkpoint: The checkpoint. It is left as it is.
        config: The config of the save, for the namespace.
        messages_key: The channel with the messages.

    Returns:
        A copy, or the checkpoint itself when nothing was pruned.
    """
    messages = (checkpoint.get("channel_values") or {}).get(messages_key)
    if reducer is None or not isinstance(messages, list) or is_delta(messages, {}, messages_key):
        return checkpoint
    result = reducer.reduce(messages, [], namespace=memory_namespace(reducer, config))
    if not result.pruned:
        return checkpoint
    values = {**checkpoint["channel_values"], messages_key: result.surviving}
    return {**checkpoint, "channel_values": values}


def _check(inner: Any, reducer: Any) -> None:
    if not isinstance(inner, BaseCheckpointSaver):
        kind = type(inner).__name__
        if isinstance(inner, AbstractAsyncContextManager):
            hint = "open it first: `async with ... as saver: ReducingSaver(saver, reducer)`"
        elif isinstance(inner, AbstractContextManager):
            hint = "open it first: `with ... as saver: ReducingSaver(saver, reducer)`"
        else:
            hint = "pass a BaseCheckpointSaver"
        raise TypeError(f"ReducingSaver wraps a saver, not a {kind}; {hint}")
    if reducer is None:
        raise ValueError("ReducingSaver needs a reducer; without one use the saver as it is")
    if not isinstance(reducer, MessageReducer):
        raise TypeError(f"ReducingSaver needs a MessageReducer, not a {type(reducer).__name__}")


def _hand_over(inner: Any, reducer: MessageReducer, messages_key: str) -> bool:
    """Decide who reduces a channel: `True` when it is the inner saver or a wrapper in it."""
    saver, its_key = inner, None
    while isinstance(saver, ReducingSaver):
        if saver.messages_key == messages_key:
            return _same(saver, reducer)
        if saver.passthrough:
            its_key = saver.messages_key
        saver = saver.inner
    existing = getattr(saver, "reducer", _MISSING)
    if existing is _MISSING:
        return False
    if existing is None:
        saver.reducer = reducer
        if hasattr(saver, "messages_key"):
            saver.messages_key = messages_key
        return True
    if getattr(saver, "messages_key", its_key or messages_key) != messages_key:
        return False
    return _same(saver, reducer)


def _same(saver: Any, reducer: MessageReducer) -> bool:
    if saver.reducer is reducer:
        return True
    raise ValueError(
        f"{type(saver).__name__} has another reducer for the same messages: each would hand the "
        "pruned turns to its hooks. Use one reducer, or wrap the saver once."
    )
