"""prune, copy_thread, delete_for_runs and delete_thread: what goes, and what never does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from tests.face import Face
from tests.integration_tests.retention import (
    COLLECTIONS,
    DB,
    LARGE,
    MakeThread,
    both_layouts,
    split_thread,
    steps,
    stored,
    value_names,
)
from tests.support import (
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
def test_delete_for_runs_removes_their_checkpoints_and_writes_alone(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    make(face, database, "u")
    before = face.list(thread())
    face.delete_for_runs(["run 0"])
    assert face.fresh().list(thread()) == before[:2]
    assert steps(face, thread("u")) == [3, 2]
    assert stored(database)["checkpoint_writes"] == 2


def test_delete_for_runs_spares_values_of_other_runs(face: Face, database: DB) -> None:
    split_thread(face, database)
    face.delete_for_runs(["run 0"])
    assert value_names(database) == ["big 1", "doc 2"]
    assert values_of(face.fresh(), thread())["big"] == LARGE


@both_layouts
def test_delete_for_runs_of_the_newest_leaves_the_older(
    face: Face, database: DB, make: MakeThread
) -> None:
    make(face, database)
    face.delete_for_runs(["run 1", "unknown"])
    assert steps(face.fresh(), thread()) == [1, 0]
    assert values_of(face, thread()) == {"n": 1, "big": LARGE, "doc": "0" * len(LARGE)}


@both_layouts
def test_delete_for_runs_of_all_leaves_nothing(face: Face, database: DB, make: MakeThread) -> None:
    make(face, database)
    face.delete_for_runs(["run 0", "run 1"])
    assert set(stored(database).values()) == {0}


@pytest.mark.parametrize("run_ids", ["run 0", [{"$ne": ""}], [None]])
def test_delete_for_runs_refuses_what_is_no_run_id(face: Face, database: DB, run_ids: Any) -> None:
    split_thread(face, database)
    with pytest.raises(ValueError, match="run_id"):
        face.delete_for_runs(run_ids)
    assert steps(face, thread()) == [3, 2, 1, 0]


def test_delete_for_no_or_unknown_runs_does_nothing(face: Face, database: DB) -> None:
    split_thread(face, database)
    face.delete_for_runs([])
    face.delete_for_runs(["run", "run 00", "RUN 0"])
    assert steps(face, thread()) == [3, 2, 1, 0]
