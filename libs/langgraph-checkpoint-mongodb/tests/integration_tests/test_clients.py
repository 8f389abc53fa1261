"""Construction, clients, and each saver's methods for the other's world."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import InvalidOperation
from pymongo.monitoring import CommandStartedEvent

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver
from tests.face import Face, MakeFace
from tests.support import (
    HOUSEKEEPING,
    LARGE_SIZE,
    Chain,
    CommandCounter,
    checkpoint,
    contents,
    thread,
    values_of,
)

Data = Database[dict[str, Any]]

LARGE = b"v" * LARGE_SIZE
STEP: Any = {"source": "loop", "step": 0}


# ---------------------------------------------------------------------- construction


def test_the_other_kind_of_client_is_refused_with_the_name_of_the_other_class(
    mongodb_uri: str,
) -> None:
    right: Any = AsyncMongoClient(mongodb_uri, connect=False)
    with pytest.raises(TypeError, match=r"for an AsyncMongoClient use .*\.AsyncMongoDBSaver"):
        MongoDBSaver(right)
    with MongoClient[Any](mongodb_uri, connect=False) as wrong:
        with pytest.raises(TypeError, match=r"for a MongoClient use .*\.MongoDBSaver"):
            AsyncMongoDBSaver(wrong)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_older_releases(mongodb_uri: str) -> None:
    with MongoClient[Any](mongodb_uri) as client:
        saver = MongoDBSaver(client, create_indexes=False)
        assert saver.client is client
        assert saver.db.name == "checkpointing_db"
        assert saver.checkpoint_collection.full_name == "checkpointing_db.checkpoints"
        assert saver.writes_collection.full_name == "checkpointing_db.checkpoint_writes"
        values = saver.channel_values_collection.full_name
        assert values == "checkpointing_db.checkpoint_channel_values"
        assert saver.ttl is None
        assert isinstance(saver.serde, JsonPlusSerializer)


def test_the_positions_are_those_of_older_releases(
    mongo_client: MongoClient[Any], database: Data
) -> None:
    serde = JsonPlusSerializer()
    saver = MongoDBSaver(mongo_client, database.name, "c", "w", 60, serde)
    assert (saver.ttl, saver.serde) == (60, serde)
    config = saver.put(thread(), checkpoint({"a": LARGE}, {"a": "1"}), STEP, {"a": "1"})
    saver.put_writes(config, [("a", 1)], "task")
    names = {name for name, found in contents(database).items() if found}
    assert names == {"c", "w", "c_channel_values"}


def test_every_collection_can_be_named(make_face: MakeFace, database: Data) -> None:
    face = make_face(
        checkpoint_collection_name="c",
        writes_collection_name="w",
        channel_values_collection_name="v",
    )
    config = Chain(face).put({"a": LARGE})
    face.put_writes(config, [("a", 1)], "task")
    assert values_of(face, config) == {"a": LARGE}
    assert {*contents(database)} == {"c", "w", "v"}


def test_unknown_arguments_are_ignored_and_logged(
    make_face: MakeFace, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        face = make_face(create_index=False, auto_index=1)
    name = type(face.saver).__name__
    assert f"{name} ignores unknown arguments: auto_index, create_index." in caplog.messages


def test_from_conn_string_takes_positions_and_closes_its_client(
    mongodb_uri: str, database: Data
) -> None:
    with MongoDBSaver.from_conn_string(mongodb_uri, database.name, "c", "w", 60) as saver:
        assert (saver.ttl, saver.checkpoint_collection.name) == (60, "c")
        saver.put(thread(), checkpoint({}, {}), STEP, {})
    with pytest.raises(InvalidOperation):
        saver.get_tuple(thread())


async def test_the_async_from_conn_string_does_too(mongodb_uri: str, database: Data) -> None:
    given = (mongodb_uri, database.name, "c", "w", 60)
    async with AsyncMongoDBSaver.from_conn_string(*given) as saver:
        assert (saver.ttl, saver.checkpoint_collection.name) == (60, "c")
        await saver.aput(thread(), checkpoint({}, {}), STEP, {})
    with pytest.raises(InvalidOperation):
        await saver.aget_tuple(thread())


def test_from_conn_string_passes_further_arguments_on(mongodb_uri: str, database: Data) -> None:
    further: dict[str, Any] = {"channel_values_collection_name": "v", "create_indexes": False}
    with MongoDBSaver.from_conn_string(mongodb_uri, database.name, **further) as saver:
        assert saver.channel_values_collection.name == "v"
    assert database.list_collection_names() == []


def test_a_client_that_was_handed_in_stays_open(mongodb_uri: str, database: Data) -> None:
    with MongoClient[Any](mongodb_uri) as client:
        saver = MongoDBSaver(client, database.name)
        saver.get_tuple(thread())
        del saver
        client.admin.command("ping")


def test_close_closes_the_client(face: Face) -> None:
    closing = face.saver.close()
    if closing is not None:
        face.run(closing)
    with pytest.raises(InvalidOperation):
        face.get_tuple(thread())


def test_the_driver_tells_the_server_which_library_it_serves(
    make_face: MakeFace, database: Data, mongod: None
) -> None:
    face = make_face(client_kwargs={"appname": "handed in"})
    if not inspect.ismethod(getattr(face.client, "append_metadata", None)):
        pytest.skip("only PyMongo 4.14 and later can name a library to an existing client")
    face.get_tuple(thread())
    assert is_named(database, "handed in")


def test_a_client_of_its_own_tells_it_too(mongodb_uri: str, database: Data, mongod: None) -> None:
    uri = f"{mongodb_uri}{'&' if '?' in mongodb_uri else '/?'}appName=own"
    with MongoDBSaver.from_conn_string(uri, database.name) as saver:
        saver.get_tuple(thread())
        assert is_named(database, "own")


async def test_an_async_client_of_its_own_tells_it_too(
    mongodb_uri: str, database: Data, mongod: None
) -> None:
    uri = f"{mongodb_uri}{'&' if '?' in mongodb_uri else '/?'}appName=own"
    async with AsyncMongoDBSaver.from_conn_string(uri, database.name) as saver:
        await saver.aget_tuple(thread())
        assert is_named(database, "own")


def is_named(database: Data, app_name: str) -> bool:
    """Whether the server knows which library and release an application's connections serve."""
    connections = {"$currentOp": {"allUsers": True, "idleConnections": True}}
    running = database.client.admin.aggregate([connections, {"$match": {"appName": app_name}}])
    drivers = [one["clientMetadata"]["driver"] for one in running if "clientMetadata" in one]
    release = version("langgraph-checkpoint-mongodb")
    return any(
        "Langgraph" in driver["name"].split("|") and release in driver["version"].split("|")
        for driver in drivers
    )


# ---------------------------------------------------------------------- clones


def test_a_clone_with_an_allowlist_uses_its_own_serializer(face: Face) -> None:
    if not hasattr(BaseCheckpointSaver, "with_allowlist"):
        pytest.skip("with_allowlist came with langgraph-checkpoint 4; install it to test clones")
    chain = Chain(face)
    chain.put({"kept": Strange(1), "large": [Strange(2), LARGE]})
    strict: Any = face.saver
    strict.serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    blocked = values_of(face, thread())
    assert not isinstance(blocked["kept"], Strange)
    clone = strict.with_allowlist([(Strange.__module__, Strange.__name__)])
    assert clone is not strict
    face.saver = clone
    assert values_of(face, thread()) == chain.values
    face.saver = strict
    assert values_of(face, thread()) == blocked


@dataclass
class Strange:
    """A value that only an allowlist lets through."""

    number: int


# ---------------------------------------------------------------------- async on MongoDBSaver


@pytest.fixture
def sync_saver(mongo_client: MongoClient[Any], database: Data) -> MongoDBSaver:
    return MongoDBSaver(mongo_client, database.name)


async def test_the_sync_saver_has_every_async_method(sync_saver: MongoDBSaver) -> None:
    saver = sync_saver
    config = await saver.aput(thread(), checkpoint({"a": LARGE}, {"a": "1"}), STEP, {"a": "1"})
    await saver.aput_writes(config, [("a", 1)], "task")
    found = await saver.aget_tuple(thread())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": LARGE}
    assert found.pending_writes == [("task", "a", 1)]
    assert [row async for row in saver.alist(thread())] == [found]
    history = await saver.aget_delta_channel_history(config=config, channels=["a"])
    assert history.keys() == {"a"}
    await saver.acopy_thread("t", "copy")
    await saver.aprune(["copy"])
    await saver.adelete_for_runs(["none"])
    await saver.adelete_thread("t")
    assert await saver.aget_tuple(thread()) is None
    assert await saver.aget_tuple(thread("copy")) is not None


async def test_its_listing_raises_where_it_is_read(sync_saver: MongoDBSaver) -> None:
    with pytest.raises(ValueError, match="Invalid limit"):
        _ = [row async for row in sync_saver.alist(thread(), limit=-1)]
    with pytest.raises(ValueError, match="Invalid filter key"):
        _ = [row async for row in sync_saver.alist(thread(), filter={"$where": "1"})]


async def test_its_listing_shows_the_rows_before_one_that_fails(
    sync_saver: MongoDBSaver, database: Data
) -> None:
    first = await sync_saver.aput(thread(), checkpoint({}, {}), STEP, {})
    await sync_saver.aput(first, checkpoint({}, {}), STEP, {})
    broken = {"$set": {"type": "split:strange"}}
    database["checkpoints"].update_one(first["configurable"], broken)
    rows = sync_saver.alist(thread())
    assert (await anext(rows)).parent_config == first
    with pytest.raises(NotImplementedError, match="strange"):
        await anext(rows)


async def test_its_async_methods_do_not_block_the_event_loop(
    mongodb_uri: str, database: Data
) -> None:
    senders: list[int] = []

    class Senders(CommandCounter):
        def started(self, event: CommandStartedEvent) -> None:
            if event.command_name not in HOUSEKEEPING:
                senders.append(threading.get_ident())

    with MongoClient[Any](mongodb_uri, event_listeners=[Senders()]) as client:
        saver = MongoDBSaver(client, database.name)
        senders.clear()
        await saver.aput(thread(), checkpoint({}, {}), STEP, {})
        assert [row async for row in saver.alist(thread())]
    assert senders
    assert threading.get_ident() not in senders


# ---------------------------------------------------------------------- sync on AsyncMongoDBSaver


SYNC_CALLS: dict[str, Callable[[Any], Any]] = {
    "get_tuple": lambda saver: saver.get_tuple(thread()),
    "list": lambda saver: saver.list(thread()),
    "put": lambda saver: saver.put(thread(), checkpoint({}, {}), STEP, {}),
    "put_writes": lambda saver: saver.put_writes(thread(checkpoint_id="c"), [("a", 1)], "task"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "copy"),
    "prune": lambda saver: saver.prune(["t"]),
    "get_delta_channel_history": lambda saver: saver.get_delta_channel_history(
        config=thread(), channels=[]
    ),
}


@pytest.mark.parametrize("method", SYNC_CALLS)
async def test_a_sync_method_in_the_event_loop_is_refused_at_once(
    mongodb_uri: str, database: Data, method: str
) -> None:
    async with AsyncMongoDBSaver.from_conn_string(mongodb_uri, database.name) as saver:
        await saver.setup()
        with pytest.raises(asyncio.InvalidStateError, match="its own event loop"):
            SYNC_CALLS[method](saver)
    assert not any(contents(database).values())


@pytest.mark.parametrize("saver_type", [MongoDBSaver, AsyncMongoDBSaver])
def test_a_connection_string_instead_of_a_client_names_the_way(saver_type: Any) -> None:
    with pytest.raises(TypeError, match=rf"{saver_type.__name__}\.from_conn_string"):
        saver_type("mongodb://localhost")


def test_a_sync_method_works_before_the_first_async_one(mongodb_uri: str, database: Any) -> None:
    async def read() -> Any:
        async with AsyncMongoDBSaver.from_conn_string(mongodb_uri, database.name) as saver:
            return await asyncio.to_thread(saver.get_tuple, thread("t"))

    assert asyncio.run(read()) is None


def test_a_sync_method_without_a_running_loop_is_refused(mongodb_uri: str) -> None:
    async def construct() -> AsyncMongoDBSaver:
        async with AsyncMongoDBSaver.from_conn_string(mongodb_uri) as saver:
            return saver

    saver = asyncio.run(construct())
    with pytest.raises(asyncio.InvalidStateError, match="no running event loop"):
        saver.get_tuple(thread())


def test_a_saver_whose_loop_has_ended_takes_the_next(mongodb_uri: str, database: Data) -> None:
    async def construct() -> AsyncMongoDBSaver:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongodb_uri)
        return AsyncMongoDBSaver(client, database.name)

    saver = asyncio.run(construct())

    async def use() -> Any:
        try:
            await saver.setup()
            return await asyncio.to_thread(saver.get_tuple, thread())
        finally:
            await saver.close()

    assert asyncio.run(use()) is None


async def test_sync_methods_work_from_other_threads(mongodb_uri: str, database: Data) -> None:
    async with AsyncMongoDBSaver.from_conn_string(mongodb_uri, database.name) as saver:
        await saver.setup()

        def use() -> None:
            config = saver.put(thread(), checkpoint({"a": LARGE}, {"a": "1"}), STEP, {"a": "1"})
            saver.put_writes(config, [("a", 1)], "task")
            found = saver.get_tuple(thread())
            assert found is not None
            assert found.pending_writes == [("task", "a", 1)]
            assert [*saver.list(thread())] == [found]
            with pytest.raises(ValueError, match="Invalid limit"):
                list(saver.list(thread(), limit=-1))
            assert saver.get_delta_channel_history(config=config, channels=["a"]).keys() == {"a"}
            saver.copy_thread("t", "copy")
            saver.prune(["copy"])
            saver.delete_for_runs(["none"])
            saver.delete_thread("t")
            assert saver.get_tuple(thread()) is None

        await asyncio.to_thread(use)
        assert await saver.aget_tuple(thread("copy")) is not None


# ---------------------------------------------------------------------- both


def test_the_async_constructor_does_no_io() -> None:
    async def construct() -> None:
        nowhere = AsyncMongoClient[Any]("mongodb://127.0.0.1:1", serverSelectionTimeoutMS=1)
        AsyncMongoDBSaver(nowhere)
        await nowhere.close()

    asyncio.run(construct())


async def test_tasks_that_start_at_once_set_up_once(mongodb_uri: str, database: Data) -> None:
    counter = CommandCounter()
    async with AsyncMongoClient[Any](mongodb_uri, event_listeners=[counter]) as client:
        saver = AsyncMongoDBSaver(client, database.name)
        with counter.recording():
            await asyncio.gather(*(saver.aget_tuple(thread()) for _ in range(5)))
    assert counter.names.count("createIndexes") == 3


def test_versions_keep_their_kind(face: Face) -> None:
    first = face.saver.get_next_version(None)
    second = face.saver.get_next_version(first)
    assert (first[:33], second[:33]) == (f"{1:032d}.", f"{2:032d}.")
    assert first < second
    assert face.saver.get_next_version(first) != second
    assert face.saver.get_next_version(7) == 8


def test_a_saver_works_with_whatever_codec_options_its_client_has(make_face: MakeFace) -> None:
    face = make_face(client_kwargs={"document_class": RawBSONDocument, "tz_aware": True}, ttl=3600)
    chain = Chain(face)
    chain.put({"a": LARGE})
    chain.face = face.fresh()
    config = chain.put({"b": 1})
    assert values_of(face, config) == chain.values
    assert len(face.list(thread())) == 2


@pytest.mark.parametrize("thread_id", ["", "a.b", "$t", "ключ", "nul\0", "x" * 500])
def test_any_text_is_a_thread_id(face: Face, thread_id: str) -> None:
    config = Chain(face, thread_id).put({"a": LARGE})
    assert values_of(face, config) == {"a": LARGE}
    face.delete_thread(thread_id)
    assert face.get_tuple(thread(thread_id)) is None


@pytest.mark.parametrize("thread_id", [None, 7, {"$ne": ""}, b"t"])
def test_what_is_no_text_is_no_thread_id(face: Face, database: Data, thread_id: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: face.get_tuple(thread(thread_id)),
        lambda: face.put(thread(thread_id), checkpoint({}, {}), STEP, {}),
        lambda: face.delete_thread(thread_id),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="Invalid thread_id: expected a string"):
            call()
    assert not any(contents(database).values())


def test_deleting_a_thread_leaves_nothing_of_it_and_all_of_others(
    face: Face, database: Data
) -> None:
    for thread_id in ("gone", "stays"):
        for checkpoint_ns in ("", "sub:1"):
            config = Chain(face, thread_id, checkpoint_ns).put({"a": LARGE})
            face.put_writes(config, [("a", 1)], "task")
    face.delete_thread("gone")
    face.delete_thread("gone")
    left = {name: [one["thread_id"] for one in found] for name, found in contents(database).items()}
    assert left == {name: ["stays"] * 2 for name in left}
    assert len(left) == 3


def test_a_thread_begins_where_reads_ask_for_more_members_than_writes(
    make_face: MakeFace,
) -> None:
    for number in range(5):
        kwargs = {"readConcernLevel": "majority", "w": 1}
        chain = Chain(make_face(client_kwargs=kwargs), f"thread {number}")
        for step in range(3):
            chain.put({"n": step, "doc": f"{step}" * 10_000})
        stored = values_of(make_face(), thread(f"thread {number}"))
        assert stored == {"n": 2, "doc": "2" * 10_000}
