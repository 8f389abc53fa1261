"""What a task wrote counts when all of it is there, and not before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb._layout.writes import counting
from tests.face import Face, MakeFace
from tests.hypothesis_profile import examples
from tests.integration_tests.conftest import FailCommand
from tests.support import (
    Chain,
    CommandCounter,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
)

Data = Database[dict[str, Any]]


def written(face: Face, config: Any) -> list[tuple[str, str, Any]]:
    found = face.get_tuple(config)
    assert found is not None
    return [tuple(one) for one in found.pending_writes or []]


def writes(count: int, mark: str = "") -> list[tuple[str, Any]]:
    return [("x", f"{mark}{number}") for number in range(count)]


def as_read(count: int, mark: str = "", task: str = "task") -> list[tuple[str, str, Any]]:
    return [(task, channel, value) for channel, value in writes(count, mark)]


@pytest.mark.parametrize("left", [[0], [0, 1], [2], [0, 2]])
def test_a_part_does_not_show_and_a_repetition_replaces_it(
    face: Face, database: Data, left: list[int]
) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, writes(3), "task")
    face.put_writes(config, writes(2), "other")
    database["checkpoint_writes"].delete_many({"task_id": "task", "idx": {"$nin": left}})
    fresh = face.fresh()
    assert written(fresh, config) == as_read(2, task="other")
    assert [row.pending_writes for row in fresh.list(thread())] == [as_read(2, task="other")]
    fresh.put_writes(config, writes(3, "again "), "task")
    assert written(fresh, config) == [*as_read(2, task="other"), *as_read(3, "again ")]


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (3, 1), (1, 3)])
def test_a_repetition_with_more_or_fewer_writes_replaces_a_part_whole(
    face: Face, database: Data, before: int, after: int
) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, writes(before + 1), "task")
    database["checkpoint_writes"].delete_one({"idx": before})
    face.put_writes(config, writes(after, "again "), "task")
    assert written(face, config) == as_read(after, "again ")
    assert database["checkpoint_writes"].count_documents({}) == after


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 2), (2, 3), (1, 1), (1, 2), (2, 1)])
def test_what_is_there_whole_stays(face: Face, database: Data, before: int, after: int) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, writes(before), "task")
    face.put_writes(config, writes(after, "again "), "task")
    assert written(face, config) == as_read(before)
    assert database["checkpoint_writes"].count_documents({}) == before


def test_a_part_of_a_later_token_is_replaced_too(face: Face, database: Data) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, writes(3), "task")
    later = ObjectId("ffffff00" + "00" * 8)
    database["checkpoint_writes"].update_many({}, {"$set": {"attempt": later}})
    database["checkpoint_writes"].delete_one({"idx": 2})
    face.put_writes(config, writes(3, "again "), "task")
    assert written(face, config) == as_read(3, "again ")


def test_writes_of_older_releases_count_as_they_did(face: Face, database: Data) -> None:
    config = insert_whole(database, thread(), checkpoint({}, {}), {"source": "loop"})
    for idx in (0, 2):
        insert_old_write(
            database, config, task_id="task", task_path="", idx=idx, channel="x", value=idx
        )
    assert written(face, config) == [("task", "x", 0), ("task", "x", 2)]


def test_a_single_write_has_no_further_field(face: Face, database: Data) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, writes(1), "task")
    face.put_writes(config, [("__error__", "one"), ("__interrupt__", "two")], "other")
    assert database["checkpoint_writes"].count_documents({"attempt": {"$exists": True}}) == 0


def test_storing_a_task_is_one_command(counted: Face, counter: CommandCounter) -> None:
    config = Chain(counted).put({"a": 1})
    with counter.recording():
        counted.put_writes(config, writes(5), "task")
        counted.put_writes(config, [("__interrupt__", 1), ("__resume__", 2)], "task")
    assert counter.names == ["insert", "update"]


@pytest.mark.parametrize("cut", range(5))
def test_a_connection_cut_between_messages_leaves_nothing_that_counts(
    make_face: MakeFace, fail_command: FailCommand, mongod: None, cut: int
) -> None:
    name, messages = f"cut-{cut}", 3
    kwargs = {"appname": name, "retryWrites": False}
    face = make_face(client_kwargs=kwargs)
    config = Chain(face).put({"a": 1})
    # Two of them fit into one message, of at most 48 MB.
    large = [("x", f"{number}" * 15_000_000) for number in range(8)]
    with fail_command(["insert"], app_name=name, mode={"skip": cut}, closeConnection=True):
        if cut < messages:
            with pytest.raises(AutoReconnect):
                face.put_writes(config, large, "task")
        else:
            face.put_writes(config, large, "task")
    expected = [("task", *one) for one in large] if cut >= messages else []
    assert written(make_face(), config) == expected
    face.put_writes(config, large, "task")
    assert written(make_face(), config) == [("task", *one) for one in large]


def test_the_answer_is_stored_before_the_next_question(
    counted: Face, counter: CommandCounter
) -> None:
    """A crash in between then asks the first question again, with its answer at hand."""
    config = Chain(counted).put({"a": 1})
    with counter.recording():
        counted.put_writes(config, [("__interrupt__", "next"), ("__resume__", ["yes"])], "task")
    (command,) = counter.commands
    assert [one["q"]["idx"] for one in command.document["updates"]] == [-4, -3]


@pytest.mark.parametrize("moment", range(4))
def test_two_processes_that_run_one_task_leave_the_writes_of_one(
    make_face: MakeFace, database: Data, moment: int
) -> None:
    """The second stores its writes between any two commands of the first's repair."""
    first, second = make_face(), make_face()
    config = Chain(first).put({"a": 1})
    first.put_writes(config, writes(3, "crashed "), "task")
    database["checkpoint_writes"].delete_one({"idx": 2})
    steps = ["insert", "find", "delete", "insert"]

    def between(port: Any, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        async def asked(role: str, *args: Any, **kwargs: Any) -> Any:
            if (
                role == "writes"
                and made.count(name) == steps[:moment].count(name)
                and (steps[moment] == name)
            ):
                made.append(name)
                # In a thread: the first's event loop is running in this one.
                with ThreadPoolExecutor(1) as other:
                    other.submit(second.put_writes, config, writes(3, "second "), "task").result()
            else:
                made.append(name)
            return await real(role, *args, **kwargs)

        return asked

    made: list[str] = []
    port: Any = first.saver._port
    for name in ("insert", "find", "delete"):
        setattr(port, name, between(port, name, getattr(port, name)))
    first.put_writes(config, writes(3, "first "), "task")
    found = written(make_face(), config)
    assert found in (as_read(3, "first "), as_read(3, "second "))


def test_without_the_unique_index_each_write_is_read_once_and_that_is_told(
    face: Face, database: Data, caplog: pytest.LogCaptureFixture
) -> None:
    config = Chain(face).put({"a": 1})
    (name,) = [
        one["name"]
        for one in database["checkpoint_writes"].list_indexes()
        if "task_id" in one["key"]
    ]
    database["checkpoint_writes"].drop_index(name)
    for mark in ("first ", "second "):
        face.put_writes(config, writes(1, mark), "one")
        face.put_writes(config, writes(3, mark), "several")
    assert written(face, config) == [
        *as_read(1, "first ", "one"),
        *as_read(3, "first ", "several"),
    ]
    assert "has no unique index" in caplog.text


attempts = st.lists(
    st.tuples(st.integers(1, 4), st.sets(st.integers(0, 3))), min_size=1, max_size=4
)


@settings(max_examples=examples(200))
@given(attempts, st.randoms())
def test_what_counts_is_one_whole_attempt_or_nothing(drawn: list[Any], random: Any) -> None:
    documents: list[dict[str, Any]] = []
    whole = []
    for place, (count, there) in enumerate(drawn):
        token = ObjectId(f"{place:024x}")
        there = {idx for idx in there if idx < count}
        if len(there) == count:
            whole.append(token)
        documents += [
            {"task_id": "t", "idx": idx, "attempt": token, "count": count} for idx in there
        ]
    random.shuffle(documents)
    found = counting(documents)
    assert {one["attempt"] for one in found} == set(whole[:1])
    assert [one["idx"] for one in found] == list(range(len(found)))
