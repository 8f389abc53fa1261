"""Which collections a saver uses, which clients it takes, and what keeps savers apart."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

import mongomock
import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver
from tests.face import Face, Kind, MakeFace
from tests.integration_tests.conftest import FailCommand
from tests.support import LARGE_SIZE, Chain, checkpoint, contents, thread, values_of

Data = Database[dict[str, Any]]

LARGE = "x" * LARGE_SIZE
CLASSES: dict[Kind, Any] = {"sync": MongoDBSaver, "async": AsyncMongoDBSaver}


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("first", "third"),
    [
        ("checkpoints", "checkpoint_channel_values"),
        ("checkpoints_aio", "checkpoints_aio_channel_values"),
        ("mine", "mine_channel_values"),
    ],
)
def test_the_third_name_follows_the_first(make_face: MakeFace, first: str, third: str) -> None:
    face = make_face(checkpoint_collection_name=first, create_indexes=False)
    assert face.saver.channel_values_collection.name == third


def test_a_name_that_is_given_counts(make_face: MakeFace) -> None:
    face = make_face(checkpoint_collection_name="mine", channel_values_collection_name="third")
    assert face.saver.channel_values_collection.name == "third"


@pytest.mark.parametrize("action", ["delete_thread", "prune", "copy_thread"])
def test_savers_with_collections_of_their_own_do_not_meet(make_face: MakeFace, action: str) -> None:
    names: list[dict[str, Any]] = [
        {"checkpoint_collection_name": f"{who}_c", "writes_collection_name": f"{who}_w"}
        for who in ("one", "other")
    ]
    one, other = make_face(**names[0]), make_face(**names[1])
    for face in (one, other):
        Chain(face, "t").put({"doc": LARGE})
    kept = Chain(other, "kept")
    kept.put({"doc": LARGE})
    if action == "copy_thread":
        one.copy_thread("t", "kept")
    elif action == "prune":
        one.prune(["t", "kept"])
    else:
        one.delete_thread("t")
    assert values_of(other.fresh(), thread("t")) == {"doc": LARGE}
    assert values_of(other.fresh(), thread("kept")) == {"doc": LARGE}


def test_savers_that_share_channel_values_are_told(
    make_face: MakeFace, caplog: pytest.LogCaptureFixture
) -> None:
    face = make_face(checkpoint_collection_name="one", create_indexes=False)
    client: Any = face.client
    with caplog.at_level(logging.WARNING):
        for name in ("one", "other"):
            CLASSES[face.kind](
                client,
                face.saver.db.name,
                name,
                channel_values_collection_name="one_channel_values",
                create_indexes=False,
            )
    (record,) = caplog.records
    assert "'one' and 'other' keep their channel values in one collection" in record.getMessage()


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_that_is_no_text_is_refused(make_face: MakeFace, name: Any) -> None:
    with pytest.raises(ValueError, match="Invalid collection name"):
        make_face(checkpoint_collection_name=name)


@pytest.mark.parametrize("name", ["checkpoints", "checkpoint_channel_values"])
def test_one_collection_does_not_serve_twice(
    make_face: MakeFace, database: Data, name: str
) -> None:
    with pytest.raises(ValueError, match="One collection cannot serve twice"):
        make_face(writes_collection_name=name)
    assert contents(database) == {}


# ------------------------------------------------------------------ clients


WRONG = [None, 5, "mongodb://localhost", {}, object()]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_is_no_client_is_refused_at_once(kind: Kind, wrong: Any) -> None:
    wanted = {"sync": "pymongo.MongoClient", "async": "pymongo.AsyncMongoClient"}[kind]
    with pytest.raises(TypeError, match=wanted):
        CLASSES[kind](wrong)


def test_a_database_and_a_collection_are_refused(face: Face) -> None:
    client: Any = face.client
    for wrong in (client["any"], client["any"]["any"]):
        with pytest.raises(TypeError, match="MongoClient"):
            CLASSES[face.kind](wrong)


def test_a_client_of_the_other_kind_is_refused_with_the_class_to_use(mongodb_uri: str) -> None:
    with pytest.raises(TypeError, match=r"use .*\.MongoDBSaver"):
        AsyncMongoDBSaver(MongoClient(mongodb_uri, connect=False))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"use .*\.AsyncMongoDBSaver"):
        MongoDBSaver(AsyncMongoClient(mongodb_uri, connect=False))  # type: ignore[arg-type]


def test_only_a_client_of_mongomock_imitates_one() -> None:
    class Looks:
        def __getitem__(self, name: str) -> Any:
            return mongomock.MongoClient()[name]

    with pytest.raises(TypeError, match="got a "):
        MongoDBSaver(Looks())  # type: ignore[arg-type]
    mocked: Any = mongomock.MongoClient()
    with pytest.raises(TypeError, match=r"got a mongomock\.database\.Database"):
        MongoDBSaver(mocked["any"])
    MongoDBSaver(mocked)
    with pytest.raises(TypeError, match="AsyncMongoClient"):
        AsyncMongoDBSaver(mocked)


def test_a_client_that_does_not_acknowledge_is_refused(make_face: MakeFace) -> None:
    with pytest.raises(ValueError, match="w=0"):
        make_face(client_kwargs={"w": 0})


# ------------------------------------------------------------------ another unique index


def test_a_duplicate_key_of_another_index_is_an_error(face: Face, database: Data) -> None:
    config = Chain(face).put({"a": 1})
    keys = [("thread_id", 1), ("checkpoint_id", 1), ("task_id", 1)]
    database["checkpoint_writes"].create_index(keys, unique=True)
    with pytest.raises((BulkWriteError, DuplicateKeyError), match="E11000"):
        face.put_writes(config, [("a", 1), ("b", 2)], "task")
    database["checkpoint_channel_values"].create_index([("thread_id", 1)], unique=True)
    with pytest.raises((BulkWriteError, DuplicateKeyError), match="E11000"):
        Chain(face, "u").put({"a": LARGE, "b": LARGE})
    assert face.get_tuple(thread("u")) is None


# ------------------------------------------------------------------ a context of its own


def test_a_transaction_of_one_task_has_no_writes_of_another(
    make_face: MakeFace, database: Data
) -> None:
    face = make_face()
    if face.kind == "sync" or not hasattr(face.client.start_session(), "bind"):
        pytest.skip("sessions are bound to a context by PyMongo 4.17 and newer, in async code here")
    saver: Any = face.saver
    face.setup()
    face.put_writes(thread("warm", checkpoint_id="1"), [("x", 1)], "task")

    async def aborts(number: int) -> None:
        session: Any = face.client.start_session()
        async with session.bind(end_session=True):
            await session.start_transaction()
            await saver.aput_writes(
                thread(f"aborted {number}", checkpoint_id="1"), [("x", 1)], "task"
            )
            await session.abort_transaction()

    async def together() -> None:
        for number in range(10):
            await asyncio.gather(
                aborts(number),
                saver.aput_writes(thread(f"kept {number}", checkpoint_id="1"), [("x", 2)], "task"),
            )

    face.run(together())
    kept = sorted(database["checkpoint_writes"].distinct("thread_id"))
    assert kept == sorted(["warm", *(f"kept {number}" for number in range(10))])


# ------------------------------------------------------------------ loops and processes


def test_another_event_loop_is_told_at_once(mongodb_uri: str, database: Data) -> None:
    async def main() -> None:
        async with AsyncMongoClient[Any](mongodb_uri) as client:
            saver = AsyncMongoDBSaver(client, database.name)
            await saver.aget_tuple(thread())
            errors: list[BaseException] = []

            def elsewhere() -> None:
                try:
                    asyncio.run(_get(saver))
                except RuntimeError as error:
                    errors.append(error)

            other = threading.Thread(target=elsewhere)
            other.start()
            await asyncio.to_thread(other.join, 30)
            (error,) = errors
            assert "belongs to another event loop" in str(error)
            assert "from_conn_string" in str(error)

    async def _get(saver: AsyncMongoDBSaver) -> None:
        await saver.aget_tuple(thread())

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:MongoClient opened before")
def test_a_child_forked_while_others_save_saves_at_once(mongodb_uri: str, database: Data) -> None:
    client = MongoClient[Any](mongodb_uri)
    saver = MongoDBSaver(client, database.name)
    stop = threading.Event()

    def save(name: str) -> None:
        chain = Chain(saver, name)
        while not stop.is_set():
            chain.put({"doc": LARGE})
            saver.put_writes(chain.config, [("x", 1), ("y", 2)], "task")

    threads = [threading.Thread(target=save, args=(f"t{number}",)) for number in range(4)]
    for one in threads:
        one.start()
    children = []
    try:
        for number in range(5):
            child = os.fork()
            if not child:
                try:
                    with MongoClient[Any](mongodb_uri) as own:
                        Chain(MongoDBSaver(own, database.name, create_indexes=False), "own").put({})
                    saver.put(
                        thread(f"child {number}"), checkpoint({"n": 1}, {"n": "1"}), {}, {"n": "1"}
                    )
                finally:
                    os._exit(0)
            children.append(child)
    finally:
        stop.set()
        for one in threads:
            one.join()
        for child in children:
            os.waitpid(child, 0)
        client.close()
    stored = {name for name in database["checkpoints"].distinct("thread_id") if "child" in name}
    assert len(stored) == 5


# ------------------------------------------------------------------ rights


def test_a_ttl_is_changed_where_only_making_indexes_is_allowed(
    make_face: MakeFace, database: Data, fail_command: FailCommand
) -> None:
    name = "may-not-collmod"
    make_face(ttl=3600).setup()
    with fail_command(["collMod"], app_name=name, errorCode=13):
        make_face(ttl=7200, client_kwargs={"appname": name}).setup()
    assert _ttls(database) == {7200}


def test_a_ttl_that_may_not_be_changed_at_all_stays_and_is_told(
    make_face: MakeFace,
    database: Data,
    fail_command: FailCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = "may-do-nothing"
    make_face(ttl=3600).setup()
    with (
        fail_command(["collMod", "dropIndexes"], app_name=name, errorCode=13),
        caplog.at_level(logging.WARNING),
    ):
        make_face(ttl=7200, client_kwargs={"appname": name}).setup()
    assert _ttls(database) == {3600}
    assert len({record.getMessage() for record in caplog.records}) == 3
    assert "collMod" in caplog.records[0].getMessage()
    assert "7200" in caplog.records[0].getMessage()


def test_a_user_who_may_not_list_indexes_is_told_what_to_do(
    make_face: MakeFace, fail_command: FailCommand
) -> None:
    name = "may-not-list"
    with (
        fail_command(["listIndexes"], app_name=name, errorCode=13),
        pytest.raises(OperationFailure) as caught,
    ):
        make_face(client_kwargs={"appname": name}).setup()
    assert "create_indexes=False" in " ".join(caught.value.__notes__)


def _ttls(database: Data) -> set[int]:
    return {
        index["expireAfterSeconds"]
        for name in database.list_collection_names()
        for index in database[name].list_indexes()
        if "expireAfterSeconds" in index
    }
