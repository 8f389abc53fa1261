"""The TTL: switched on, changed and dropped, and what it must never take away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from pymongo.database import Database

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver
from tests.face import Face, MakeFace
from tests.support import LARGE_SIZE, Chain, checkpoint, contents, insert_whole, thread, values_of

Data = Database[dict[str, Any]]

COLLECTIONS = {"checkpoints", "checkpoint_writes", "checkpoint_channel_values"}
TTL = 3600
LARGE = b"v" * LARGE_SIZE


def ttl_of(database: Data) -> dict[str, list[int]]:
    """The seconds of every TTL index, by collection."""
    return {
        name: [
            index["expireAfterSeconds"]
            for index in database[name].list_indexes()
            if "expireAfterSeconds" in index
        ]
        for name in database.list_collection_names()
    }


def use(face: Face, thread_id: str = "t") -> RunnableConfig:
    """Store something in every collection."""
    config = Chain(face, thread_id).put({"a": LARGE})
    face.put_writes(config, [("a", 1), ("__error__", "e")], "task")
    return config


def stamps(database: Data, collection: str) -> list[datetime]:
    """The stamps in a collection, oldest first."""
    found = [one["created_at"].replace(tzinfo=UTC) for one in database[collection].find({})]
    return sorted(found)


def age(database: Data, *, seconds: float) -> None:
    """Let everything be that much older."""
    for name in COLLECTIONS:
        for document in database[name].find({"created_at": {"$exists": True}}):
            older = document["created_at"] - timedelta(seconds=seconds)
            database[name].update_one({"_id": document["_id"]}, {"$set": {"created_at": older}})


def expire(database: Data) -> None:
    """Do at once what the server's TTL monitor does in time."""
    for name, seconds in ttl_of(database).items():
        for ttl in seconds:
            before = datetime.now(UTC) - timedelta(seconds=ttl)
            database[name].delete_many({"created_at": {"$lt": before}})


def test_without_a_ttl_nothing_is_stamped(face: Face, database: Data) -> None:
    use(face)
    assert not any(ttl_of(database).values())
    assert not any("created_at" in one for found in contents(database).values() for one in found)


def test_a_ttl_makes_its_index_on_every_collection(make_face: MakeFace, database: Data) -> None:
    use(make_face(ttl=TTL))
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_everything_that_is_written_is_stamped(make_face: MakeFace, database: Data) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    use(make_face(ttl=TTL))
    end = datetime.now(UTC) + timedelta(seconds=1)
    for name in ("checkpoints", "checkpoint_writes"):
        assert all(begin <= stamp <= end for stamp in stamps(database, name))
    # Values are stamped ahead: they are not rewritten each time that they are used.
    slack = timedelta(seconds=TTL / 10)
    (value,) = stamps(database, "checkpoint_channel_values")
    assert stamps(database, "checkpoints")[0] <= value <= end + slack


@pytest.mark.parametrize("later", [7200, 60, 1])
def test_a_changed_ttl_changes_the_indexes(make_face: MakeFace, database: Data, later: int) -> None:
    make_face(ttl=TTL).setup()
    make_face(ttl=later).setup()
    assert ttl_of(database) == {name: [later] for name in COLLECTIONS}


def test_the_same_ttl_again_is_fine(make_face: MakeFace, database: Data) -> None:
    use(make_face(ttl=TTL))
    use(make_face(ttl=TTL))
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_a_ttl_can_be_turned_on_later(make_face: MakeFace, database: Data) -> None:
    use(make_face())
    use(make_face(ttl=TTL), "later")
    assert ttl_of(database) == {name: [TTL] for name in COLLECTIONS}


def test_what_was_written_without_a_ttl_never_expires(make_face: MakeFace, database: Data) -> None:
    config = use(make_face())
    face = make_face(ttl=TTL)
    use(face, "later")
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(face, config) == {"a": LARGE}
    assert face.get_tuple(thread("later")) is None


def test_a_dropped_ttl_leaves_what_is_stamped_to_expire(
    make_face: MakeFace, database: Data
) -> None:
    use(make_face(ttl=TTL), "earlier")
    face = make_face()
    config = use(face)
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(face, config) == {"a": LARGE}
    assert face.get_tuple(thread("earlier")) is None


def test_a_value_is_kept_by_a_checkpoint_without_a_ttl(make_face: MakeFace, database: Data) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE})
    chain.face = make_face()
    config = chain.put({"b": 1})
    age(database, seconds=10 * TTL)
    expire(database)
    assert values_of(chain.face, config) == {"a": LARGE, "b": 1}


@pytest.mark.parametrize("quiet", [0.01, 0.5, 0.99])
def test_an_unchanged_value_lives_as_long_as_the_last_checkpoint_that_names_it(
    make_face: MakeFace, database: Data, quiet: float
) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE, "__start__": {"x": bytes(1_500_000), "y": LARGE}})
    for _ in range(3):
        age(database, seconds=quiet * TTL)
        # What a saver remembers of the stamps does not grow older with them.
        chain.face = chain.face.fresh()
        config = chain.put({"b": 1})
    last = stamps(database, "checkpoints")[-1]
    assert stamps(database, "checkpoint_channel_values")[0] >= last
    age(database, seconds=TTL - 30)
    expire(database)
    assert values_of(chain.face, config) == chain.values
    age(database, seconds=TTL)
    expire(database)
    assert not any(contents(database).values())


def test_a_saver_that_remembers_the_stamps_renews_them_too(
    make_face: MakeFace, database: Data
) -> None:
    chain = Chain(make_face(ttl=64))  # values are stamped a second ahead
    chain.put({"a": LARGE})
    time.sleep(1.1)
    chain.put({"b": 1})
    last = stamps(database, "checkpoints")[-1]
    assert stamps(database, "checkpoint_channel_values")[0] >= last


def test_a_value_put_again_is_stamped_again(make_face: MakeFace, database: Data) -> None:
    face = make_face(ttl=TTL)
    versions = {"a": face.saver.get_next_version(None)}
    stored = checkpoint({"a": LARGE}, versions)
    face.put(thread(), stored, {"source": "loop", "step": 0}, versions)
    age(database, seconds=TTL / 2)
    face.put(thread(), stored, {"source": "loop", "step": 0}, versions)
    age(database, seconds=0.9 * TTL)
    expire(database)
    assert values_of(face, thread()) == {"a": LARGE}


def test_most_steps_renew_no_stamps(make_face: MakeFace, database: Data) -> None:
    chain = Chain(make_face(ttl=TTL))
    chain.put({"a": LARGE})
    before = stamps(database, "checkpoint_channel_values")
    for number in range(5):
        chain.put({"b": number})
    assert stamps(database, "checkpoint_channel_values") == before


def test_an_old_thread_is_stamped_as_it_always_was(make_face: MakeFace, database: Data) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    stamp = datetime.now(UTC) - timedelta(seconds=TTL / 2)
    metadata = {"source": "input", "step": -1}
    old = insert_whole(database, thread(), stored, metadata, created_at=stamp)
    face = make_face(ttl=TTL)
    face.put(old, checkpoint({"a": 2}, {"a": 2}), {"source": "loop", "step": 0}, {"a": 2})
    first, second = stamps(database, "checkpoints")
    assert abs(first - stamp) < timedelta(seconds=1)
    assert second - first > timedelta(seconds=TTL / 4)


@pytest.mark.parametrize("ttl", [0, -1, 1.5, 2**31, float("inf"), float("nan"), True, "60"])
@pytest.mark.parametrize("saver", [MongoDBSaver, AsyncMongoDBSaver])
def test_a_ttl_that_is_no_number_of_seconds_is_refused_without_a_command(
    saver: Callable[..., Any], ttl: Any
) -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match="Invalid ttl"):
        saver(nothing, ttl=ttl)


def test_savers_with_different_ttls_can_start_at_once(mongodb_uri: str, database: Data) -> None:
    with MongoDBSaver.from_conn_string(mongodb_uri, database.name):
        pass  # the collections are there: only the TTL is raced for
    failures = []

    def start(ttl: int) -> None:
        try:
            with MongoDBSaver.from_conn_string(mongodb_uri, database.name, ttl=ttl):
                pass
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=[60 * number]) for number in (1, 2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
    assert all(len(seconds) == 1 for seconds in ttl_of(database).values())


def test_the_server_removes_what_is_over_and_keeps_what_is_in_use(
    make_face: MakeFace, database: Data, ttl_monitor: None
) -> None:
    face = make_face(ttl=3)
    use(face, "over")
    chain = Chain(face, "used")
    chain.put({"a": LARGE})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        config = chain.put({"b": chain.number})
        assert values_of(face, config) == chain.values
        if not any(database[name].count_documents({"thread_id": "over"}) for name in COLLECTIONS):
            break
        time.sleep(0.2)
    else:
        pytest.fail("the server removed nothing")
    assert values_of(face.fresh(), config) == chain.values
