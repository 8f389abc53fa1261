"""Removals that fail half way, and processes that are suspended: the threads go on, whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from langchain_core.runnables import RunnableConfig
from pymongo.database import Database

from langgraph.checkpoint.mongodb._database import clock as _clock
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._layout.values import COPY_CHANNEL
from tests.face import Face, MakeFace
from tests.integration_tests.tampering import InjectedFault, Step, again, tampered
from tests.support import (
    Chain,
    checkpoint,
    insert_old_write,
    insert_whole,
    needs_delta_channels,
    thread,
    values_of,
)

LARGE = b"v" * 2 * INLINE_VALUE_BYTES
Data = Database[dict[str, Any]]


@pytest.fixture
def other(mongodb_uri: str, database: Data, face: Face) -> Iterator[Face]:
    """A saver of another process, which works in the middle of what the first one does."""
    face.setup()
    with contextlib.ExitStack() as closing:
        yield Face("sync", mongodb_uri, database.name, closing=closing)


def grow_old(database: Data, collection: str, query: dict[str, Any]) -> None:
    """Let documents be two hours old, as their ids tell it."""
    long_ago = ObjectId.from_datetime(datetime.now(UTC) - timedelta(hours=2)).binary[:4]
    for document in database[collection].find(query):
        database[collection].delete_one({"_id": document["_id"]})
        id_ = ObjectId(long_ago + ObjectId().binary[4:])
        database[collection].insert_one({**document, "_id": id_})


# ---------------------------------------------------------------------- removals that failed


def delta_chain(face: Face) -> Chain:
    """A thread whose `log` is rebuilt from a snapshot three steps ago."""
    chain = Chain(face)
    for number in range(4):
        delta_step(chain, number)
    return chain


def delta_step(chain: Chain, number: int) -> RunnableConfig:
    run = {"run_id": f"run {number}"}
    if number == 0:
        config = chain.put({"log": DeltaSnapshot([LARGE]), "big": LARGE}, metadata=run)
        del chain.values["log"]
    else:
        chain.versions["log"] = chain.face.saver.get_next_version(chain.versions["log"])
        config = chain.put({"n": number}, metadata={COUNTERS: {"log": (number, number)}, **run})
    chain.face.put_writes(config, [("log", number)], "task")
    return config


def log_of(face: Face, config: RunnableConfig) -> list[Any]:
    history = face.get_delta_channel_history(config=config, channels=["log"])["log"]
    assert "seed" in history
    return [value for _, _, value in history["writes"]]


def fail_after_marks(step: Step) -> None:
    if step.is_("update_many", "checkpoints", sent=True):
        raise InjectedFault("after the marks")


REMOVALS: dict[str, Callable[[Face], None]] = {
    "prune": lambda face: face.prune(["t"]),
    "a deletion of the newest run": lambda face: face.delete_for_runs(["run 3"]),
    "a deletion of all runs": lambda face: face.delete_for_runs([f"run {n}" for n in range(4)]),
}


@needs_delta_channels
@pytest.mark.parametrize("name", REMOVALS)
def test_a_thread_goes_on_after_a_removal_that_failed_half_way(
    face: Face, database: Data, name: str
) -> None:
    chain = delta_chain(face)
    with tampered(face, fail_after_marks), pytest.raises(InjectedFault):
        REMOVALS[name](face)
    assert database["checkpoints"].count_documents({"doomed": {"$exists": True}})
    config = delta_step(chain, 4)
    assert log_of(face, config) == [0, 1, 2, 3]
    assert values_of(face, config) == chain.values
    REMOVALS[name](face)
    assert log_of(face, config) == [0, 1, 2, 3]
    assert values_of(face, config) == chain.values
    assert not database["checkpoints"].count_documents({"doomed.0": {"$exists": True}})


def test_large_values_are_carried_over_after_a_removal_that_failed_half_way(
    face: Face, database: Data
) -> None:
    chain = Chain(face)
    chain.put({"big": LARGE}, metadata={"run_id": "run 3"})
    with tampered(face, fail_after_marks), pytest.raises(InjectedFault):
        face.delete_for_runs(["run 3"])
    config = chain.put({"n": 1})
    assert database["checkpoint_channel_values"].count_documents({}) == 1
    face.delete_for_runs(["run 3"])
    assert values_of(face, config) == chain.values


@needs_delta_channels
def test_an_old_thread_goes_on_after_a_removal_that_failed_half_way(
    face: Face, database: Data
) -> None:
    config = thread()
    for number in range(3):
        given = {"log": DeltaSnapshot([])} if number == 0 else {}
        stored = checkpoint(given, {"log": number + 1})
        counted = {} if number == 0 else {COUNTERS: {"log": (number, number)}}
        step = {"source": "loop", "step": number, **counted}
        config = insert_whole(database, config, stored, step)
        insert_old_write(
            database, config, task_id="a", task_path="", idx=0, channel="log", value=number
        )
    with tampered(face, fail_after_marks), pytest.raises(InjectedFault):
        face.prune(["t"])
    step = {"source": "loop", "step": 3, COUNTERS: {"log": (3, 3)}}
    config = face.put(config, checkpoint({}, {"log": 4}), step, {"log": 4})
    face.prune(["t"])
    assert log_of(again(face), config) == [0, 1, 2]


# ---------------------------------------------------------------------- suspended processes


@pytest.mark.parametrize("first", [True, False], ids=["a thread's first", "a later one"])
def test_a_put_whose_values_grew_old_before_its_checkpoint_beside_a_prune_is_whole(
    face: Face, other: Face, database: Data, first: bool
) -> None:
    chain = Chain(face)
    if not first:
        chain.put({"big": LARGE, "docs": LARGE})

    def suspend(step: Step) -> None:
        if step.is_("insert", "values", sent=True):
            grow_old(database, "checkpoint_channel_values", {"channel": "docs"})
            other.prune(["t"])

    with tampered(face, suspend):
        config = chain.put({"docs": LARGE + b"more"})
    assert values_of(other, config) == chain.values
    other.prune(["t"])
    assert values_of(face.fresh(), config) == chain.values


@pytest.mark.parametrize("at", ["find", "update"])
def test_a_first_put_that_is_suspended_after_its_checkpoint_is_whole(
    face: Face, other: Face, database: Data, at: str
) -> None:
    """Between the look at its values and the end of its mark, for one."""
    chain = Chain(face)
    pruned: list[Step] = []

    def suspend(step: Step) -> None:
        late = step.is_("find", "values", sent=True) or step.is_("update", "checkpoints", sent=True)
        if late and step.name == at and not pruned:
            pruned.append(step)
            for name in ("checkpoints", "checkpoint_channel_values"):
                grow_old(database, name, {})
            other.prune(["t"])

    with tampered(face, suspend):
        config = chain.put({"docs": LARGE})
    assert pruned
    assert values_of(other, config) == chain.values


def test_values_that_a_crashed_put_left_are_looked_at_when_it_is_repeated(
    face: Face, other: Face, database: Data
) -> None:
    """They may be about to be deleted just then, as nothing names them yet."""
    chain = Chain(face)
    before = chain.put({"n": 0})
    version = {"docs": face.saver.get_next_version(None)}
    stored = checkpoint({"docs": LARGE}, version)
    step = {"source": "loop", "step": 1}

    def crash(at: Step) -> None:
        if at.is_("update", "checkpoints", sent=False):
            raise InjectedFault("before the checkpoint")

    with tampered(face, crash), pytest.raises(InjectedFault):
        face.put(before, stored, step, version)
    grow_old(database, "checkpoint_channel_values", {})
    repeated: list[RunnableConfig] = []

    def repeat(at: Step) -> None:
        if at.is_("delete", "values", sent=False) and not repeated:
            repeated.append(face.put(before, stored, step, version))

    with tampered(other, repeat):
        other.prune(["t"])
    assert values_of(other, repeated[0]) == {"docs": LARGE}


def test_a_young_value_beside_an_old_one_does_not_make_others_look_again(
    face: Face, database: Data
) -> None:
    chain = Chain(face)
    chain.put({"docs": LARGE})
    key = {"thread_id": "t", "checkpoint_ns": "", "channel": "docs", "version": "unnamed"}
    database["checkpoint_channel_values"].insert_one({**key, "type": "null", "value": b""})
    face.prune(["t"])
    assert database["checkpoint_channel_values"].count_documents(key) == 1
    assert not database["checkpoints"].count_documents({"rekeyed": {"$exists": True}})


def test_what_a_suspended_copy_has_copied_so_far_is_left_to_it(
    face: Face, other: Face, database: Data
) -> None:
    Chain(face).put({"docs": LARGE})

    def suspend(step: Step) -> None:
        if step.is_("aggregate", "checkpoints", sent=False):
            grow_old(database, "checkpoint_channel_values", {"thread_id": "copy"})
            other.prune(["copy"])

    with tampered(face, suspend):
        face.copy_thread("t", "copy")
    assert values_of(other, thread("copy")) == {"docs": LARGE}
    marker = {"channel": COPY_CHANNEL}
    assert not database["checkpoint_channel_values"].count_documents(marker)


def test_a_checkpoint_that_comes_while_a_prune_is_suspended_keeps_its_writes(
    face: Face, other: Face, database: Data
) -> None:
    chain = Chain(face)
    config = chain.put({"n": 0})
    stored = checkpoint({"n": 1}, {"n": 1})
    key = thread(checkpoint_id=stored["id"])
    face.put_writes(key, [("n", 2)], "task")
    grow_old(database, "checkpoint_writes", {})

    def resume(step: Step) -> None:
        if step.is_("aggregate", "writes", sent=True):
            face.put(config, stored, {"source": "loop", "step": 1}, {"n": 1})

    with tampered(other, resume):
        other.prune(["t"], keep_last=5)
    found = other.get_tuple(key)
    assert found is not None
    assert found.pending_writes == [("task", "n", 2)]


@pytest.mark.parametrize("expired", [True, False])
def test_a_put_that_was_suspended_for_hours_lives_as_long_as_any_other(
    make_face: MakeFace, database: Data, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    face = make_face(ttl=3600)
    face.setup()
    chain = Chain(face)
    chain.put({"big": LARGE})
    asleep: list[float] = []
    clocks, port = _clock.read, face.saver._port

    async def suspended(*_: Any) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=sum(asleep))

    monkeypatch.setattr(type(port), "_ask_time", suspended)
    monkeypatch.setattr(
        _clock, "read", lambda: clocks()._replace(elapsed=clocks().elapsed + sum(asleep))
    )

    def suspend(step: Step) -> None:
        if step.is_("insert", "values", sent=True) and not asleep:
            asleep.append(1800)
            if expired:
                database["checkpoint_channel_values"].delete_many({"channel": "docs"})

    with tampered(face, suspend):
        config = chain.put({"docs": LARGE})
    newest = database["checkpoints"].find_one(config["configurable"])
    assert newest is not None
    began = datetime.now(UTC) + timedelta(minutes=29)
    assert newest["created_at"].replace(tzinfo=UTC) > began
    assert values_of(face.fresh(), config) == chain.values
    for value in database["checkpoint_channel_values"].find({}):
        assert value["created_at"] >= newest["created_at"]
