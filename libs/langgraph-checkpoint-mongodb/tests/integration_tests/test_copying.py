"""A copy stands alone, is made once, and is refused before it is half made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import bson
import pytest
from pymongo.database import Database

from langgraph.checkpoint.mongodb import ChannelTooLargeError, CheckpointTooLargeError
from tests.face import Face, MakeFace
from tests.support import LARGE_SIZE, Chain, contents, insert_whole, thread, values_of
from tests.support import checkpoint as made

Data = Database[dict[str, Any]]

LARGE = "x" * LARGE_SIZE


def of_runs(face: Face, thread_id: str = "t") -> Chain:
    chain = Chain(face, thread_id)
    for run in ("one", "two"):
        metadata = {"run_id": run, "thread_id": thread_id, "note": "n"}
        chain.put({"doc": LARGE + run, "list": [LARGE, run]}, metadata=metadata)
        face.put_writes(chain.config, [("doc", 1), ("list", 2)], "task")
    return chain


def test_runs_deleted_from_the_original_stay_in_the_copy(face: Face) -> None:
    chain = of_runs(face)
    face.copy_thread("t", "copy")
    face.delete_for_runs(["two"])
    face.delete_for_runs(["one"])
    assert face.get_tuple(thread("t")) is None
    assert len(face.list(thread("copy"))) == 2
    assert values_of(face.fresh(), thread("copy")) == chain.values


def test_runs_of_the_copy_are_its_own(face: Face) -> None:
    of_runs(face)
    face.copy_thread("t", "copy")
    found = face.get_tuple(thread("copy"))
    assert found is not None
    going = Chain(face, "copy")
    going.go_on_from(found)
    going.put({"n": 1}, metadata={"run_id": "later"})
    face.delete_for_runs(["later"])
    assert len(face.list(thread("copy"))) == 2


def test_metadata_of_a_copy_names_the_copy(face: Face) -> None:
    of_runs(face)
    face.copy_thread("t", "copy")
    rows = face.list(thread("copy"), filter={"thread_id": "copy", "note": "n"})
    assert len(rows) == 2
    assert [row.metadata["run_id"] for row in rows] == ["two", "one"]
    assert len(face.list(thread("t"), filter={"thread_id": "t"})) == 2


def test_a_copy_of_a_run_of_an_older_release_stays_too(face: Face, database: Data) -> None:
    stored = made({"a": 1}, {"a": 1})
    insert_whole(database, thread("t"), stored, {"source": "loop", "run_id": "old"})
    face.copy_thread("t", "copy")
    face.delete_for_runs(["old"])
    assert face.get_tuple(thread("t")) is None
    assert values_of(face, thread("copy")) == {"a": 1}


def test_of_two_copies_at_once_one_is_made(make_face: MakeFace) -> None:
    faces = [make_face() for _ in range(4)]
    chain = of_runs(faces[0])
    for face in faces:
        face.setup()
    together = threading.Barrier(len(faces))

    def copy(face: Face) -> str:
        together.wait(30)
        try:
            face.copy_thread("t", "copy")
        except ValueError as error:
            return str(error)
        return "made"

    with ThreadPoolExecutor(len(faces)) as pool:
        answers = list(pool.map(copy, faces))
    assert answers.count("made") == 1
    assert all(
        "has checkpoints" in one or "is being made" in one for one in answers if one != "made"
    )
    assert values_of(faces[0].fresh(), thread("copy")) == chain.values
    assert len(faces[0].list(thread("copy"))) == 2


def test_a_claim_of_another_process_is_respected_and_given_up_with_its_thread(
    face: Face, database: Data
) -> None:
    of_runs(face)
    marker = {
        "thread_id": "copy",
        "checkpoint_ns": "",
        "channel": "__copy__",
        "version": "",
        "claim": bson.ObjectId(),
        "source": "t",
        "type": "null",
        "value": b"",
    }
    database["checkpoint_channel_values"].insert_one(marker)
    with pytest.raises(ValueError, match="another copy to it is being made"):
        face.copy_thread("t", "copy")
    face.delete_thread("copy")
    face.copy_thread("t", "copy")
    assert len(face.list(thread("copy"))) == 2


def test_a_claim_that_a_crash_left_is_taken_over(face: Face, database: Data) -> None:
    of_runs(face)
    face.copy_thread("t", "copy")
    database["checkpoints"].delete_one({"thread_id": "copy"})
    claim = {"claim": bson.ObjectId("5f0000000000000000000000"), "source": "t"}
    marker = {"thread_id": "copy", "checkpoint_ns": "", "channel": "__copy__", "version": ""}
    database["checkpoint_channel_values"].insert_one(
        {**marker, **claim, "type": "null", "value": b""}
    )
    face.copy_thread("t", "copy")
    assert len(face.list(thread("copy"))) == 2
    assert database["checkpoint_channel_values"].count_documents({"channel": "__copy__"}) == 0


@pytest.mark.parametrize("what", ["value", "write", "checkpoint"])
def test_what_would_not_fit_as_a_copy_is_refused_before_anything_is_made(
    face: Face, database: Data, mongod: None, what: str
) -> None:
    limit: int = database.client.admin.command("hello")["maxBsonObjectSize"]
    chain = Chain(face)
    if what == "checkpoint":
        config = chain.put({"n": 1}, metadata={"note": "x"})
        (found,) = database["checkpoints"].find({})
        chain = Chain(face, "t")
        chain.put({"n": 2}, metadata={"note": "x" * (limit - len(bson.encode(found)) - 200)})
    elif what == "write":
        config = chain.put({"n": 1})
        face.put_writes(config, [("n", b"x")], "task")
        (found,) = database["checkpoint_writes"].find({})
        room = limit - len(bson.encode(found)) - 50
        face.put_writes(config, [("n", bytes(room))], "tas2")
    else:
        chain.put({"doc": bytes(LARGE_SIZE)})
        (found,) = database["checkpoint_channel_values"].find({})
        chain.put({"doc": bytes(limit - len(bson.encode(found)) - 50 + LARGE_SIZE)})
    before = contents(database)
    error = CheckpointTooLargeError if what == "checkpoint" else ChannelTooLargeError
    with pytest.raises(error, match="longer thread id"):
        face.copy_thread("t", "t" * 500)
    assert contents(database) == before
    face.copy_thread("t", "u")
    assert len(face.list(thread("u"))) == len(face.list(thread("t")))
