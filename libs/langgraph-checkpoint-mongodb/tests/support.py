"""Builders for configs and checkpoints, and a listener that records a client's commands."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import bson
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES

if TYPE_CHECKING:
    from tests.face import Face

MB = 1024 * 1024
# The size of a value that is no longer inline but a document of its own, in bytes.
LARGE_SIZE = 2 * INLINE_VALUE_BYTES

HAS_DELTA_CHANNELS = hasattr(BaseCheckpointSaver, "get_delta_channel_history")
needs_delta_channels = pytest.mark.skipif(
    not HAS_DELTA_CHANNELS,
    reason="delta channels came with langgraph-checkpoint 4: install that to run this test",
)

# Commands that the driver sends for its own connections and sessions.
HOUSEKEEPING = frozenset({"hello", "isMaster", "ismaster", "endSessions"})


def thread(thread_id: str = "t", checkpoint_ns: str = "", **configurable: Any) -> RunnableConfig:
    """Build the config of a thread.

    Args:
        thread_id: The thread.
        checkpoint_ns: The namespace; empty is the graph itself.
        **configurable: Further keys, as `checkpoint_id`.
    """
    keys = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, **configurable}
    return {"configurable": keys}


def checkpoint(
    values: Mapping[str, Any],
    versions: Mapping[str, str | int | float],
    **fields: Any,
) -> Checkpoint:
    """Build a checkpoint whose id is greater than that of every one built before in this process.

    Args:
        values: The channels' values.
        versions: The channels' versions.
        **fields: Other fields to replace, as `id`, `v` or `versions_seen`.
    """
    made: Any = {  # the base class's releases differ in the fields
        "v": 4,
        "id": str(uuid6(clock_seq=0)),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": dict(values),
        "channel_versions": dict(versions),
        "versions_seen": {},
        "updated_channels": None,
        **fields,
    }
    stored: Checkpoint = made
    return stored


class Puts(Protocol):
    """What a thread can be put into: a face, or a saver itself."""

    def get_next_version(self, current: Any, channel: None, /) -> Any:
        """Return the version after one, or the first for None."""
        ...

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: Any, new_versions: Any, /
    ) -> RunnableConfig:
        """Store a checkpoint; return the config that names it."""
        ...


class Chain:
    """Puts checkpoints one after another, with channel versions as LangGraph makes them."""

    def __init__(
        self,
        face: Puts,
        thread_id: str = "t",
        checkpoint_ns: str = "",
        config: RunnableConfig | None = None,
    ) -> None:
        """Begin a thread.

        Args:
            face: The saver.
            thread_id: The thread.
            checkpoint_ns: The namespace.
            config: The parent of the first checkpoint, instead of a thread's beginning.
        """
        self.face: Any = face
        self.config: RunnableConfig = config or thread(thread_id, checkpoint_ns)
        self.values: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.number = -1

    def go_on_from(self, found: CheckpointTuple) -> None:
        """Let the next checkpoint follow one that was read."""
        self.config = found.config
        self.values = dict(found.checkpoint["channel_values"])
        self.versions = dict(found.checkpoint["channel_versions"])

    def put(
        self,
        changes: Mapping[str, Any],
        *,
        touch: Collection[str] = (),
        drop: Collection[str] = (),
        metadata: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> RunnableConfig:
        """Put the next checkpoint.

        Args:
            changes: Channels that the step writes, with their values.
            touch: Channels that it writes without a value in the checkpoint, as delta channels.
            drop: Channels that it empties.
            metadata: Metadata beside source and step.
            **fields: Fields of the checkpoint to replace.

        Returns:
            The config that names the checkpoint.
        """
        new = {}
        for channel in (*changes, *touch, *drop):
            new[channel] = self.face.get_next_version(self.versions.get(channel), None)
        self.versions |= new
        self.values |= changes
        for channel in drop:
            del self.values[channel]
        self.number += 1
        self.config = self.face.put(
            self.config,
            checkpoint(self.values, self.versions, **fields),
            {"source": "loop", "step": self.number, **(metadata or {})},
            new,
        )
        return self.config


def insert_whole(
    database: Database[dict[str, Any]],
    config: RunnableConfig,
    stored: Checkpoint,
    metadata: Mapping[str, Any],
    **fields: Any,
) -> RunnableConfig:
    """Insert a checkpoint document as release 0.5.1 does.

    Args:
        database: The database.
        config: The parent, or the thread of a first checkpoint.
        stored: The checkpoint, its versions integers.
        metadata: Its metadata.
        **fields: Further fields, as `created_at`.

    Returns:
        The config that names the checkpoint.
    """
    keys = config["configurable"]
    type_, data = JsonPlusSerializer().dumps_typed(stored)
    key = thread(keys["thread_id"], keys["checkpoint_ns"], checkpoint_id=stored["id"])
    document = {
        **key["configurable"],
        "parent_checkpoint_id": keys.get("checkpoint_id"),
        "type": type_,
        "checkpoint": data,
        "metadata": _old_metadata(metadata),
        **fields,
    }
    database["checkpoints"].insert_one(document)
    return key


def insert_old_write(
    database: Database[dict[str, Any]], config: RunnableConfig, **fields: Any
) -> None:
    """Insert a pending write document as release 0.5.1 does.

    Args:
        database: The database.
        config: The checkpoint it belongs to.
        **fields: Its other fields; `value` is serialized.
    """
    type_, data = JsonPlusSerializer().dumps_typed(fields.pop("value"))
    written = {**config["configurable"], **fields, "type": type_, "value": data}
    database["checkpoint_writes"].insert_one(written)


def _old_metadata(metadata: Any) -> Any:
    if isinstance(metadata, Mapping):
        return {key: _old_metadata(value) for key, value in metadata.items()}
    return [*JsonPlusSerializer().dumps_typed(metadata)]


def contents(database: Database[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Everything that a database holds, by collection."""
    names = sorted(database.list_collection_names())
    return {name: [*database[name].find({}).sort("_id", 1)] for name in names}


def values_of(face: Face, config: RunnableConfig) -> dict[str, Any]:
    """The channel values of a checkpoint that must exist."""
    found = face.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"]


@dataclass(frozen=True)
class Command:
    """A command that a client sent."""

    name: str
    """As the server calls it: `find`, `update`, `getMore` ..."""
    database: str
    document: Mapping[str, Any]
    """The command whole, its documents included."""

    @property
    def size(self) -> int:
        """The command's size as one BSON document, in bytes."""
        return len(bson.encode(self.document))

    @property
    def collection(self) -> str:
        """The collection it names; empty for a command on a database."""
        name = self.document.get("collection" if self.name == "getMore" else self.name)
        return name if isinstance(name, str) else ""


class CommandCounter(CommandListener):
    """Records the commands of the clients it is given to, while it is switched on.

    Give it to a client as `event_listeners=[counter]`. The driver's own commands
    (handshakes, ends of sessions) are left out.
    """

    def __init__(self) -> None:
        """Start switched off, with nothing recorded."""
        self.on = False
        self.commands: list[Command] = []

    @property
    def names(self) -> list[str]:
        """The names of the recorded commands, in the order they were sent."""
        return [command.name for command in self.commands]

    @contextlib.contextmanager
    def recording(self) -> Iterator[CommandCounter]:
        """Forget what was recorded, and record while the context is open."""
        self.commands.clear()
        self.on = True
        try:
            yield self
        finally:
            self.on = False

    def started(self, event: CommandStartedEvent) -> None:
        """Record a command as it is sent."""
        if self.on and event.command_name not in HOUSEKEEPING:
            sent = Command(event.command_name, event.database_name, event.command)
            self.commands.append(sent)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing to do: a command counts when it is sent."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing to do: a command counts when it is sent."""
