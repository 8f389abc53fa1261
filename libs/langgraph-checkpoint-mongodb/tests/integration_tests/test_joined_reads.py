"""A checkpoint is read with its pending writes, whatever their size and whatever the server."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from pymongo.database import Database
from pymongo.errors import AutoReconnect, EncryptionError, OperationFailure

from tests.face import Face, MakeFace
from tests.integration_tests.conftest import FailCommand
from tests.support import (
    MB,
    Chain,
    CommandCounter,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
)

Data = Database[dict[str, Any]]

STAGE_NOT_KNOWN = 40324
INPUT = {"source": "input", "step": -1}


def pending(face: Face, config: RunnableConfig) -> list[Any]:
    found = face.get_tuple(config)
    assert found is not None
    return found.pending_writes or []


# ------------------------------------------------------------------ larger than one document


def small_read(face: Face, counter: CommandCounter) -> list[str]:
    """The commands of reading a small checkpoint with a pending write."""
    config = Chain(face, "small").put({"a": 1})
    face.put_writes(config, [("a", 2)], "task")
    with counter.recording():
        assert pending(face, config) == [("task", "a", 2)]
    return counter.names


def test_writes_that_are_more_than_a_document_together_are_read_whole(
    counted: Face, counter: CommandCounter
) -> None:
    config = Chain(counted).put({"a": 1})
    writes = [("x", b"x" * 9 * MB), ("y", b"y" * 9 * MB)]
    counted.put_writes(config, writes, "task")
    for named in (config, thread()):
        found = counted.get_tuple(named)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": 1}
        assert found.pending_writes == [("task", *write) for write in writes]
    assert small_read(counted, counter) == ["aggregate"]


def test_an_old_checkpoint_that_is_more_than_a_document_with_its_writes_is_read_whole(
    counted: Face, counter: CommandCounter, database: Data
) -> None:
    stored = checkpoint({"docs": b"d" * 10 * MB}, {"docs": 1})
    config = insert_whole(database, thread(), stored, INPUT)
    value = b"w" * 7 * MB
    written = {"task_id": "task", "task_path": "", "idx": 0, "channel": "a", "value": value}
    insert_old_write(database, config, **written)
    for named in (config, thread()):
        found = counted.get_tuple(named)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"docs": b"d" * 10 * MB}
        assert found.pending_writes == [("task", "a", value)]
    assert small_read(counted, counter) == ["aggregate"]


# A server leaves a document of its own making some kilobytes more than one that it stores.
@pytest.mark.parametrize("beyond", [-32_768, -8192, -1024, 0, 8192, 32_768])
def test_writes_that_are_just_about_a_document_together_are_read_whole(
    counted: Face, beyond: int
) -> None:
    config = Chain(counted).put({"a": 1})
    writes = [("x", b"x" * (8 * MB)), ("y", b"y" * (8 * MB + beyond))]
    counted.put_writes(config, writes, "task")
    assert pending(counted, config) == [("task", *write) for write in writes]


# ------------------------------------------------------------------ servers that do not join


def with_a_write(face: Face) -> RunnableConfig:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, [("a", 2)], "task")
    return config


def test_a_server_that_refuses_to_join_is_asked_once(
    make_face: MakeFace, counter: CommandCounter, fail_command: FailCommand
) -> None:
    face = make_face(client_kwargs={"event_listeners": [counter], "appname": "joins"})
    config = with_a_write(face)
    with fail_command(["aggregate"], app_name="joins", errorCode=STAGE_NOT_KNOWN):
        for names in (["aggregate", "find", "find"], ["find", "find"]):
            with counter.recording():
                found = face.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"] == {"a": 1}
            assert found.pending_writes == [("task", "a", 2)]
            assert counter.names == names
    with counter.recording():
        assert pending(face, thread()) == [("task", "a", 2)]
        assert face.get_tuple(thread("another")) is None
    assert counter.names == ["find", "find", "find"]


def refusing(face: Face, monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[Any]:
    """Let every aggregation on the checkpoints fail; return a list that tells of each."""
    port: Any = face.saver._port
    asked: list[Any] = []

    def aggregate(pipeline: Any, **kwargs: Any) -> Any:
        asked.append(pipeline)
        raise error

    monkeypatch.setattr(port._collections["checkpoints"], "aggregate", aggregate)
    return asked


@pytest.mark.parametrize(
    "error",
    [
        OperationFailure("Unrecognized pipeline stage name", STAGE_NOT_KNOWN),
        OperationFailure("not authorized", 13),
        EncryptionError(Exception("a join of encrypted collections is not supported")),
    ],
    ids=["unknown", "forbidden", "encrypted"],
)
def test_what_cannot_be_joined_is_read_by_two_finds_and_not_tried_again(
    counted: Face, counter: CommandCounter, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    config = with_a_write(counted)
    asked = refusing(counted, monkeypatch, error)
    with counter.recording():
        for named in (config, thread(), config):
            assert pending(counted, named) == [("task", "a", 2)]
    assert len(asked) == 1
    assert counter.names == ["find", "find"] * 3


def test_a_join_that_is_too_large_is_tried_again(
    counted: Face, counter: CommandCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_a_write(counted)
    asked = refusing(counted, monkeypatch, OperationFailure("too large", 4568))
    with counter.recording():
        for named in (config, thread()):
            assert pending(counted, named) == [("task", "a", 2)]
    assert len(asked) == 2
    assert counter.names == ["find", "find"] * 2


def test_a_lost_connection_is_no_reason_to_read_otherwise(
    counted: Face, counter: CommandCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_a_write(counted)
    with monkeypatch.context() as patched:
        refusing(counted, patched, AutoReconnect("gone"))
        with counter.recording(), pytest.raises(AutoReconnect):
            counted.get_tuple(config)
    assert counter.names == []
    with counter.recording():
        assert pending(counted, config) == [("task", "a", 2)]
    assert counter.names == ["aggregate"]


# ------------------------------------------------------------------ the same checkpoint id


def test_a_thread_and_its_copy_do_not_share_writes(face: Face) -> None:
    config = with_a_write(face)
    face.copy_thread("t", "copy")
    id_ = config["configurable"]["checkpoint_id"]
    copied = thread("copy", checkpoint_id=id_)
    face.put_writes(config, [("b", "of the thread")], "later")
    face.put_writes(copied, [("b", "of the copy")], "later")
    for named in (config, thread()):
        assert pending(face, named) == [("later", "b", "of the thread"), ("task", "a", 2)]
    for named in (copied, thread("copy")):
        assert pending(face, named) == [("later", "b", "of the copy"), ("task", "a", 2)]


def test_namespaces_do_not_share_writes(face: Face) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    namespaces = ["", "sub:1", "sub:2", "without writes"]
    for namespace in namespaces:
        config = face.put(thread("t", namespace), stored, INPUT, {"a": 1})
        if namespace != "without writes":
            face.put_writes(config, [("a", namespace)], "task")
    for namespace in namespaces:
        expected = [] if namespace == "without writes" else [("task", "a", namespace)]
        for named in (thread("t", namespace, checkpoint_id=stored["id"]), thread("t", namespace)):
            assert pending(face, named) == expected


def test_a_root_without_checkpoints_does_not_get_those_of_a_subgraph(face: Face) -> None:
    config = Chain(face, "t", "sub:1").put({"a": 1})
    face.put_writes(config, [("a", 2)], "task")
    assert face.get_tuple(thread()) is None
    assert pending(face, thread("t", "sub:1")) == [("task", "a", 2)]


def test_checkpoints_of_a_thread_do_not_share_writes(face: Face) -> None:
    chain = Chain(face)
    configs = [chain.put({"a": number}) for number in range(3)]
    for number, config in enumerate(configs[:2]):
        face.put_writes(config, [("a", number)], "task")
    assert [pending(face, config) for config in configs] == [
        *([("task", "a", 0)], [("task", "a", 1)], [])
    ]
    assert pending(face, thread()) == []
