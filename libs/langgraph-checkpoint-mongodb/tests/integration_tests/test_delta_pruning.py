"""Pruning threads whose delta channels are rebuilt from ancestors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from pymongo import MongoClient

from tests.face import Face
from tests.integration_tests.delta_threads import (
    COLLECTIONS,
    COUNTERS,
    DB,
    LARGE,
    DeltaThread,
    by_the_base_class,
    history,
    written,
)
from tests.support import CommandCounter, checkpoint, thread

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )

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
