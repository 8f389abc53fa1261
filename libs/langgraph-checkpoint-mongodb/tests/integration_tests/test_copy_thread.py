"""copy_thread: a copy stands alone, and can be repeated."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import mongomock
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata
from pymongo import MongoClient

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.face import Face, MakeFace
from tests.integration_tests.conftest import FailCommand
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
)
from tests.support import (
    Chain,
    CommandCounter,
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


def comparable(face: Face, thread_id: str) -> list[Any]:
    def without_thread(config: RunnableConfig | None) -> Any:
        return config and {**config.get("configurable", {}), "thread_id": None}

    return [
        row._replace(
            config=without_thread(row.config),
            parent_config=without_thread(row.parent_config),
            # A copy's names the copy.
            metadata=cast(
                CheckpointMetadata, {k: v for k, v in row.metadata.items() if k != "thread_id"}
            ),
        )
        for row in face.list(all_of(thread_id))
    ]


@both_layouts
def test_a_copy_has_everything_and_lives_by_itself(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    make(face, database, checkpoint_ns="sub:1")
    before = comparable(face, "t")
    assert len(before) == 8
    face.copy_thread("t", "copy")
    assert comparable(face.fresh(), "copy") == before
    assert stored(database, "copy") == stored(database, "t")
    face.delete_thread("t")
    assert comparable(face.fresh(), "copy") == before
    assert set(stored(database, "t").values()) == {0}


@both_layouts
def test_source_and_copy_go_their_own_ways(face: Face, database: DB, make: MakeThread) -> None:
    make(face, database)
    face.copy_thread("t", "copy")
    face.prune(["t"])
    assert steps(face, thread("copy")) == [3, 2, 1, 0]
    face.prune(["copy"])
    assert values_of(face, thread("copy")) == values_of(face, thread("t"))


@both_layouts
def test_a_target_with_checkpoints_is_refused_and_left_alone(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    Chain(face, "target").put({"n": 77, "big": LARGE})
    before = stored(database, "target")
    with pytest.raises(ValueError, match="has checkpoints"):
        face.copy_thread("t", "target")
    assert steps(face, thread("target")) == [77]
    assert stored(database, "target") == before


def test_a_thread_is_not_copied_onto_itself(face: Face, database: DB) -> None:
    split_thread(face, database)
    with pytest.raises(ValueError, match="itself"):
        face.copy_thread("t", "t")
    assert steps(face, thread()) == [3, 2, 1, 0]


@pytest.mark.parametrize("ids", [("t", {"$ne": ""}), (None, "copy"), (7, "copy")])
def test_copy_refuses_what_is_no_thread_id(face: Face, ids: Any) -> None:
    with pytest.raises(ValueError, match="thread_id"):
        face.copy_thread(*ids)


def test_a_thread_that_is_not_there_is_not_copied(face: Face, database: DB) -> None:
    with pytest.raises(ValueError, match="'unknown': it has no checkpoints"):
        face.copy_thread("unknown", "copy")
    assert set(stored(database, "copy").values()) == {0}


@both_layouts
def test_a_copy_begins_its_ttl_anew(make_face: MakeFace, database: DB, make: MakeThread) -> None:
    face = make_face(ttl=3600)
    make(face, database)
    long_ago = datetime.now(UTC) - timedelta(seconds=1800)
    for name in COLLECTIONS:
        database[name].update_many({}, {"$set": {"created_at": long_ago}})
    start = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=1)
    face.copy_thread("t", "copy")
    for name in COLLECTIONS:
        for document in database[name].find({"thread_id": "copy"}):
            assert document["created_at"] >= start


def test_a_copy_without_a_ttl_never_expires(make_face: MakeFace, database: DB) -> None:
    split_thread(make_face(ttl=3600), database)
    make_face().copy_thread("t", "copy")
    for name in COLLECTIONS:
        assert database[name].count_documents({"thread_id": "t", "created_at": {"$exists": True}})
        copied = {"thread_id": "copy", "created_at": {"$exists": True}}
        assert not database[name].count_documents(copied)


def test_a_copy_does_not_pass_through_the_client(make_face: MakeFace, database: DB) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    Chain(face).put({f"channel {number}": "x" * 500_000 for number in range(8)})
    face.get_tuple(thread())  # the async saver sees to its indexes first
    with counter.recording():
        face.copy_thread("t", "copy")
    assert set(counter.names) <= {"find", "aggregate", "insert", "delete"}
    read = [one for one in counter.commands if one.name == "find"]
    assert {one.collection for one in read} <= {"checkpoints", "checkpoint_writes"}
    assert all("checkpoint" not in one.document["projection"] for one in read)
    assert sum(one.size for one in counter.commands) < 20_000
    assert values_of(face, thread("copy")) == values_of(face, thread("t"))


@both_layouts
def test_without_merge_it_copies_in_batches(
    make_face: MakeFace, database: DB, fail_command: FailCommand, make: MakeThread
) -> None:
    app_name = f"no merge {database.name}"
    face = make_face(client_kwargs={"appname": app_name})
    make(face, database)
    before = comparable(face, "t")
    with fail_command(["aggregate"], app_name=app_name, errorCode=115):
        face.copy_thread("t", "copy")
    assert comparable(face.fresh(), "copy") == before
    assert stored(database, "copy") == stored(database, "t")


def test_batches_are_bounded(
    make_face: MakeFace, database: DB, fail_command: FailCommand, mongod: None
) -> None:
    app_name, counter = f"batches {database.name}", CommandCounter()
    face = make_face(client_kwargs={"appname": app_name, "event_listeners": [counter]})
    Chain(face).put({f"channel {number}": "x" * 750_000 for number in range(40)})  # 30 MB
    face.get_tuple(thread())
    with fail_command(["aggregate"], app_name=app_name, errorCode=115), counter.recording():
        face.copy_thread("t", "copy")
    inserted = [one.size for one in counter.commands if one.name == "insert"]
    assert sum(inserted) > 30_000_000
    assert max(inserted) <= 17_000_000
    assert values_of(face, thread("copy")) == values_of(face, thread("t"))


@both_layouts
def test_it_copies_on_a_client_that_knows_no_merge(make: MakeThread) -> None:
    client: Any = mongomock.MongoClient()
    saver = MongoDBSaver(client)

    class OnMongomock:
        def __init__(self) -> None:
            self.saver, self.kind = saver, "sync"

        put, put_writes, list = saver.put, saver.put_writes, saver.list
        get_next_version = saver.get_next_version

    face: Any = OnMongomock()
    make(face, client["checkpointing_db"])
    before = comparable(face, "t")
    saver.copy_thread("t", "copy")
    assert comparable(face, "copy") == before
    assert len(before) == 4
