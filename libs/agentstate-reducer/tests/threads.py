"""Driving a saver as LangGraph does, and savers that fail on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver
from agentstate_reducer.messages import field


class Fault(ConnectionError):
    """The failure of a test."""


class Faulty(InMemorySaver):
    """Logs its calls, and fails at one of them, before or after it did what was asked.

    Attributes:
        log: The calls that store something, in order.
        fail_at: Which call fails, from 1; `None` for none.
        after: Whether it fails after it acted.
        failed: The call that failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.count = 0
        self.fail_at: int | None = None
        self.after = False
        self.failed: str | None = None

    def _step(self, name: str, act: Any) -> Any:
        self.count += 1
        failing = self.count == self.fail_at
        if failing:
            self.failed = name
        if failing and not self.after:
            raise Fault(f"call {self.count}, {name}, failed")
        done = act()
        self.log.append(name)
        if failing:
            raise Fault(f"call {self.count}, {name}, failed after it acted")
        return done

    def put(self, *args: Any) -> Any:
        return self._step("put", lambda: InMemorySaver.put(self, *args))

    def put_writes(self, *args: Any) -> Any:
        (_, first), *_ = args[1]
        name = f"put_{first['kind']}" if isinstance(first, dict) else "put_writes"
        return self._step(name, lambda: InMemorySaver.put_writes(self, *args))

    def list(self, *args: Any, **kwargs: Any) -> Iterator[CheckpointTuple]:
        found = self._step("list", lambda: [*InMemorySaver.list(self, *args, **kwargs)])
        return iter(found)


class Pruning(InMemorySaver):
    """Can delete all but the newest checkpoint of each namespace, and the checkpoints of runs."""

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread in thread_ids:
            for namespace, kept in self.storage[thread].items():
                self._delete(thread, namespace, set(kept) - {max(kept, default="")})

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        for found in list(self.list(None)):
            conf = found.config["configurable"]
            if found.metadata.get("run_id") in run_ids:
                place = conf["thread_id"], conf["checkpoint_ns"]
                self._delete(*place, {conf["checkpoint_id"]})

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    def _delete(self, thread: str, namespace: str, ids: set[str]) -> None:
        for id_ in ids:
            del self.storage[thread][namespace][id_]
            self.writes.pop((thread, namespace, id_), None)


class Remember:
    """A hook that remembers what it was handed."""

    def __init__(self, fail: int = 0) -> None:
        self.fail = fail
        self.batches: list[tuple[list[Any], Any]] = []
        self.keys: list[str] = []

    def __call__(self, messages: Any, namespace: Any) -> None:
        if self.fail:
            self.fail -= 1
            raise Fault("the hook failed")
        self.batches.append(([field(m, "content") for m in messages], namespace))
        self.keys.extend(messages.keys)

    @property
    def handed(self) -> list[str]:
        return [text for batch, _ in self.batches for text in batch]


def reducing(inner: Any, *hooks: Any, **settings: Any) -> ReducingSaver:
    """Wrap a saver with a new reducer: what another process would do."""
    defaults: dict[str, Any] = {"min_messages": 2, "max_messages": 4, "on_prune": [*hooks]}
    return ReducingSaver(inner, MessageReducer(config=ReducerConfig(**{**defaults, **settings})))


class Run:
    """One run of a graph on a thread: loads once, then saves the growing list step by step.

    Attributes:
        updated_channels: What checkpoints say they updated: what is right, nothing, or too much.

    Args:
        saver: Any saver.
        at: The checkpoint to go on from; the latest without one.
        thread: The thread.
        user: Part of the memory namespace.
    """

    updated_channels = "right"

    def __init__(
        self, saver: Any, at: str | None = None, thread: str = "t", user: str = "kim"
    ) -> None:
        self.saver = saver
        self.user = user
        self.conf: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": ""}
        found = saver.get_tuple(self._config(at))
        self.checkpoint = found.checkpoint if found else empty_checkpoint()
        self.parent: str | None = self.checkpoint["id"] if found else None
        self.messages: list[Any] = list(self.checkpoint["channel_values"].get("messages", []))
        self.step = found.metadata["step"] + 1 if found else -1

    def say(self, *messages: Any) -> str:
        """Save a step that adds messages, or puts them in the place of those with their id."""
        for message in messages:
            ids = [field(m, "id") for m in self.messages]
            if field(message, "id") is not None and field(message, "id") in ids:
                at = ids.index(field(message, "id"))
                self.messages = [*self.messages[:at], message, *self.messages[at + 1 :]]
            else:
                self.messages = [*self.messages, message]
        return self.save(["messages"])

    def work(self) -> str:
        """Save a step that leaves the messages alone."""
        return self.save(["other"])

    def save(self, channels: Sequence[str], id_: str | None = None) -> str:
        args = self.prepare(channels, id_)
        self.saver.put(*args)
        return self.saved(args)

    async def asay(self, *messages: Any) -> str:
        self.messages = [*self.messages, *messages]
        args = self.prepare(["messages"])
        await self.saver.aput(*args)
        return self.saved(args)

    def prepare(self, channels: Sequence[str], id_: str | None = None) -> tuple[Any, ...]:
        """Return the arguments of the next put."""
        versions = dict(self.checkpoint["channel_versions"])
        new = {c: self.saver.get_next_version(versions.get(c), None) for c in channels}
        checkpoint = {
            **self.checkpoint,
            "id": id_ or str(uuid6(clock_seq=self.step)),
            "channel_values": {"messages": self.messages, "other": self.step},
            "channel_versions": {**versions, **new},
            "updated_channels": {"right": sorted(channels), "none": None}.get(
                self.updated_channels, ["messages", "other"]
            ),
        }
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        return self._config(self.parent), checkpoint, metadata, new

    def saved(self, args: tuple[Any, ...]) -> str:
        self.checkpoint = args[1]
        self.parent = args[1]["id"]
        self.step += 1
        return str(self.parent)

    def _config(self, checkpoint_id: str | None) -> Any:
        conf = {**self.conf, "memory_namespace": ("memories", self.user)}
        if checkpoint_id is not None:
            conf["checkpoint_id"] = checkpoint_id
        return {"configurable": conf}


def stored(saver: Any, thread: str = "t", checkpoint_id: str | None = None) -> list[Any]:
    """Return the stored messages of a thread."""
    conf = {"thread_id": thread, "checkpoint_ns": ""}
    if checkpoint_id is not None:
        conf["checkpoint_id"] = checkpoint_id
    found = saver.get_tuple({"configurable": conf})
    return list(found.checkpoint["channel_values"].get("messages", []))
