"""Many threads of conversation at once over one saver: all is stored as one after another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymongo
import pytest
from pymongo.database import Database
from pymongo.errors import PyMongoError

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.face import Face, Kind, MakeFace
from tests.integration_tests.conftest import FailCommand
from tests.support import LARGE_SIZE, Chain, CommandCounter, checkpoint, contents, thread

Data = Database[dict[str, Any]]
Call = tuple[Any, ...]
"""A method of a saver, as `put`, and its arguments."""

AT_ONCE = {"sync": 16, "async": 64}
LARGE = b"v" * LARGE_SIZE


def calls(thread_id: str, number: int) -> list[Call]:
    """What one conversation asks of its saver; its number is in all that is stored."""
    ids = [f"{number:04d}-{step}" for step in range(3)]
    at = [thread(thread_id, checkpoint_id=id_) for id_ in ids]
    ts, docs = "2026-01-01T00:00:00+00:00", LARGE + str(number).encode()
    first = checkpoint({"a": number}, {"a": "1"}, id=ids[0], ts=ts)
    second = checkpoint({"a": number, "docs": docs}, {"a": "1", "docs": "2"}, id=ids[1], ts=ts)
    third = checkpoint({"a": -number, "docs": docs}, {"a": "3", "docs": "2"}, id=ids[2], ts=ts)
    return [
        ("put", thread(thread_id), first, {"step": -1}, {"a": "1"}),
        ("put_writes", at[0], [("a", number), ("docs", docs)], "one"),
        ("put_writes", at[0], [("a", "not stored: it is there"), ("a", number)], "one"),
        ("put_writes", at[0], [("__error__", f"error {number}")], "two"),
        ("put", at[0], second, {"step": 0, "number": number}, {"docs": "2"}),
        ("put_writes", at[1], [("a", [number])], "one"),
        ("put", at[1], third, {"step": 1}, {"a": "3"}),
        ("put", at[1], third, {"step": 1, "again": number}, {"a": "3"}),
        ("put_writes", at[2], [("a", None)], "one"),
    ]


def one_after_another(face: Face, conversations: Sequence[Sequence[Call]]) -> None:
    for conversation in conversations:
        for method, *args in conversation:
            getattr(face, method)(*args)


def at_once(face: Face, conversations: Sequence[Sequence[Call]]) -> list[Any]:
    """Run conversations beside each other; return what each raised, or None."""
    saver: Any = face.saver
    if isinstance(saver, MongoDBSaver):
        together = threading.Barrier(len(conversations))

        def run(conversation: Sequence[Call]) -> None:
            together.wait(60)
            for method, *args in conversation:
                getattr(saver, method)(*args)

        with ThreadPoolExecutor(len(conversations)) as pool:
            futures = [pool.submit(run, conversation) for conversation in conversations]
            return [future.exception(60) for future in futures]

    async def arun(conversation: Sequence[Call]) -> None:
        for method, *args in conversation:
            await getattr(saver, f"a{method}")(*args)

    async def all_of() -> list[Any]:
        return await asyncio.gather(*map(arun, conversations), return_exceptions=True)

    return face.run(asyncio.wait_for(all_of(), 60))


def stored(database: Data, name: str) -> dict[str, list[dict[str, Any]]]:
    """What is stored of the conversations of a name, without what must differ."""
    found = {}
    for collection, documents in contents(database).items():
        of_name = [one for one in documents if one["thread_id"].startswith(name)]
        for one in of_name:
            one["thread_id"] = one["thread_id"].removeprefix(name)
            del one["_id"]
            one.pop("attempt", None)
        found[collection] = sorted(of_name, key=lambda one: repr(sorted(one.items())))
    return found


def test_conversations_at_once_are_stored_as_one_after_another(
    face: Face, face_kind: Kind, database: Data
) -> None:
    numbers = range(AT_ONCE[face_kind])
    face.setup()
    failed = at_once(face, [calls(f"at once {number}", number) for number in numbers])
    assert failed == [None] * len(numbers)
    one_after_another(face, [calls(f"in order {number}", number) for number in numbers])
    found = stored(database, "at once ")
    assert found == stored(database, "in order ")
    assert len(found["checkpoints"]) == 3 * len(numbers)


def test_each_conversation_reads_its_own(face: Face, face_kind: Kind) -> None:
    numbers = range(AT_ONCE[face_kind])
    face.setup()
    at_once(face, [calls(f"t {number}", number) for number in numbers])
    for number in numbers:
        newest, _, first = face.list(thread(f"t {number}"))
        docs = LARGE + str(number).encode()
        assert newest.checkpoint["channel_values"] == {"a": -number, "docs": docs}
        assert newest.metadata == {"step": 1, "again": number}
        assert newest.pending_writes == [("one", "a", None)]
        assert first.pending_writes == [
            ("one", "a", number),
            ("one", "docs", docs),
            ("two", "__error__", f"error {number}"),
        ]


@pytest.mark.parametrize("face_kind", ["async"])
def test_tasks_at_once_send_far_fewer_inserts_than_they_ask_for(make_face: MakeFace) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    conversations = []
    for number in range(AT_ONCE["async"]):
        chain = Chain(face, f"t {number}")
        config = chain.put({"a": number})
        after = checkpoint({"a": number}, chain.versions)
        named = thread(f"t {number}", checkpoint_id=after["id"])
        conversations.append(
            [
                ("put_writes", config, [("a", number)], "one"),
                ("put", config, after, {"step": 0}, {}),
                ("put_writes", named, [("a", number), ("b", LARGE)], "one"),
            ]
        )
    with counter.recording():
        assert at_once(face, conversations) == [None] * len(conversations)
    asked_for = sum(map(len, conversations))
    assert set(counter.names) == {"insert"}
    assert len(counter.names) <= asked_for / 8


# ------------------------------------------------------------------ failures


def writing_at_once(face: Face, *channels: str) -> tuple[list[list[Call]], Callable[[], list[Any]]]:
    """Conversations that write to these channels, and what then is read in each."""
    configs = [Chain(face, f"t {number}").put({"a": 1}) for number in range(8)]
    conversations = [
        [("put_writes", config, [(channel, number) for channel in channels], "one")]
        for number, config in enumerate(configs)
    ]

    def read() -> list[Any]:
        found = [face.get_tuple(config) for config in configs]
        return [None if one is None else one.pending_writes for one in found]

    return conversations, read


def test_a_command_that_the_server_refused_once_fails_no_conversation_but_its_own(
    make_face: MakeFace, fail_command: FailCommand
) -> None:
    face = make_face(client_kwargs={"appname": "refused"})
    conversations, read = writing_at_once(face, "a")
    failing = fail_command(["insert"], app_name="refused", mode={"times": 1}, errorCode=13)
    with failing:
        failed = at_once(face, conversations)
    assert len([error for error in failed if error is not None]) <= 1
    for number, (error, found) in enumerate(zip(failed, read(), strict=True)):
        if error is None:
            assert found == [("one", "a", number)]
        else:
            assert isinstance(error, PyMongoError)


def test_writes_that_were_not_replicated_as_asked_are_told_to_every_conversation(
    make_face: MakeFace, fail_command: FailCommand
) -> None:
    face = make_face(client_kwargs={"appname": "concern"})
    conversations, _ = writing_at_once(face, "a", "b")
    concern = {"code": 64, "errmsg": "waiting for replication timed out"}
    with fail_command(["insert"], app_name="concern", writeConcernError=concern):
        failed = at_once(face, conversations)
    assert all(isinstance(error, PyMongoError) for error in failed), failed


def test_a_lone_write_that_was_not_replicated_as_asked_is_told_to_every_conversation(
    make_face: MakeFace, fail_command: FailCommand
) -> None:
    face = make_face(client_kwargs={"appname": "concern"})
    conversations, _ = writing_at_once(face, "a")
    concern = {"code": 64, "errmsg": "waiting for replication timed out"}
    with fail_command(["insert"], app_name="concern", writeConcernError=concern):
        failed = at_once(face, conversations)
    assert all(isinstance(error, PyMongoError) for error in failed), failed


@pytest.mark.parametrize("face_kind", ["async"])
def test_a_time_limit_of_one_task_is_not_that_of_another(
    make_face: MakeFace, fail_command: FailCommand
) -> None:
    face = make_face(client_kwargs={"appname": "limited"})
    face.setup()
    saver: Any = face.saver

    async def limited() -> None:
        with pymongo.timeout(0.2):
            await saver.aput_writes(thread("a", checkpoint_id="1"), [("x", 1)], "task")

    async def free() -> None:
        await saver.aput_writes(thread("b", checkpoint_id="1"), [("x", 1)], "task")

    async def both() -> list[Any]:
        return [*await asyncio.gather(limited(), free(), return_exceptions=True)]

    slow = {"blockConnection": True, "blockTimeMS": 600}
    with fail_command(["insert"], app_name="limited", mode={"times": 1}, **slow):
        first, second = face.run(both())
    assert isinstance(first, PyMongoError)
    assert second is None
