"""Builders for configs and checkpoints, and a listener that records a client's commands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import bson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
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
