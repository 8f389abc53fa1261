"""The TTL: switched on, changed and dropped, and what it must never take away."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pymongo.database import Database

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver
from langgraph.checkpoint.mongodb._database import clock as _clock
from langgraph.checkpoint.mongodb._database.clock import Reading
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from tests.face import Face, MakeFace
from tests.integration_tests.tampering import again
from tests.support import (
    LARGE_SIZE,
    Chain,
    CommandCounter,
    checkpoint,
    contents,
    insert_whole,
    needs_delta_channels,
    thread,
    values_of,
)

Data = Database[dict[str, Any]]

COLLECTIONS = {"checkpoints", "checkpoint_writes", "checkpoint_channel_values"}
TTL = 3600
LARGE = b"v" * LARGE_SIZE


def ttl_of(database: Data) -> dict[str, list[int]]:
    """The seconds of every TTL index, by collection."""
    return {
        name: [
            index["expireAfterSeconds"]
            for index in database[name].list_indexes()
            if "expireAfterSeconds" in index
        ]
        for name in database.list_collection_names()
    }


def use(face: Face, thread_id: str = "t") -> RunnableConfig:
    """Store something in every collection."""
    config = Chain(face, thread_id).put({"a": LARGE})
    face.put_writes(config, [("a", 1), ("__error__", "e")], "task")
    return config


def stamps(database: Data, collection: str) -> list[datetime]:
    """The stamps in a collection, oldest first."""
    found = [one["created_at"].replace(tzinfo=UTC) for one in database[collection].find({})]
    return sorted(found)


def age(database: Data, *, seconds: float) -> None:
    """Let everything be that much older."""
    for name in COLLECTIONS:
        for document in database[name].find({"created_at": {"$exists": True}}):
            older = document["created_at"] - timedelta(seconds=seconds)
            database[name].update_one({"_id": document["_id"]}, {"$set": {"created_at": older}})


def expire(database: Data) -> None:
    """Do at once what the server's TTL monitor does in time."""
    for name, seconds in ttl_of(database).items():
        for ttl in seconds:
            before = datetime.now(UTC) - timedelta(seconds=ttl)
            database[name].delete_many({"created_at": {"$lt": before}})


def test_without_a_ttl_nothing_is_stamped(face: Face, database: Data) -> None:
    use(face)
    assert not any(ttl_of(database).values())
    assert not any("created_at" in one for found in contents(database).values() for one in found)


def test_a_ttl_makes_its_index_on_every_collection(make_face: MakeFace, database: Data) -> None:
    use(make_face(ttl=TTL))
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_everything_that_is_written_is_stamped(make_face: MakeFace, database: Data) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    use(make_face(ttl=TTL))
    end = datetime.now(UTC) + timedelta(seconds=1)
    for name in ("checkpoints", "checkpoint_writes"):
        assert all(begin <= stamp <= end for stamp in stamps(database, name))
    # Values are stamped ahead: they are not rewritten each time that they are used.
    slack = timedelta(seconds=TTL / 10)
    (value,) = stamps(database, "checkpoint_channel_values")
    assert stamps(database, "checkpoints")[0] <= value <= end + slack


@pytest.mark.parametrize("later", [7200, 60, 1])
def test_a_changed_ttl_changes_the_indexes(make_face: MakeFace, database: Data, later: int) -> None:
    make_face(ttl=TTL).setup()
    make_face(ttl=later).setup()
    assert ttl_of(database) == {name: [later] for name in COLLECTIONS}


def test_the_same_ttl_again_is_fine(make_face: MakeFace, database: Data) -> None:
    use(make_face(ttl=TTL))
    use(make_face(ttl=TTL))
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_a_ttl_can_be_turned_on_later(make_face: MakeFace, database: Data) -> None:
    use(make_face())
    use(make_face(ttl=TTL), "later")
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_what_was_written_without_a_ttl_never_expires(make_face: MakeFace, database: Data) -> None:
    config = use(make_face())
    face = make_face(ttl=TTL)
    use(face, "later")
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(face, config) == {"a": LARGE}
    assert face.get_tuple(thread("later")) is None


def test_a_dropped_ttl_leaves_what_is_stamped_to_expire(
    make_face: MakeFace, database: Data
) -> None:
    use(make_face(ttl=TTL), "earlier")
    face = make_face()
    config = use(face)
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(face, config) == {"a": LARGE}
    assert face.get_tuple(thread("earlier")) is None


def test_a_value_is_kept_by_a_checkpoint_without_a_ttl(make_face: MakeFace, database: Data) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE})
    chain.face = make_face()
    config = chain.put({"b": 1})
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(chain.face, config) == {"a": LARGE, "b": 1}


@pytest.mark.parametrize("quiet", [0.01, 0.5, 0.99])
def test_an_unchanged_value_lives_as_long_as_the_last_checkpoint_that_names_it(
    make_face: MakeFace, database: Data, quiet: float
) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE, "__start__": {"x": bytes(1_500_000), "y": LARGE}})
    for _ in range(3):
        age(database, seconds=quiet * TTL)
        # What a saver remembers of the stamps does not grow older with them.
        chain.face = chain.face.fresh()
        config = chain.put({"b": 1})
    last = stamps(database, "checkpoints")[-1]
    assert stamps(database, "checkpoint_channel_values")[0] >= last
    age(database, seconds=TTL - 30)
    expire(database)
    assert values_of(chain.face, config) == chain.values
    age(database, seconds=TTL)
    expire(database)
    assert not any(contents(database).values())


def test_a_saver_that_remembers_the_stamps_renews_them_too(
    make_face: MakeFace, database: Data
) -> None:
    chain = Chain(make_face(ttl=64))  # values are stamped a second ahead
    chain.put({"a": LARGE})
    time.sleep(1.1)
    chain.put({"b": 1})
    last = stamps(database, "checkpoints")[-1]
    assert stamps(database, "checkpoint_channel_values")[0] >= last


def test_a_value_put_again_is_stamped_again(make_face: MakeFace, database: Data) -> None:
    face = make_face(ttl=TTL)
    versions = {"a": face.saver.get_next_version(None)}
    stored = checkpoint({"a": LARGE}, versions)
    face.put(thread(), stored, {"source": "loop", "step": 0}, versions)
    age(database, seconds=TTL / 2)
    face.put(thread(), stored, {"source": "loop", "step": 0}, versions)
    age(database, seconds=0.9 * TTL)
    expire(database)
    assert values_of(face, thread()) == {"a": LARGE}


def test_most_steps_renew_no_stamps(make_face: MakeFace, database: Data) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE})
    before = stamps(database, "checkpoint_channel_values")
    for number in range(5):
        chain.put({"b": number})
    assert stamps(database, "checkpoint_channel_values") == before


def test_an_old_thread_is_stamped_as_it_always_was(make_face: MakeFace, database: Data) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    stamp = datetime.now(UTC) - timedelta(seconds=TTL / 2)
    metadata = {"source": "input", "step": -1}
    old = insert_whole(database, thread(), stored, metadata, created_at=stamp)
    face = make_face(ttl=TTL)
    face.put(old, checkpoint({"a": 2}, {"a": 2}), {"source": "loop", "step": 0}, {"a": 2})
    first, second = stamps(database, "checkpoints")
    assert abs(first - stamp) < timedelta(seconds=1)
    assert second - first > timedelta(seconds=TTL / 4)


@pytest.mark.parametrize("ttl", [0, -1, 1.5, 2**31, float("inf"), float("nan"), True, "60"])
@pytest.mark.parametrize("saver", [MongoDBSaver, AsyncMongoDBSaver])
def test_a_ttl_that_is_no_number_of_seconds_is_refused_without_a_command(
    saver: Callable[..., Any], ttl: Any
) -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="Invalid ttl"):
        saver(nothing, ttl=ttl)


def test_savers_with_different_ttls_can_start_at_once(mongodb_uri: str, database: Data) -> None:
    with MongoDBSaver.from_conn_string(mongodb_uri, database.name):
        pass  # the collections are there: only the TTL is raced for
    failures = []

    def start(ttl: int) -> None:
        try:
            with MongoDBSaver.from_conn_string(mongodb_uri, database.name, ttl=ttl):
                pass
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=[60 * number]) for number in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    assert all(len(seconds) == 1 for seconds in ttl_of(database).values())


def test_the_server_removes_what_is_over_and_keeps_what_is_in_use(
    make_face: MakeFace, database: Data, ttl_monitor: None
) -> None:
    face = make_face(ttl=3)
    use(face, "over")
    chain = Chain(face, "used")
    chain.put({"a": LARGE})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        config = chain.put({"b": chain.number})
        assert values_of(face, config) == chain.values
        if not any(database[name].count_documents({"thread_id": "over"}) for name in COLLECTIONS):
            break
        time.sleep(0.2)
    else:
        pytest.fail("the server removed nothing")
    assert values_of(face.fresh(), config) == chain.values


# ---------------------------------------------------------------------- the server's clock


@pytest.mark.parametrize("minutes", [-20, 20])
def test_every_stamp_and_every_id_is_of_the_servers_time(
    make_face: MakeFace, database: Data, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    face = make_face(ttl=TTL)
    face.setup()
    # To a host whose clock is wrong it looks as if the server's were.
    server = datetime.now(UTC) + timedelta(minutes=minutes)
    answer_time(monkeypatch, face, lambda: server)
    config = use(face)
    face.copy_thread("t", "copy")
    near = timedelta(minutes=2)
    for name in COLLECTIONS:
        assert all(abs(stamp - server) < near for stamp in stamps(database, name))
    # What is upserted, or copied, has its id from the server itself.
    face.put_writes(config, [("a", 1)], "inserted")
    written = database["checkpoint_writes"].find({"task_id": "inserted"})
    for document in [*written, *database["checkpoint_channel_values"].find({"thread_id": "t"})]:
        assert abs(document["_id"].generation_time - server) < near


def answer_time(
    monkeypatch: pytest.MonkeyPatch, face: Face, server: Callable[[], datetime]
) -> list[datetime]:
    """Let a face's server tell a time of a test; return what it told."""
    told: list[datetime] = []

    async def ask(self: Any, seconds: float | None) -> datetime:
        told.append(server())
        return told[-1]

    monkeypatch.setattr(type(face.saver._port), "_ask_time", ask)
    return told


def test_the_servers_time_is_asked_once_for_many_steps(
    make_face: MakeFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = make_face(ttl=TTL)
    told = answer_time(monkeypatch, face, lambda: datetime.now(UTC))
    chain = Chain(face)
    for number in range(5):
        chain.face = again(face)
        chain.face.put_writes(chain.put({"a": LARGE, "b": number}), [("b", number)], "task")
    assert len(told) == 1


def test_after_a_suspension_the_stamps_are_of_the_new_time(
    make_face: MakeFace, database: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = make_face(ttl=TTL)
    use(face)
    server = datetime.now(UTC) + timedelta(hours=5)
    answer_time(monkeypatch, face, lambda: server)
    asleep = _clock.read()
    monkeypatch.setattr(_clock, "read", lambda: Reading(asleep.elapsed + 18_000, asleep.wall))
    Chain(face, "later").put({"a": 1})
    found = database["checkpoints"].find_one({"thread_id": "later"})
    assert found is not None
    assert abs(found["created_at"].replace(tzinfo=UTC) - server) < timedelta(seconds=30)


# ---------------------------------------------------------------------- threads in use


class Answers(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


class Asking(Answers, total=False):
    docs: str


def ask(name: str) -> Any:
    return lambda state: {"said": [f"{name}: {interrupt(name)}"]}


def asks_in_turn(name: str, count: int) -> Any:
    """A graph that asks a person several times, in a node each."""
    builder = StateGraph(Asking, output_schema=Answers)
    builder.add_sequence([(f"{name}{number}", ask(f"{name}{number}")) for number in range(count)])
    builder.add_edge(START, f"{name}0")
    return builder


def asks_in_one_node(name: str, count: int) -> Any:
    """A graph that asks a person several times in one node."""

    def node(state: Asking) -> Asking:
        return {"said": [f"{name}{n}: {interrupt(f'{name}{n}')}" for n in range(count)]}

    builder = StateGraph(Asking, output_schema=Answers)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder


def calling(*graphs: Any) -> Any:
    """A graph that calls others, beside each other."""
    builder = StateGraph(Asking, output_schema=Answers)
    for number, graph in enumerate(graphs):
        builder.add_node(f"call {number}", graph.compile())
        builder.add_edge(START, f"call {number}")
    return builder


GRAPHS: dict[str, Callable[[], Any]] = {
    "a node": lambda: asks_in_one_node("q", 4),
    "a subgraph": lambda: calling(asks_in_turn("q", 4)),
    "a node of a subgraph": lambda: calling(asks_in_one_node("q", 4)),
    "a subgraph of a subgraph": lambda: calling(calling(asks_in_turn("q", 4))),
    "one subgraph while another waits": lambda: calling(
        asks_in_turn("q", 4), asks_in_turn("waiting", 1)
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("quiet", [0.4, 0.9])
def test_a_thread_that_asks_again_and_again_does_not_expire(
    make_face: MakeFace, database: Data, name: str, quiet: float
) -> None:
    face = make_face(ttl=TTL)
    graph = face.compile(GRAPHS[name]())
    found = face.invoke(graph, {"said": ["in"], "docs": "d" * 9000}, thread())
    answers = [f"q{number}" for number in range(4)] + ["waiting0"]
    for answer in answers:
        asked = {one.value: one.id for one in found.get("__interrupt__", ())}
        if answer not in asked:
            assert answer == "waiting0"
            break
        age(database, seconds=quiet * TTL)
        expire(database)
        face = face.fresh()
        graph = face.compile(GRAPHS[name]())
        found = face.invoke(graph, Command(resume={asked[answer]: "yes"}), thread())
    assert "__interrupt__" not in found
    assert set(found["said"]) >= {"in", *(f"q{number}: yes" for number in range(4))}
    assert len(values_of(face, thread())["docs"]) == 9000
    age(database, seconds=TTL + 60)
    expire(database)
    assert not any(contents(database).values())


@needs_delta_channels
def test_a_delta_channel_of_a_checkpoint_that_waits_does_not_expire(
    make_face: MakeFace, database: Data
) -> None:
    counters = {"counters_since_delta_snapshot": {"log": (1, 1)}}
    chain = Chain(make_face(ttl=TTL))
    snapshot = DeltaSnapshot([0])
    for number in range(4):
        delta = {"log": snapshot} if number == 0 else {"log": None}
        config = chain.put(delta, metadata={} if number == 0 else counters)
        chain.face.put_writes(config, [("log", number)], "task")
    for number in range(4):
        age(database, seconds=0.9 * TTL)
        expire(database)
        face = chain.face.fresh()
        face.get_tuple(config)
        face.put_writes(config, [("asked", number)], f"asking {number}")
    history = face.get_delta_channel_history(config=config, channels=["log"])["log"]
    assert [value for _, _, value in history["writes"]] == [0, 1, 2]


def subgraph_step(face: Face, caller: RunnableConfig, chain: Chain) -> RunnableConfig:
    parents = {"": caller["configurable"]["checkpoint_id"]}
    return chain.put({"n": chain.number}, metadata={"parents": parents})


def test_steps_of_a_subgraph_renew_the_calling_checkpoint_seldom(
    make_face: MakeFace, counter: CommandCounter, database: Data
) -> None:
    face = make_face(ttl=TTL, client_kwargs={"event_listeners": [counter]})
    caller = Chain(face).put({"a": LARGE})
    inner = Chain(face, "t", "inner:1")
    with counter.recording():
        for _ in range(10):
            subgraph_step(face, caller, inner)
    assert counter.names == ["insert"] * 10
    age(database, seconds=TTL / 2)
    inner.face = face.fresh()
    inner.face.get_tuple(caller)
    inner.face.get_tuple(inner.config)
    with counter.recording():
        for _ in range(10):
            subgraph_step(inner.face, caller, inner)
    renewing = len(counter.names) - 10
    assert 0 < renewing < 10


def test_without_a_ttl_a_subgraph_takes_the_stamps_of_the_calling_checkpoint_away(
    make_face: MakeFace, database: Data
) -> None:
    caller = Chain(make_face(ttl=TTL)).put({"a": LARGE})
    face = make_face()
    face.get_tuple(caller)
    inner = Chain(face, "t", "inner:1")
    config = subgraph_step(face, caller, inner)
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(face, caller) == {"a": LARGE}
    assert values_of(face, config) == inner.values


def test_without_a_ttl_a_subgraph_asks_for_no_stamps(
    make_face: MakeFace, counter: CommandCounter
) -> None:
    caller = Chain(make_face()).put({"a": LARGE})
    face = make_face(client_kwargs={"event_listeners": [counter]})
    face.setup()
    inner = Chain(face, "t", "inner:1")
    subgraph_step(face, caller, inner)
    with counter.recording():
        subgraph_step(face, caller, inner)
    assert counter.names == ["insert"]


def test_what_never_expires_is_not_stamped_by_those_who_rely_on_it(
    make_face: MakeFace, database: Data
) -> None:
    caller = Chain(make_face()).put({"a": LARGE})
    face = make_face(ttl=TTL)
    subgraph_step(face, caller, Chain(face, "t", "inner:1"))
    face.put_writes(caller, [("a", 1)], "task")
    assert "created_at" not in (database["checkpoints"].find_one({"checkpoint_ns": ""}) or {})
