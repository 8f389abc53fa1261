from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import mongomock
import pytest
from bson import SON
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import AutoReconnect, BulkWriteError, ExecutionTimeout, OperationFailure

from langgraph.checkpoint.mongodb._database import driver
from langgraph.checkpoint.mongodb._database.aio import AsyncPort
from langgraph.checkpoint.mongodb._database.mocked import MockedPort
from langgraph.checkpoint.mongodb._database.port import Join, Role, Update, Updated, run
from langgraph.checkpoint.mongodb._database.sync import SyncPort
from langgraph.checkpoint.mongodb._layout.indexes import UNIQUE_FIELDS
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey

MB = 1024 * 1024
KEY = {"thread_id": "t"}


# ------------------------------------------------------------------ run


async def answer(value: object) -> object:
    return value


def test_a_coroutine_that_never_suspends_is_run_to_its_result() -> None:
    async def outer() -> object:
        return [await answer(1), await answer(2)]

    assert run(outer()) == [1, 2]


def test_what_it_raises_reaches_the_caller() -> None:
    error = AutoReconnect("gone")

    async def fails() -> None:
        raise error

    with pytest.raises(AutoReconnect) as raised:
        run(fails())
    assert raised.value is error


def test_it_runs_inside_an_event_loop_too() -> None:
    async def main() -> object:
        return run(answer("x"))

    assert asyncio.run(main()) == "x"


def test_a_coroutine_that_suspends_is_closed_and_refused() -> None:
    closed: list[bool] = []

    async def suspends() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="suspended"):
        run(suspends())
    assert closed == [True]


# ------------------------------------------------------------------ the sync port


class Failing:
    """A collection whose bulk fails."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self.details = details

    def insert_many(self, documents: Any, ordered: bool) -> None:
        assert not ordered
        raise BulkWriteError(dict(self.details))


def mock_port(**collections: Any) -> MockedPort:
    database: Any = mongomock.MongoClient()["db"]
    roles: tuple[Role, ...] = ("checkpoints", "writes", "values")
    given = {role: collections.get(role, database[role]) for role in roles}
    return MockedPort(database, given, UNIQUE_FIELDS)


def test_an_insert_answers_the_places_of_the_keys_that_were_taken() -> None:
    errors = [{"code": 11000, "index": 1}, {"code": 11000, "index": 3}]
    port = mock_port(values=Failing({"writeErrors": errors}))
    assert run(port.insert("values", [{}] * 4)) == [1, 3]


@pytest.mark.parametrize(
    "details",
    [
        {"writeErrors": [{"code": 11000, "index": 0}, {"code": 121, "index": 1}]},
        {"writeErrors": [], "writeConcernErrors": [{"code": 64}]},
        {"writeErrors": [{"code": 11000, "index": 0}], "writeConcernErrors": [{"code": 64}]},
    ],
)
def test_any_other_failure_of_an_insert_is_raised(details: Mapping[str, Any]) -> None:
    with pytest.raises(BulkWriteError):
        run(mock_port(values=Failing(details)).insert("values", [{}, {}]))


def test_an_insert_without_failures_answers_none() -> None:
    port = mock_port()
    assert run(port.insert("values", [{"a": 1}, {"a": 2}])) == []
    assert len(run(port.find("values", {}, {}))) == 2


def test_updates_tell_what_they_inserted() -> None:
    port = mock_port()
    upsert = Update(KEY, {"$set": {"a": 1}}, upsert=True)
    assert run(port.update("checkpoints", [upsert])) == Updated(inserted=1)
    assert run(port.update("checkpoints", [upsert])) == Updated(inserted=0)


def test_updates_stop_at_a_required_document_that_is_not_there() -> None:
    port = mock_port()
    own = Update(KEY, {"$set": {"a": 1}}, upsert=True)
    parent = Update({"thread_id": "p"}, {}, required=True)
    assert run(port.update("checkpoints", [own, parent])) == Updated(1, stopped=True)
    run(port.insert("checkpoints", [{"thread_id": "p"}]))
    assert run(port.update("checkpoints", [own, parent])) == Updated(0, stopped=False)


def test_updates_and_deletes_of_many_tell_how_many() -> None:
    port = mock_port()
    run(port.insert("writes", [{**KEY, "n": n} for n in range(3)]))
    assert run(port.update_many("writes", KEY, {"$set": {"a": 1}})) == 3
    assert run(port.delete("writes", {**KEY, "n": {"$lt": 2}})) == 2
    assert [one["a"] for one in run(port.find("writes", KEY, {}))] == [1]


def test_a_find_answers_at_most_as_many_as_are_wanted_in_order() -> None:
    port = mock_port()
    run(port.insert("values", [{"n": n} for n in (2, 3, 1)]))
    found = run(port.find("values", {}, {"_id": 0}, sort=[("n", -1)], limit=2))
    assert found == [{"n": 3}, {"n": 2}]


def test_a_client_that_imitates_a_server_has_the_usual_limit() -> None:
    assert run(mock_port().document_limit(20 * MB)) == 16 * MB


def test_the_limit_is_not_asked_for_where_no_document_comes_near() -> None:
    # This client is connected to nothing: a command would fail.
    client = MongoClient[dict[str, Any]]("mongodb://192.0.2.1", connect=False)
    port = SyncPort(client["db"], {}, UNIQUE_FIELDS)
    assert run(port.document_limit(MB)) >= MB
    client.close()


def test_a_client_set_to_other_document_types_is_read_as_plain_dicts() -> None:
    client: Any = MongoClient("mongodb://192.0.2.1", connect=False, document_class=SON)
    port = SyncPort(client["db"], {"values": client["db"]["values"]}, UNIQUE_FIELDS)
    options: CodecOptions[Any] = port._collections["values"].codec_options
    assert (options.document_class, options.tz_aware) == (dict, True)
    client.close()


def test_the_sync_port_computes_where_it_is_called() -> None:
    assert run(mock_port().offload(100 * MB, threading.get_ident)) == threading.get_ident()


def test_the_sync_port_does_not_ask_how_large_a_computation_is() -> None:
    def size() -> int:
        raise AssertionError("not needed")

    assert run(mock_port().offload(size, lambda: 5)) == 5


# ------------------------------------------------------------------ the async port


def async_port() -> AsyncPort:
    client = AsyncMongoClient[dict[str, Any]]("mongodb://192.0.2.1", connect=False)
    return AsyncPort(client["db"], {}, UNIQUE_FIELDS)


async def test_the_async_port_computes_small_things_at_once() -> None:
    assert await async_port().offload(1000, threading.get_ident) == threading.get_ident()


async def test_the_async_port_computes_large_things_in_a_thread() -> None:
    assert await async_port().offload(MB, threading.get_ident) != threading.get_ident()
    assert await async_port().offload(lambda: MB, threading.get_ident) != threading.get_ident()


async def test_the_async_port_reads_beside_each_other() -> None:
    met = asyncio.Event()

    async def waits() -> str:
        await met.wait()
        return "waited"

    async def lets_go() -> str:
        met.set()
        return "let go"

    assert await async_port().together(waits(), lets_go()) == ["waited", "let go"]


async def test_the_async_port_asks_for_the_limit_only_near_it() -> None:
    assert await async_port().document_limit(MB) >= MB


# ------------------------------------------------------------------ joins

OWN = {"thread_id": "Alice", "checkpoint_ns": "", "checkpoint_id": "1"}


@pytest.mark.parametrize("other", [{"thread_id": "alice"}, {"checkpoint_ns": "a"}])
def test_only_writes_of_the_checkpoint_itself_are_joined_to_it(other: dict[str, str]) -> None:
    join = Join("writes", "checkpoint_id", {}, CheckpointKey._fields)
    joined = [{**OWN, driver._JOINED: [{**OWN, "idx": 0}, {**OWN, **other, "idx": 1}]}]
    assert driver.unjoin(joined, join) == (OWN, [{**OWN, "idx": 0}])


@pytest.mark.parametrize(
    ("code", "joins"), [(4568, True), (10334, True), (11601, True), (40324, False), (28769, False)]
)
def test_joins_are_given_up_only_where_the_server_never_makes_them(code: int, joins: bool) -> None:
    assert driver.joins_after(OperationFailure("no", code)) is joins


def test_a_read_that_took_too_long_is_not_tried_another_way() -> None:
    with pytest.raises(ExecutionTimeout):
        driver.joins_after(ExecutionTimeout("too long", 50))
