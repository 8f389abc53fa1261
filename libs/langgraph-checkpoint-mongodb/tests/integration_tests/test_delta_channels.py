"""Delta channels: the history they are rebuilt from, and what pruning leaves of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pymongo import MongoClient

from langgraph.checkpoint.mongodb import MissingChannelValueError
from tests.face import Face
from tests.hypothesis_profile import examples
from tests.integration_tests.delta_threads import (
    COLLECTIONS,
    DB,
    LARGE,
    DeltaThread,
    history,
    written,
)
from tests.support import CommandCounter, checkpoint, insert_old_write, insert_whole, thread

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot


@pytest.fixture(scope="module")
def module_database(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[DB]:
    """One database for all tests here: making its indexes takes longer than most of them."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield mongo_client[name]
    mongo_client.drop_database(name)


@pytest.fixture
def database(module_database: DB) -> Iterator[DB]:
    """The database, emptied afterwards."""
    yield module_database
    for name in COLLECTIONS:
        module_database[name].delete_many({})


def test_writes_come_oldest_first_as_task_channel_value(face: Face) -> None:
    chain = DeltaThread(face)
    for step in range(4):
        chain.step({"log": [step, -step]})
    entry = history(face, chain.config, "log")["log"]
    assert "seed" not in entry
    assert entry["writes"][:2] == [("task 0", "log", 0), ("task 0", "log", 0)]
    assert written(entry) == [0, 0, 1, -1, 2, -2]


def test_the_writes_of_the_checkpoint_itself_are_pending_and_not_part_of_it(face: Face) -> None:
    chain = DeltaThread(face)
    only = chain.step({"log": ["pending"]})
    assert history(face, only, "log") == {"log": {"writes": []}}


def test_a_config_without_a_checkpoint_means_the_newest(face: Face) -> None:
    chain = DeltaThread(face)
    for step in range(3):
        chain.step({"log": [step]})
    assert history(face, thread(), "log") == history(face, chain.config, "log")
    assert written(history(face, thread(), "log")["log"]) == [0, 1]


def test_the_walk_ends_at_the_nearest_snapshot_and_takes_its_writes(face: Face) -> None:
    chain = DeltaThread(face)
    chain.step({"log": ["far"]}, {"log": DeltaSnapshot(["farthest"])})
    chain.step({"log": ["near"]}, {"log": DeltaSnapshot(["nearest"])})
    chain.step({"log": ["after"]})
    last = chain.step({"log": ["pending"]})
    entry = history(face, last, "log")["log"]
    assert entry["seed"] == DeltaSnapshot(["nearest"])
    assert written(entry) == ["near", "after"]


@pytest.mark.parametrize("size", [1, len(LARGE)], ids=["small", "large"])
def test_the_plain_value_of_a_migrated_channel_is_a_seed(face: Face, size: int) -> None:
    chain = DeltaThread(face, counters=False)
    chain.step({"log": ["ignored"]}, {"log": ["old"]})
    chain.step({"log": ["first"]}, {"log": ["x" * size]})
    chain.counters = True
    chain.step({"log": ["second"]})
    last = chain.step({})
    entry = history(face, last, "log")["log"]
    assert entry["seed"] == ["x" * size]
    assert written(entry) == ["first", "second"]


@pytest.mark.parametrize("value", [None, [], 0, False, ""])
def test_a_seed_that_is_falsy_is_one(face: Face, value: Any) -> None:
    chain = DeltaThread(face)
    chain.step({"log": [1]}, {"log": value})
    last = chain.step({})
    entry = history(face, last, "log")["log"]
    assert entry["seed"] == value
    assert written(entry) == [1]


def test_each_channel_ends_at_its_own_seed(face: Face) -> None:
    chain = DeltaThread(face)
    chain.step({"a": [1], "b": [10], "c": [100]}, {"a": DeltaSnapshot([0])})
    chain.step({"a": [2], "b": [20], "c": [200]}, {"b": DeltaSnapshot([9])})
    chain.step({"a": [3], "b": [30]})
    last = chain.step({})
    found = history(face, last, "a", "b", "c", "unknown")
    assert [written(found[name]) for name in ("a", "b", "c")] == [[1, 2, 3], [20, 30], [100, 200]]
    assert "seed" not in found["c"]
    assert found["unknown"] == {"writes": []}


def test_a_fork_follows_its_own_ancestors_only(face: Face) -> None:
    chain = DeltaThread(face)
    root = chain.step({"log": ["root"]})
    left = DeltaThread(face, root)
    right = DeltaThread(face, root)
    left.step({"log": ["left"]})
    right.step({"log": ["right"]})
    assert written(history(face, left.step({}), "log")["log"]) == ["root", "left"]
    assert written(history(face, right.step({}), "log")["log"]) == ["root", "right"]


def test_namespaces_are_kept_apart(face: Face) -> None:
    outer, inner = DeltaThread(face), DeltaThread(face, thread("t", "sub:1"))
    outer.step({"log": ["outer"]})
    inner.step({"log": ["inner"]})
    assert written(history(face, inner.step({}), "log")["log"]) == ["inner"]
    assert written(history(face, outer.step({}), "log")["log"]) == ["outer"]


def test_the_writes_of_a_step_come_by_path_task_and_index(face: Face) -> None:
    chain = DeltaThread(face)
    config = chain.step({})
    face.put_writes(config, [("log", "late"), ("other", 0), ("log", "later")], "a", "~2")
    face.put_writes(config, [("log", "second")], "z", "~1")
    face.put_writes(config, [("log", "first")], "y", "~1")
    face.put_writes(config, [("log", "without a path")], "zz")
    last = chain.step({})
    assert written(history(face, last, "log")["log"]) == [
        *("without a path", "first", "second", "late", "later")
    ]


def test_no_channels_have_no_history(face: Face) -> None:
    config = DeltaThread(face).step({"log": [1]})
    assert face.get_delta_channel_history(config=config, channels=[]) == {}


def test_a_checkpoint_that_never_was_has_an_empty_history(face: Face) -> None:
    DeltaThread(face).step({"log": [1]})
    for config in (thread("unknown"), thread(checkpoint_id="unknown"), thread("t", "unknown")):
        assert history(face, config, "log") == {"log": {"writes": []}}


def test_a_large_seed_is_read_from_its_own_document(face: Face) -> None:
    chain = DeltaThread(face)
    chain.step({"log": [LARGE]}, {"log": DeltaSnapshot([LARGE]), "other": LARGE})
    last = chain.step({})
    entry = history(face, last, "log")["log"]
    assert entry["seed"] == DeltaSnapshot([LARGE])


def test_a_seed_that_vanished_is_told(face: Face, database: DB) -> None:
    chain = DeltaThread(face)
    chain.step({"log": [1]}, {"log": DeltaSnapshot([LARGE])})
    last = chain.step({})
    database["checkpoint_channel_values"].delete_many({})
    with pytest.raises(MissingChannelValueError) as caught:
        face.get_delta_channel_history(config=last, channels=["log"])
    assert [channel for channel, _ in caught.value.missing] == ["log"]


def test_ancestors_that_vanished_are_told(face: Face, database: DB) -> None:
    chain = DeltaThread(face)
    first = chain.step({"log": [1]}, {"log": DeltaSnapshot([LARGE])})
    chain.step({"log": [2]})
    last = chain.step({})
    database["checkpoints"].delete_one(dict(first["configurable"]))
    with pytest.raises(MissingChannelValueError) as caught:
        face.get_delta_channel_history(config=last, channels=["log"])
    assert [channel for channel, _ in caught.value.missing] == ["log"]


def test_a_whole_layout_thread_has_a_history_too(face: Face, database: DB) -> None:
    config = thread()
    for step in range(12):
        values = {} if step % 5 else {"log": [f"seed {step}"]}
        stored = checkpoint(values, {"log": step + 1})
        config = insert_whole(database, config, stored, {"step": step})
        for number, value in enumerate((f"{step} b", f"{step} a")):
            insert_old_write(
                database,
                config,
                task_id=f"task {1 - number}",
                task_path="",
                idx=0,
                channel="log",
                value=value,
            )
    entry = history(face, config, "log")["log"]
    assert entry["seed"] == ["seed 10"]
    assert written(entry) == ["10 a", "10 b"]
    assert written(history(face, config, "log", "unknown")["unknown"]) == []


steps = st.lists(
    st.tuples(
        st.dictionaries(
            st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=2), max_size=2
        ),
        st.dictionaries(
            st.sampled_from("abc"),
            st.sampled_from([DeltaSnapshot(["s"]), DeltaSnapshot([LARGE]), [LARGE], ["v"], None]),
            max_size=1,
        ),
        st.none() | st.none() | st.integers(0, 5),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, counters=st.booleans())
def test_any_history_is_the_one_that_the_base_class_finds(
    face: Face, steps: Any, counters: bool
) -> None:
    chain = DeltaThread(face, thread(f"thread {next(threads)}"), counters=counters)
    configs: list[RunnableConfig] = []
    for writes, stored, fork in steps:
        if fork is not None and configs:
            chain.config = configs[fork % len(configs)]
        configs.append(chain.step(writes, stored))
    for config in configs[-2:]:
        history(face, config, "a", "b", "c")


threads = itertools.count()


@pytest.mark.parametrize(
    ("counters", "seed_size", "most"),
    [(True, 1, 5), (True, len(LARGE), 5), (False, 1, 11), (False, len(LARGE), 11)],
)
def test_500_ancestors_take_a_handful_of_commands(
    counted: Face,
    counter: CommandCounter,
    database: DB,
    counters: bool,
    seed_size: int,
    most: int,
) -> None:
    chain = DeltaThread(counted, counters=counters)
    chain.step({"log": [0], "other": [LARGE]}, {"log": DeltaSnapshot(["x" * seed_size])})
    ancestor = chain.step({"log": [1], "other": [LARGE]})
    # As 499 steps would, without their commands.
    id_ = ancestor["configurable"]["checkpoint_id"]
    template = database["checkpoints"].find_one({"checkpoint_id": id_}, {"_id": 0})
    writes = [*database["checkpoint_writes"].find({"checkpoint_id": id_}, {"_id": 0})]
    assert template
    names = [id_, *(f"f{id_[1:-4]}{number:04d}" for number in range(499))]
    database["checkpoints"].insert_many(
        {**template, "checkpoint_id": name, "parent_checkpoint_id": parent}
        for parent, name in itertools.pairwise(names)
    )
    database["checkpoint_writes"].insert_many(
        {**one, "checkpoint_id": name} for name in names[1:] for one in writes
    )
    with counter.recording():
        found = counted.get_delta_channel_history(
            config=thread(checkpoint_id=names[-1]), channels=["log"]
        )
    assert len(found["log"]["writes"]) == 500
    assert found["log"]["seed"] == DeltaSnapshot(["x" * seed_size])
    assert len(counter.commands) <= most, counter.names
    for command in counter.commands:
        if command.collection == "checkpoint_writes":
            assert command.document["filter"]["channel"] == {"$in": ["log"]}


def add_all(state: list[Any], writes: Sequence[Any]) -> list[Any]:
    for write in writes:
        # It is typed to return one message or many; of a list it makes a list.
        state = add_messages(state, write)  # type: ignore[assignment]
    return state


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *itertools.chain.from_iterable(writes)]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(add_all, list, snapshot_frequency=7)]
    notes: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=11)]
    turn: int


def chat(ran: list[str]) -> Any:
    """Two tools beside each other, then an answer, with a question on every tenth turn."""

    def tool(name: str) -> Callable[[State], Any]:
        def run(state: State) -> dict[str, Any]:
            ran.append(f"{name} {state['turn']}")
            id_ = f"{name} {state['turn']}"
            message = ToolMessage(f"{name} says", tool_call_id=id_, id=id_)
            return {"messages": [message], "notes": [id_]}

        return run

    def ask(state: State) -> Any:
        turn = state["turn"]
        ran.append(f"before ask {turn}")
        answer = interrupt(f"turn {turn}?") if turn % 10 == 4 else "none"
        return {"messages": [AIMessage(f"{answer} of {turn}", id=f"ai {turn}")]}

    graph: Any = StateGraph(State)
    graph.add_node("left", tool("left")).add_node("right", tool("right")).add_node("ask", ask)
    graph.add_edge(START, "left").add_edge(START, "right")
    graph.add_edge("left", "ask").add_edge("right", "ask")
    return graph


def talk(name: str, prune: Callable[[], None]) -> Iterator[tuple[Any, RunnableConfig]]:
    """What is given to the graph in 60 turns."""
    config: RunnableConfig = {"configurable": {"thread_id": name}}
    for turn in range(60):
        message = HumanMessage(f"turn {turn}", id=f"human {turn}")
        yield {"messages": [message], "turn": turn}, config
        if turn % 5 == 4:
            prune()
        if turn % 10 == 4:
            yield Command(resume=f"answer {turn}"), config


def test_a_graph_pruned_every_five_turns_is_as_one_that_never_was(face: Face) -> None:
    pruned_ran: list[str] = []
    graph = face.compile(chat(pruned_ran))
    for given_, config in talk("pruned", lambda: face.prune(["pruned"], keep_last=6)):
        face.invoke(graph, given_, config)
    pruned = face.state_history(graph, thread("pruned"))

    ran: list[str] = []
    graph = chat(ran).compile(checkpointer=InMemorySaver())
    for given_, config in talk("twin", lambda: None):
        graph.invoke(given_, config)
    twin = [*graph.get_state_history(thread("twin"))]

    assert sorted(pruned_ran) == sorted(ran)
    tools = [one for one in pruned_ran if not one.startswith("before")]
    assert len(tools) == len(set(tools)) == 120
    assert len(pruned[0].values["messages"]) == 240
    assert len(pruned) == 6 < len(twin)
    for row, same in zip(pruned, twin, strict=False):
        assert (row.values, row.next) == (same.values, same.next)
        assert row.metadata["step"] == same.metadata["step"]
