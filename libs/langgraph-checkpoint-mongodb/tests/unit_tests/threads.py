"""Threads of any shape in a saver on mongomock: forks, delta channels, both layouts."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field
from typing import Any

import mongomock
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, config_of
from langgraph.checkpoint.mongodb._layout.layouts import LAYOUTS, SPLIT
from tests.support import checkpoint, thread

CHANNELS = ("log", "notes")
ACTIONS = ("write", "snapshot", "idle", "plain")


@dataclass(frozen=True)
class Node:
    """A checkpoint to be: its parent's place (None for a root) and what happens in it."""

    parent: int | None
    actions: tuple[str, ...]


def mongomock_saver() -> MongoDBSaver:
    """A saver that needs no server."""
    client: Any = mongomock.MongoClient()
    return MongoDBSaver(client, "db")


@st.composite
def shapes(draw: st.DrawFn, most: int = 9) -> list[Node]:
    """Threads with forks and several roots; children come after their parents."""
    count = draw(st.integers(1, most))
    nodes = []
    for place in range(count):
        # Mostly chains, so that walks are long.
        parents = st.just(place - 1) | st.integers(-1, place - 1)
        parent = draw(parents)
        actions = draw(st.tuples(*[st.sampled_from(ACTIONS)] * len(CHANNELS)))
        nodes.append(Node(None if parent < 0 else parent, actions))
    return nodes


@dataclass
class _State:
    """What a checkpoint passes on to its children."""

    config: RunnableConfig
    versions: dict[str, Any] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, tuple[int, int]] = field(default_factory=dict)


def build(
    saver: MongoDBSaver,
    nodes: list[Node],
    ids: list[str] | None = None,
    *,
    layout: int = SPLIT.number,
) -> list[CheckpointKey]:
    """Put a thread as LangGraph does: a delta channel's writes lie at the parent of a step.

    Args:
        saver: The saver.
        nodes: The checkpoints.
        ids: Their ids; in their order unless given.
        layout: The layout that the thread began in.

    Returns:
        Their keys.
    """
    saver._memory.note_layout("t", LAYOUTS[layout])
    ids = ids or [f"{place:04}" for place in range(len(nodes))]
    states: list[_State] = []
    marks = itertools.count()
    for node, checkpoint_id in zip(nodes, ids, strict=True):
        parent = _State(thread("t")) if node.parent is None else states[node.parent]
        state = copy.deepcopy(parent)
        step = _Step(saver, parent, state, first=0 if layout == 1 else None)
        for channel, action in zip(CHANNELS, node.actions, strict=True):
            step.act(channel, action, next(marks))
        metadata: Any = {"source": "loop", COUNTERS: state.counters}
        made = checkpoint({**state.plain, **step.snapshots}, state.versions, id=checkpoint_id)
        state.config = saver.put(parent.config, made, metadata, step.new)
        states.append(state)
    return [CheckpointKey("t", "", checkpoint_id) for checkpoint_id in ids]


class _Step:
    """One step of a graph: from a checkpoint to its child."""

    def __init__(self, saver: MongoDBSaver, parent: _State, state: _State, first: Any) -> None:
        self._saver, self._parent, self._state, self._first = saver, parent, state, first
        self.new: dict[str, Any] = {}
        self.snapshots: dict[str, Any] = {}

    def act(self, channel: str, action: str, mark: int) -> None:
        state = self._state
        root = not state.config["configurable"].get("checkpoint_id")
        if action == "idle" or (action == "write" and root):
            if channel not in state.plain:
                updates, steps = state.counters.get(channel, (0, 0))
                state.counters[channel] = (updates, steps + 1)
            return
        version = self._saver.get_next_version(state.versions.get(channel, self._first))
        self.new[channel] = state.versions[channel] = version
        state.plain.pop(channel, None)
        updates, steps = state.counters.pop(channel, (0, 0))
        if action == "write":
            state.counters[channel] = (updates + 1, steps + 1)
            # The order of paths is not that of the tasks, nor of writing.
            writes = [(channel, f"{channel} {mark}"), ("other", mark)]
            self._saver.put_writes(self._parent.config, writes, f"task {mark}", f"~{mark * 7 % 5}")
        elif action == "snapshot":
            # Left out of later checkpoints, until the channel changes.
            self.snapshots[channel] = DeltaSnapshot([mark])
        else:
            # Of a time before the channel became a delta channel.
            state.plain[channel] = [mark]


def rebuilt(saver: MongoDBSaver, key: CheckpointKey) -> list[str]:
    """The channels whose history LangGraph asks for at a checkpoint."""
    found = saver.get_tuple(config_of(key))
    assert found is not None
    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    return [channel for channel in CHANNELS if channel in versions and channel not in values]
