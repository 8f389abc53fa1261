"""put_writes: which writes stay, which replace, and the order they are read in."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.face import Face, MakeFace
from tests.support import Chain, CommandCounter, checkpoint, contents, thread


@pytest.fixture
def config(face: Face) -> RunnableConfig:
    """A checkpoint to write to."""
    return Chain(face).put({"a": 1})


def pending(face: Face, config: RunnableConfig) -> list[Any]:
    found = face.get_tuple(config)
    assert found is not None
    return found.pending_writes or []


def test_writes_are_read_as_task_channel_and_value(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("a", {"x": [1, 2]}), ("b", None)], "task")
    assert pending(face, config) == [("task", "a", {"x": [1, 2]}), ("task", "b", None)]


def test_no_writes_send_no_command(make_face: MakeFace) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    config = Chain(face).put({"a": 1})
    with counter.recording():
        face.put_writes(config, [], "task")
    assert counter.names == []
    assert pending(face, config) == []


def test_a_repeated_write_stays_as_it_was(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("a", "first")], "task")
    face.put_writes(config, [("a", "second"), ("a", "more")], "task")
    assert pending(face, config) == [("task", "a", "first")]


@pytest.mark.parametrize("channel", ["__error__", "__interrupt__", "__resume__", "__scheduled__"])
def test_a_special_channel_replaces(face: Face, config: RunnableConfig, channel: str) -> None:
    face.put_writes(config, [(channel, "first")], "task")
    face.put_writes(config, [(channel, "second")], "task")
    assert pending(face, config) == [("task", channel, "second")]


def test_beside_a_special_channel_others_still_stay(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("__resume__", 1), ("a", "first")], "task")
    face.put_writes(config, [("__resume__", 2), ("a", "second")], "task")
    assert pending(face, config) == [("task", "__resume__", 2), ("task", "a", "first")]


def test_one_task_under_another_path_keeps_the_first_writes(
    face: Face, config: RunnableConfig
) -> None:
    face.put_writes(config, [("a", "first")], "task", "~1")
    face.put_writes(config, [("a", "second")], "task", "~2")
    assert pending(face, config) == [("task", "a", "first")]


def test_a_special_write_under_another_path_replaces(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("__error__", "first")], "task", "~1")
    face.put_writes(config, [("__error__", "second")], "task", "~2")
    assert pending(face, config) == [("task", "__error__", "second")]


def test_tasks_do_not_share_writes(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("a", 1)], "one")
    face.put_writes(config, [("a", 2)], "two")
    assert pending(face, config) == [("one", "a", 1), ("two", "a", 2)]


def test_checkpoints_do_not_share_writes(face: Face) -> None:
    chain = Chain(face)
    first, second = chain.put({"a": 1}), chain.put({"a": 2})
    face.put_writes(first, [("a", "of the first")], "task")
    assert pending(face, second) == []


def test_writes_come_in_order_of_path_task_and_index(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("a", 4)], "aaa", "~2")
    face.put_writes(config, [("a", 2), ("a", 3)], "zzz", "~1")
    face.put_writes(config, [("a", 1)], "yyy", "~1")
    assert [value for _, _, value in pending(face, config)] == [1, 2, 3, 4]
    (row,) = face.list(thread())
    assert [value for _, _, value in row.pending_writes or []] == [1, 2, 3, 4]


def test_the_index_counts_as_a_number(face: Face, config: RunnableConfig) -> None:
    face.put_writes(config, [("a", number) for number in range(25)], "task")
    assert [value for _, _, value in pending(face, config)] == list(range(25))


def test_writes_may_come_before_their_checkpoint(face: Face) -> None:
    stored = checkpoint({}, {})
    face.put_writes(thread(checkpoint_id=stored["id"]), [("a", 1)], "task")
    config = face.put(thread(), stored, {"source": "input", "step": -1}, {})
    assert pending(face, config) == [("task", "a", 1)]


@pytest.mark.parametrize("paths", [["", ""], ["~1", "~2"]], ids=["same path", "another path"])
@pytest.mark.parametrize("channel", ["a", "__error__"])
def test_racing_writes_of_one_task_never_raise(
    face: Face, config: RunnableConfig, channel: str, paths: list[str]
) -> None:
    saver = face.saver
    batches = [([(channel, number)], "task", paths[number % 2]) for number in range(16)]
    if isinstance(saver, MongoDBSaver):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda batch: saver.put_writes(config, *batch), batches))
    else:
        racing = [saver.aput_writes(config, *batch) for batch in batches]
        face.run(asyncio.wait_for(_all(racing), 60))
    assert len(pending(face, config)) == 1


async def _all(work: list[Any]) -> None:
    await asyncio.gather(*work)


@pytest.mark.parametrize(
    ("config", "task_id", "task_path", "named"),
    [
        (thread(), "task", "", "checkpoint_id"),
        (thread(checkpoint_id={"$ne": ""}), "task", "", "checkpoint_id"),
        (thread(checkpoint_id="c"), {"$ne": ""}, "", "task_id"),
        (thread(checkpoint_id="c"), "task", 3, "task_path"),
        ({"configurable": {"thread_id": 1, "checkpoint_id": "c"}}, "task", "", "thread_id"),
        (thread("t", None, checkpoint_id="c"), "task", "", "checkpoint_ns"),  # type: ignore[arg-type]
    ],
)
def test_an_identifier_that_is_no_string_is_refused(
    face: Face,
    database: Database[dict[str, Any]],
    config: RunnableConfig,
    task_id: Any,
    task_path: Any,
    named: str,
) -> None:
    with pytest.raises(ValueError, match=f"Invalid {named}: expected a string"):
        face.put_writes(config, [("a", 1)], task_id, task_path)
    assert not any(contents(database).values())
