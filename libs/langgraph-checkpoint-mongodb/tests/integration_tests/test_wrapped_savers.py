"""Delta channels for whoever knows only `get_tuple`, `list` and parents, after retention.

LangGraph's API server wraps a custom checkpointer so: the base class then walks along parents.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph import START, StateGraph
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MissingChannelValueError
from tests.face import Face
from tests.support import thread

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )

from langgraph.channels.delta import DeltaChannel

DB = Database[dict[str, Any]]


class Wrapped(BaseCheckpointSaver[Any]):
    """Forwards the methods that every saver has, and no others."""

    def __init__(self, inner: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=inner.serde)
        self.inner = inner

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.inner.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.inner.get_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[CheckpointTuple]:
        return self.inner.list(config, **options)

    def put(self, *given: Any) -> RunnableConfig:
        return self.inner.put(*given)

    def put_writes(self, *given: Any, **options: Any) -> None:
        self.inner.put_writes(*given, **options)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self.inner.aget_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        async for row in self.inner.alist(config, **options):
            yield row

    async def aput(self, *given: Any) -> RunnableConfig:
        return await self.inner.aput(*given)

    async def aput_writes(self, *given: Any, **options: Any) -> None:
        await self.inner.aput_writes(*given, **options)


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *itertools.chain.from_iterable(writes)]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=5)]
    notes: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=7)]


class Unaware(TypedDict):
    """Another graph's state, on the same thread."""

    n: int


def builder(*, unaware: bool = False) -> Any:
    if unaware:
        other = StateGraph(Unaware).add_node("count", lambda state: {"n": state["n"] + 1})
        return other.add_edge(START, "count")
    graph = StateGraph(State)
    graph.add_node("add", lambda state: {"log": ["node"], "notes": [str(len(state["log"]))]})
    return graph.add_edge(START, "add")


def run_of(turn: int) -> RunnableConfig:
    return {**thread(), "metadata": {"run_id": f"run {turn}"}}


def talk(face: Face, graph: Any, turns: int) -> Any:
    for turn in range(turns):
        face.invoke(graph, {"log": [f"turn {turn}"]}, run_of(turn))
    return face.get_state(graph, thread()).values


def wrapped(face: Face) -> Any:
    return builder().compile(checkpointer=Wrapped(face.saver))


def native(face: Face) -> Any:
    return face.compile(builder())


def prune_twice(face: Face) -> None:
    face.prune(["t"], keep_last=4)
    face.prune(["t"])


def copy_what_was_pruned(face: Face) -> None:
    face.prune(["t"])
    face.copy_thread("t", "copy")


HOW: dict[str, Callable[[Face], None]] = {
    "prune": lambda face: face.prune(["t"]),
    "prune with more kept": lambda face: face.prune(["t"], keep_last=3),
    "prune twice": prune_twice,
    "delete a run": lambda face: face.delete_for_runs(["run 1"]),
    "delete the first runs": lambda face: face.delete_for_runs(["run 0", "run 1", "run 2"]),
    "copy what was pruned": copy_what_was_pruned,
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("turns", [2, 4, 7])
def test_a_wrapper_reads_the_whole_state_after_retention_and_goes_on(
    face: Face, how: str, turns: int
) -> None:
    before = talk(face, wrapped(face), turns)
    HOW[how](face)
    face = face.fresh()
    graph, config = wrapped(face), thread("copy" if how.startswith("copy") else "t")
    assert len(before["notes"]) == turns
    if how == "delete a run" and turns == 2:
        # The newest went: the state is the one of the turn before.
        before = {"log": before["log"][:2], "notes": before["notes"][:1]}
    if how == "delete the first runs" and turns == 2:
        assert face.get_tuple(config) is None
        return
    assert face.get_state(graph, config).values == before
    after = face.invoke(graph, {"log": ["more"]}, config)
    assert after["log"] == [*before["log"], "more", "node"]
    assert face.get_state(native(face), config).values == after


def test_what_is_kept_for_delta_channels_alone_is_in_no_history(face: Face) -> None:
    graph = wrapped(face)
    talk(face, graph, 3)
    face.prune(["t"])
    assert len(face.state_history(graph, thread())) == len(face.list(thread())) == 1
    (row,) = face.list(thread())
    assert row.parent_config is not None
    assert [*face.list(row.parent_config)] == []
    assert face.list(thread(), before=row.config) == []


def test_it_is_found_by_its_id_as_a_walk_along_parents_asks_for_it(face: Face) -> None:
    talk(face, wrapped(face), 3)
    before = {row.config["configurable"]["checkpoint_id"]: row for row in face.list(thread())}
    face.prune(["t"])
    row = face.get_tuple(thread())
    steps = 0
    while row and row.parent_config:
        row = face.get_tuple(row.parent_config)
        assert row is not None
        assert row == before[row.config["configurable"]["checkpoint_id"]]
        steps += 1
    assert steps > 3


@pytest.mark.parametrize("make", [native, wrapped])
def test_a_state_whose_ancestors_expired_is_an_error_and_nothing_is_built_on_it(
    face: Face, database: DB, make: Any
) -> None:
    graph = make(face)
    talk(face, graph, 3)
    newest = face.list(thread(), limit=1)[0].config["configurable"]["checkpoint_id"]
    database["checkpoints"].delete_many({"checkpoint_id": {"$lt": newest}})
    for one in (face, face.fresh()):
        with pytest.raises(MissingChannelValueError, match="notes"):
            one.get_state(make(one), thread())
        with pytest.raises(MissingChannelValueError, match="notes"):
            one.invoke(make(one), {"log": ["more"]}, thread())
    assert database["checkpoints"].count_documents({}) == 1


@pytest.mark.parametrize(("turns", "are_whole"), [(9, True), (7, False)])
@pytest.mark.parametrize("make", [native, wrapped])
def test_a_hidden_checkpoint_is_read_whole_or_not_at_all_and_forked_whole_or_not_at_all(
    face: Face, make: Any, turns: int, are_whole: bool
) -> None:
    graph = make(face)
    talk(face, graph, turns)
    states = {
        row.config["configurable"]["checkpoint_id"]: row.values
        for row in face.state_history(graph, thread())
    }
    # Other channels of what is kept may go back further than what it is kept for.
    face.prune(["t"])
    (newest, *others) = [row.config["configurable"]["checkpoint_id"] for row in face.list(thread())]
    read, cut, gone = [], [], []
    for checkpoint_id in sorted(states.keys() - {newest, *others}):
        config = thread("t", checkpoint_id=checkpoint_id)
        if face.get_tuple(config) is None:
            gone.append(checkpoint_id)
            continue
        try:
            state = face.get_state(graph, config)
        except MissingChannelValueError:
            cut.append(checkpoint_id)
            continue
        assert state.values == states[checkpoint_id]
        read.append(checkpoint_id)
    assert gone
    # After seven turns `notes` were just stored; before, they go back to what is gone.
    assert (read, cut)[not are_whole]
    assert not (cut, read)[not are_whole]
    for checkpoint_id in [*read, *cut]:
        config = thread("t", checkpoint_id=checkpoint_id)
        try:
            forked = face.update_state(graph, config, {"log": ["fork"]}, as_node="add")
        except MissingChannelValueError:
            continue
        log = [*states[checkpoint_id]["log"], "fork"]
        assert face.get_state(graph, forked).values == {**states[checkpoint_id], "log": log}
    for checkpoint_id in (newest, *others):
        state = face.get_state(graph, thread("t", checkpoint_id=checkpoint_id))
        assert state.values == states[checkpoint_id]


# ---------------------------------------------------------------------- a graph that does not know


def a_turn_of_another_graph(face: Face, make: Any) -> Any:
    """A thread whose newest checkpoints count no delta channels; its state."""
    before = talk(face, make(face), 3)
    other = face.compile(builder(unaware=True))
    face.invoke(other, {"n": 1}, run_of(3))
    return before


@pytest.mark.parametrize("make", [native, wrapped])
def test_a_delta_channel_below_a_turn_of_another_graph_is_whole_after_retention(
    face: Face, make: Any
) -> None:
    before = a_turn_of_another_graph(face, make)
    face.delete_for_runs(["run 1"])
    face.prune(["t"])
    face.prune(["t"])
    face = face.fresh()
    graph = make(face)
    assert face.get_state(graph, thread()).values == before
    after = face.invoke(graph, {"log": ["more"]}, thread())
    assert after["log"] == [*before["log"], "more", "node"]


@pytest.mark.parametrize("make", [native, wrapped])
def test_a_delta_channel_below_a_turn_of_another_graph_is_an_error_without_its_ancestors(
    face: Face, database: DB, make: Any
) -> None:
    a_turn_of_another_graph(face, make)
    ids = [row.config["configurable"]["checkpoint_id"] for row in face.list(thread())]
    # The other graph's own are left, then only its last.
    for oldest in (ids[2], ids[0]):
        database["checkpoints"].delete_many({"checkpoint_id": {"$lt": oldest}})
        fresh = face.fresh()
        with pytest.raises(MissingChannelValueError, match="log"):
            fresh.get_state(make(fresh), thread())
