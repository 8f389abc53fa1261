"""prune: old checkpoints go, and nothing that a kept one needs."""

from __future__ import annotations

import logging
import operator
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest
from bson import ObjectId
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pymongo import MongoClient

from tests.face import Face, MakeFace
from tests.integration_tests.retention import (
    COLLECTIONS,
    DB,
    LARGE,
    MakeThread,
    all_of,
    both_layouts,
    split_thread,
    steps,
    stored,
    value_names,
)
from tests.support import (
    Chain,
    CommandCounter,
    checkpoint,
    thread,
    values_of,
)


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


@both_layouts
def test_prune_keeps_the_newest_with_its_writes_and_every_value(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    make(face, database, "other")
    (before, *_) = face.list(thread())
    face.prune(["t"])
    assert face.list(thread()) == [before]
    assert before.checkpoint["channel_values"] == {"n": 3, "big": LARGE, "doc": "2" * len(LARGE)}
    assert before.pending_writes == [("task 3", "n", 4)]
    assert stored(database)["checkpoint_writes"] == 1
    assert steps(face, thread("other")) == [3, 2, 1, 0]


def test_prune_removes_the_values_that_no_kept_checkpoint_names(face: Face, database: DB) -> None:
    split_thread(face, database)
    assert value_names(database) == ["big 1", "doc 1", "doc 2"]
    face.prune(["t"])
    assert value_names(database) == ["big 1", "doc 2"]


@both_layouts
def test_prune_keeps_the_newest_of_each_namespace(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    make(face, database, checkpoint_ns="sub:1")
    make(face, database, checkpoint_ns="sub:2")
    face.prune(["t"])
    kept = [(one.config["configurable"]["checkpoint_ns"]) for one in face.list(all_of())]
    assert sorted(kept) == ["", "sub:1", "sub:2"]
    assert steps(face, all_of()) == [3, 3, 3]


@both_layouts
@pytest.mark.parametrize("keep_last", [1, 2, 3, 4, 9])
def test_prune_keeps_as_many_as_asked(
    face: Face, database: DB, make: MakeThread, keep_last: int
) -> None:
    make(face, database)
    face.prune(["t"], keep_last=keep_last)
    assert steps(face, thread()) == [3, 2, 1, 0][:keep_last]


@both_layouts
def test_a_pruned_thread_goes_on(face: Face, database: DB, make: MakeThread) -> None:
    make(face, database)
    face.prune(["t"])
    found = face.get_tuple(thread())
    assert found is not None
    versions = dict(found.checkpoint["channel_versions"])
    versions["n"] = face.saver.get_next_version(versions["n"])
    values = {**found.checkpoint["channel_values"], "n": 9}
    config = face.put(found.config, checkpoint(values, versions), {"step": 9}, {"n": versions["n"]})
    assert values_of(face.fresh(), config) == {"n": 9, "big": LARGE, "doc": "2" * len(LARGE)}
    face.prune(["t"])
    assert values_of(face.fresh(), thread()) == {"n": 9, "big": LARGE, "doc": "2" * len(LARGE)}


def test_prune_again_changes_nothing(face: Face, database: DB) -> None:
    split_thread(face, database)
    face.prune(["t"])
    before = [[*database[name].find()] for name in COLLECTIONS]
    face.prune(["t"])
    assert [[*database[name].find()] for name in COLLECTIONS] == before


def test_prune_of_forks_keeps_the_newest_of_all(face: Face, database: DB) -> None:
    configs = split_thread(face, database)
    chain = Chain(face, config=configs[0])
    row = face.get_tuple(configs[0])
    assert row is not None
    chain.values = dict(row.checkpoint["channel_values"])
    chain.versions = dict(row.checkpoint["channel_versions"])
    chain.put({"n": 100})
    face.prune(["t"])
    assert steps(face, thread()) == [100]
    assert values_of(face, thread()) == {"n": 100, "big": LARGE, "doc": "0" * len(LARGE)}
    assert value_names(database) == ["big 1", "doc 1"]


@both_layouts
def test_prune_by_deleting_removes_the_threads(face: Face, database: DB, make: MakeThread) -> None:
    for name in ("t", "u", "stays"):
        make(face, database, name)
    face.prune(["t", "u"], strategy="delete")
    assert set(stored(database, "t").values()) == set(stored(database, "u").values()) == {0}
    assert steps(face, thread("stays")) == [3, 2, 1, 0]


def test_prune_of_no_or_unknown_threads_does_nothing(face: Face, database: DB) -> None:
    split_thread(face, database)
    face.prune([])
    face.prune(["unknown"])
    assert steps(face, thread()) == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("thread_ids", "arguments"),
    [
        (["t"], {"strategy": "keep_all"}),
        (["t"], {"strategy": ""}),
        (["t"], {"keep_last": 0}),
        (["t"], {"keep_last": -1}),
        ("t", {}),
        ([{"$ne": ""}], {}),
    ],
)
def test_prune_refuses_what_it_does_not_know(
    make_face: MakeFace, database: DB, thread_ids: Any, arguments: Any
) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    split_thread(face, database)
    with counter.recording(), pytest.raises(ValueError, match=r"strategy|keep_last|thread_id"):
        face.prune(thread_ids, **arguments)
    assert counter.names == []
    assert steps(face, thread()) == [3, 2, 1, 0]


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def paused_graph(ran: list[str]) -> Any:
    """A graph that stops in a subgraph of a subgraph, after tools have run at each level."""

    def tool(name: str) -> Any:
        def run(state: State) -> dict[str, Any]:
            ran.append(name)
            return {"done": [name]}

        return run

    def ask(state: State) -> dict[str, Any]:
        return {"done": [interrupt("go on?")]}

    inner = StateGraph(State).add_node("inner tool", tool("inner")).add_node("ask", ask)
    inner.add_edge(START, "inner tool").add_edge("inner tool", "ask")
    middle = StateGraph(State).add_node("middle tool", tool("middle"))
    middle.add_node("inner", inner.compile()).add_edge(START, "middle tool")
    middle.add_edge("middle tool", "inner")
    outer = StateGraph(State).add_node("tool", tool("outer"))
    outer.add_node("beside", tool("beside")).add_node("middle", middle.compile())
    outer.add_edge(START, "tool").add_edge("tool", "middle").add_edge("tool", "beside")
    return outer


def test_a_subgraph_paused_in_a_pruned_thread_resumes_and_runs_no_tool_twice(face: Face) -> None:
    ran: list[str] = []
    graph = face.compile(paused_graph(ran))
    for turn in range(3):
        face.invoke(graph, {"done": [f"turn {turn}"]}, thread())
        before = face.get_state(graph, thread(), subgraphs=True)
        face.prune(["t"])
        assert face.get_state(graph, thread(), subgraphs=True) == before
        assert sorted(ran) == ["beside", "inner", "middle", "outer"]
        answer = face.invoke(graph, Command(resume=f"yes {turn}"), thread())
        assert sorted(ran) == ["beside", "inner", "middle", "outer"]
        assert answer["done"][-1] == f"yes {turn}" or f"yes {turn}" in answer["done"]
        ran.clear()


def test_subgraphs_that_kept_checkpoints_wait_for_are_kept_though_others_are_newer(
    face: Face, database: DB
) -> None:
    chain = Chain(face)
    older = chain.put({"n": 0})
    newer = chain.put({"n": 1})
    sub = Chain(face, checkpoint_ns="sub:1")
    for caller, n in ((older, 10), (older, 11), (newer, 12)):
        sub.put({"n": n}, metadata={"parents": {"": caller["configurable"]["checkpoint_id"]}})
    face.prune(["t"], keep_last=2)
    assert sorted(steps(face, all_of())) == [0, 1, 11, 12]
    face.prune(["t"])
    assert sorted(steps(face, all_of())) == [1, 12]


def namespaces(face: Face) -> list[str]:
    return sorted(row.config["configurable"]["checkpoint_ns"] for row in face.list(all_of()))


def call(face: Face, checkpoint_ns: str, *callers: RunnableConfig, run: str = "run") -> Chain:
    """A checkpoint of a subgraph that was called from others, the outermost first."""
    keys = [caller["configurable"] for caller in callers]
    parents = {one["checkpoint_ns"]: one["checkpoint_id"] for one in keys}
    chain = Chain(face, checkpoint_ns=checkpoint_ns)
    chain.put({"n": 1, "big": LARGE}, metadata={"parents": parents, "run_id": run})
    return chain


def test_a_subgraphs_call_goes_with_the_checkpoint_that_called_it(face: Face, database: DB) -> None:
    chain = Chain(face)
    outer = [chain.put({"n": turn}) for turn in range(3)]
    for turn, caller in enumerate(outer):
        middle = call(face, f"agent:{turn}", caller)
        # Called twice in a task, and by a call that went on since.
        call(face, f"agent:{turn}|inner:0", caller, middle.config)
        call(face, f"agent:{turn}|1", caller)
        middle.put({"n": 2}, metadata={"parents": {"": caller["configurable"]["checkpoint_id"]}})
        call(face, f"agent:{turn}|inner:1", caller, middle.config)
    face.prune(["t"], keep_last=2)
    kept = [f"agent:{turn}{rest}" for turn in (1, 2) for rest in ("", "|1", "|inner:1")]
    assert namespaces(face) == ["", "", *kept]
    face.prune(["t"])
    assert namespaces(face) == ["", *kept[3:]]
    chain.put({"n": 4})
    face.prune(["t"])
    assert namespaces(face) == [""]
    assert stored(database) == dict(zip(COLLECTIONS, (1, 0, 0), strict=True))


def test_what_no_checkpoint_is_known_to_have_called_alone_stays(face: Face) -> None:
    chain = Chain(face)
    first = chain.put({"n": 0})
    chain.put({"n": 1})
    call(face, "agent", first)  # stateful: of all calls
    inside = call(face, "agent|inner", first)
    call(face, "tool:1")  # nothing tells who called it
    call(face, "agent|inner|deep:1", first, inside.config)
    not_yet = thread("t", checkpoint_id="f" * 8)
    call(face, "agent:2", not_yet)  # LangGraph stores a checkpoint while its tasks run
    everything = namespaces(face)
    face.prune(["t"])
    assert namespaces(face) == everything[1:]


def test_a_call_whose_caller_was_gone_long_ago_goes(face: Face, database: DB) -> None:
    Chain(face).put({"n": 0})
    call(face, "agent:1", thread("t", checkpoint_id="0" * 8))
    face.prune(["t"])
    assert namespaces(face) == ["", "agent:1"]
    (document,) = database["checkpoints"].find({"checkpoint_ns": "agent:1"})
    database["checkpoints"].delete_one({"_id": document["_id"]})
    hours_ago = ObjectId.from_datetime(datetime.now(UTC) - timedelta(hours=2))
    database["checkpoints"].insert_one({**document, "_id": hours_ago})
    face.prune(["t"])
    assert namespaces(face) == [""]


def test_deleting_a_run_takes_what_was_called_from_it_and_spares_what_another_run_left(
    face: Face,
) -> None:
    chain = Chain(face)
    first = chain.put({"n": 0}, metadata={"run_id": "first"})
    agent = call(face, "agent:1", first, run="first")
    second = chain.put({"n": 1}, metadata={"run_id": "second"})
    # The second run resumed what the first had called.
    parents = {"": first["configurable"]["checkpoint_id"]}
    agent.put({"n": 2}, metadata={"parents": parents, "run_id": "second"})
    call(face, "agent:2", second, run="second")
    chain.put({"n": 2}, metadata={"run_id": "third"})
    face.delete_for_runs(["second"])
    assert namespaces(face) == ["", "", "agent:1"]
    assert steps(face, thread("t", "agent:1")) == [1]
    face.delete_for_runs(["first"])
    assert namespaces(face) == [""]


class Turn(TypedDict):
    done: Annotated[list[str], operator.add]


@pytest.mark.parametrize("stateful", [False, True])
def test_a_thread_that_is_pruned_after_each_turn_does_not_grow_with_its_subgraphs_calls(
    face: Face, database: DB, stateful: bool
) -> None:
    inner = StateGraph(Turn).add_node("say", lambda _: {"done": ["said"]})
    tool = inner.add_edge(START, "say").compile(checkpointer=stateful or None)
    outer = StateGraph(Turn).add_node("agent", inner.compile(checkpointer=stateful or None))
    outer.add_node("tool", lambda _: {"done": tool.invoke({"done": ["asked"]})["done"][-1:]})
    graph = face.compile(outer.add_edge(START, "agent").add_edge("agent", "tool"))
    counts = []
    for turn in range(6):
        face.invoke(graph, {"done": [f"turn {turn}"]}, thread())
        face.prune(["t"])
        counts.append(stored(database)["checkpoints"])
    assert set(counts) == {3 if stateful else 1}
    assert face.get_state(graph, thread()).values["done"][-1] == "said"


def orphans(database: DB, when: datetime, thread_id: str = "t") -> None:
    """What a crash leaves: a value and a write, in namespaces with and without checkpoints."""
    for checkpoint_ns in ("", "gone"):
        key: dict[str, Any] = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
        value = {**key, "channel": "big", "version": f"{7:032d}.{7:016d}"}
        write = {**key, "checkpoint_id": "never", "task_id": "a", "task_path": "", "idx": 0}
        rest = {"type": "null", "value": b""}
        for name, document in zip(COLLECTIONS[1:], (write, value), strict=True):
            id_ = ObjectId(ObjectId.from_datetime(when).binary[:4] + ObjectId().binary[4:])
            database[name].insert_one({"_id": id_, **document, "channel": "big", **rest})


@pytest.mark.parametrize(("minutes", "left"), [(58, 2), (62, 0)])
@both_layouts
def test_prune_takes_what_a_crash_left_an_hour_ago_and_nothing_younger(
    face: Face, database: DB, make: MakeThread, minutes: int, left: int
) -> None:
    make(face, database)
    face.prune(["t"])
    before = stored(database)
    orphans(database, datetime.now(UTC) - timedelta(minutes=minutes))
    orphans(database, datetime.now(UTC) - timedelta(minutes=minutes), "other")
    face.prune(["t"])
    after = stored(database)
    assert after["checkpoint_writes"] == before["checkpoint_writes"] + left
    assert after["checkpoint_channel_values"] == before["checkpoint_channel_values"] + left
    assert stored(database, "other")["checkpoint_writes"] == 2
    assert steps(face, thread()) == [3]


def test_old_values_and_writes_that_are_named_stay(face: Face, database: DB) -> None:
    split_thread(face, database)
    old = ObjectId.from_datetime(datetime.now(UTC) - timedelta(days=400)).binary[:8]
    for name in COLLECTIONS:
        for number, document in enumerate([*database[name].find()]):
            database[name].delete_one({"_id": document["_id"]})
            aged = {**document, "_id": ObjectId(old + number.to_bytes(4, "big"))}
            database[name].insert_one(aged)
    before = face.list(thread())
    face.prune(["t"], keep_last=9)
    assert face.fresh().list(thread()) == before


@both_layouts
def test_delete_thread_leaves_nothing_whatever_crashed_before(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    make(face, database, checkpoint_ns="sub:1")
    make(face, database, "stays")
    orphans(database, datetime.now(UTC))
    before = stored(database, "stays")
    face.delete_thread("t")
    for name in database.list_collection_names():
        assert "'t'" not in str([*database[name].find()])
    assert stored(database, "stays") == before


def test_delete_thread_takes_the_values_that_an_older_release_left(
    face: Face, database: DB
) -> None:
    split_thread(face, database)
    # It knows the other two collections only.
    database["checkpoints"].delete_many({"thread_id": "t"})
    database["checkpoint_writes"].delete_many({"thread_id": "t"})
    face.delete_thread("t")
    assert set(stored(database).values()) == {0}


def test_pruning_thousands_takes_few_commands_of_bounded_size(
    make_face: MakeFace, database: DB
) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    (config, *_) = split_thread(face, database)
    query = {"checkpoint_id": config["configurable"]["checkpoint_id"]}
    templates = [database[name].find_one(query, {"_id": 0}) for name in COLLECTIONS[:2]]
    for name, template in zip(COLLECTIONS, templates, strict=False):
        assert template is not None
        database[name].insert_many(
            {**template, "checkpoint_id": f"0-{number:06d}"} for number in range(3000)
        )
    with counter.recording():
        face.prune(["t"])
    assert len(counter.commands) <= 30
    assert max(one.size for one in counter.commands) < 200_000
    assert steps(face, thread()) == [3]
    assert stored(database)["checkpoint_writes"] == 1


def test_what_was_removed_is_told_at_debug_level_only(
    face: Face, database: DB, caplog: pytest.LogCaptureFixture
) -> None:
    split_thread(face, database)
    split_thread(face, database, "u")
    with caplog.at_level(logging.DEBUG, logger="langgraph.checkpoint.mongodb"):
        face.prune(["t", "u"])
        face.copy_thread("t", "copy")
        face.delete_for_runs(["run 1"])
        face.delete_thread("copy")
    ours = [one for one in caplog.records if one.name.startswith("langgraph.checkpoint.mongodb")]
    assert {one.levelno for one in ours} == {logging.DEBUG}
    told = [one.getMessage() for one in ours]
    assert any("'t'" in one and "3 of 4 checkpoints" in one for one in told)
    assert any("'u'" in one and "3 of 4 checkpoints" in one for one in told)
    assert any("'copy'" in one for one in told)
