"""Delta channels: the history they are rebuilt from, and what pruning leaves of it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face
from tests.hypothesis_profile import examples
from tests.support import Chain, CommandCounter, checkpoint, insert_old_write, insert_whole, thread

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot

COUNTERS = "counters_since_delta_snapshot"
LARGE = "x" * 2 * INLINE_VALUE_BYTES
COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")
DB = Database[dict[str, Any]]


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


class DeltaThread(Chain):
    """A thread with delta channels, put as langgraph puts it.

    Args:
        face: The saver.
        config: Where it begins.
        counters: Whether checkpoints count since their snapshots, as langgraph's do.
    """

    def __init__(
        self, face: Face, config: RunnableConfig | None = None, *, counters: bool = True
    ) -> None:
        super().__init__(face, config=config)
        self.counters = counters
        self.counted: dict[str, int] = {}
        self.silent: tuple[str, ...] = ()

    def step(
        self, writes: Mapping[str, Sequence[Any]], stored: Mapping[str, Any] | None = None
    ) -> RunnableConfig:
        """Put a checkpoint and the writes of the step after it.

        Args:
            writes: What the next step writes, by channel.
            stored: Values that the checkpoint holds: snapshots, plain values.
        """
        stored = stored or {}
        for channel in {*writes, *stored}:
            self.counted[channel] = 0 if channel in stored else self.counted.get(channel, 0) + 1
        metadata: dict[str, Any] = {}
        counted = {channel: (n, n) for channel, n in self.counted.items() if n}
        # langgraph counts the steps of every delta channel, written or not.
        counted |= dict.fromkeys(self.silent, (0, 4000))
        if self.counters and counted:
            metadata[COUNTERS] = counted
        self.values = {}
        self.put(stored, touch=writes.keys() - stored.keys(), metadata=metadata)
        for number, (channel, values) in enumerate(writes.items()):
            task = f"task {number}"
            self.face.put_writes(self.config, [(channel, value) for value in values], task)
        return self.config


def by_the_base_class(face: Face, config: RunnableConfig, channels: Sequence[str]) -> Any:
    """What the base class's own walk answers, on the same saver."""
    saver = face.saver
    if isinstance(saver, MongoDBSaver):
        return BaseCheckpointSaver.get_delta_channel_history(
            saver, config=config, channels=channels
        )
    return face.run(
        BaseCheckpointSaver.aget_delta_channel_history(saver, config=config, channels=channels)
    )


def history(face: Face, config: RunnableConfig, *channels: str) -> Any:
    """The history of channels, after it was found equal to the base class's."""
    found = face.get_delta_channel_history(config=config, channels=channels)
    assert found == by_the_base_class(face, config, channels)
    return found


def written(entry: Any) -> list[Any]:
    return [value for _, _, value in entry["writes"]]


# ---------------------------------------------------------------------- the contract


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


# ---------------------------------------------------------------------- its cost


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


# ---------------------------------------------------------------------- pruning


def test_prune_keeps_what_is_needed_back_to_the_last_snapshot(face: Face, database: DB) -> None:
    chain = DeltaThread(face)
    chain.step({"log": ["a"]}, {"log": DeltaSnapshot(["old"])})
    chain.step({"log": ["b"]})
    chain.step({"log": ["c"]}, {"log": DeltaSnapshot(["seed"])})
    for step in range(3):
        last = chain.step({"log": [step]})
    before = history(face, last, "log")
    face.prune(["t"])
    # Those that are kept for it are no part of the thread's history any more.
    assert [row.config for row in face.list(thread())] == [last]
    assert face.get_delta_channel_history(config=last, channels=["log"]) == before
    assert written(before["log"]) == ["c", 0, 1]
    assert database["checkpoints"].count_documents({}) == 4
    chain.step({}, {"log": DeltaSnapshot(["c", 0, 1, 2])})
    face.prune(["t"])
    assert database["checkpoints"].count_documents({}) == 1


def test_prune_of_a_newest_snapshot_keeps_nothing_else(face: Face) -> None:
    chain = DeltaThread(face)
    for step in range(3):
        chain.step({"log": [step]})
    chain.step({"log": ["pending"]}, {"log": DeltaSnapshot([0, 1, 2])})
    face.prune(["t"])
    (row,) = face.list(thread())
    assert row.checkpoint["channel_values"] == {"log": DeltaSnapshot([0, 1, 2])}
    assert row.pending_writes == [("task 0", "log", "pending")]


def test_a_channel_that_was_never_written_keeps_nothing(face: Face) -> None:
    chain = DeltaThread(face)
    chain.silent = ("silent",)
    for step in range(5):
        chain.step({"log": [step]}, {"log": DeltaSnapshot([step])})
    face.prune(["t"])
    assert len(face.list(thread())) == 1


def test_a_carried_snapshot_needs_no_ancestor(face: Face) -> None:
    chain = DeltaThread(face)
    chain.step({}, {"log": DeltaSnapshot([LARGE])})
    chain.step({"other": [1]})
    chain.step({"other": [2]}, {"other": DeltaSnapshot([1])})
    face.prune(["t"])
    (row,) = face.list(thread())
    assert row.checkpoint["channel_values"]["log"] == DeltaSnapshot([LARGE])


def test_a_migrated_thread_keeps_its_plain_seed(face: Face) -> None:
    chain = DeltaThread(face, counters=False)
    chain.step({"log": ["before"]}, {"log": ["plain"]})
    chain.counters = True
    chain.step({"log": ["after"]})
    chain.step({"log": ["pending"]})
    before = history(face, chain.config, "log")
    face.prune(["t"])
    assert face.get_delta_channel_history(config=chain.config, channels=["log"]) == before
    assert before["log"]["seed"] == ["plain"]


def test_delete_for_runs_spares_the_ancestors_of_another_run(face: Face, database: DB) -> None:
    chain = DeltaThread(face)
    configs = [chain.step({"log": [step]}) for step in range(4)]
    first = {
        "checkpoint_id": {"$in": [one["configurable"]["checkpoint_id"] for one in configs[:3]]}
    }
    database["checkpoints"].update_many(first, {"$set": {"run_id": "old run"}})
    before = history(face, chain.config, "log")
    face.delete_for_runs(["old run"])
    assert face.get_delta_channel_history(config=chain.config, channels=["log"]) == before
    assert written(before["log"]) == [0, 1, 2]


def test_retention_of_many_delta_checkpoints_takes_few_commands(
    counted: Face, counter: CommandCounter
) -> None:
    chain = DeltaThread(counted)
    for step in range(60):
        chain.step({"log": [step]}, {"log": DeltaSnapshot([step])} if step % 20 == 0 else None)
    with counter.recording():
        counted.prune(["t"], keep_last=25)
    assert len(counter.commands) <= 20, counter.names
    found = counted.get_delta_channel_history(config=chain.config, channels=["log"])
    assert written(found["log"]) == [*range(40, 59)]
    assert len(counted.list(thread())) == 25


@pytest.mark.parametrize("since", [1, 20, 200])
def test_a_checkpoint_that_was_read_tells_how_far_its_history_reaches(
    counted: Face, counter: CommandCounter, since: int
) -> None:
    chain = DeltaThread(counted)
    chain.silent = ("never written",)
    for number in range(30):
        chain.step({"log": [number]})
    chain.step({"log": ["kept"]}, {"log": DeltaSnapshot(["seed"])})
    for number in range(since):
        chain.step({"log": [number]})
    last = chain.config
    assert counted.get_tuple(thread()) is not None
    with counter.recording():
        entry = counted.get_delta_channel_history(config=last, channels=["log"])["log"]
    assert written(entry) == ["kept", *range(since - 1)]
    # The ancestors, the seed, their writes, and whether the checkpoint is still there.
    assert counter.names == ["find"] * 4
    assert counter.commands[0].document["limit"] == since + 32


@pytest.mark.parametrize(
    "counters", [{"log": 7}, {"log": ["7", "7"]}, {"log": (1, 0)}, {"log": (1, -9)}, [7], "7", {}]
)
def test_counters_of_another_form_do_not_hide_the_history(face: Face, counters: Any) -> None:
    chain = DeltaThread(face)
    chain.step({"log": ["kept"]}, {"log": DeltaSnapshot(["seed"])})
    for number in range(12):
        chain.step({"log": [number]})
    metadata: dict[str, Any] = {"source": "loop", "step": 0, COUNTERS: counters}
    last = face.put(chain.config, checkpoint({}, chain.versions), metadata, {})
    assert face.get_tuple(last)
    found = face.get_delta_channel_history(config=last, channels=["log"])
    assert written(found["log"]) == ["kept", *range(12)]
    assert found == by_the_base_class(face, last, ["log"])


def test_forks_between_its_ancestors_do_not_cut_a_history(
    counted: Face, counter: CommandCounter
) -> None:
    chain = DeltaThread(counted)
    chain.step({"log": ["kept"]}, {"log": DeltaSnapshot(["seed"])})
    trunk = chain.config
    for number in range(20):
        chain.step({"log": [number]})
        trunk, fork = chain.config, chain.counted.copy()
        for beside in range(3):
            chain.config = trunk
            chain.step({"log": [f"{number} beside {beside}"]})
        chain.config, chain.counted = trunk, fork
    last = chain.step({})
    assert counted.get_tuple(last)
    with counter.recording():
        found = counted.get_delta_channel_history(config=last, channels=["log"])
    assert written(found["log"]) == ["kept", *range(20)]
    # The page after one that was too short is no longer than a first one else.
    assert [one.document["limit"] for one in counter.commands[:2]] == [52, 128]


# ---------------------------------------------------------------------- a real graph


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
