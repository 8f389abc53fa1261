"""What fits is stored, to the byte; what does not is refused before anything is written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import bson
import pytest
from langgraph.types import Send
from pymongo.database import Database
from pymongo.errors import DocumentTooLarge

from langgraph.checkpoint.mongodb import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
    MongoDBSaverError,
    UnknownLayoutError,
)
from tests.face import Face
from tests.support import (
    LARGE_SIZE,
    MB,
    Chain,
    checkpoint,
    contents,
    insert_whole,
    thread,
    values_of,
)

Data = Database[dict[str, Any]]


@pytest.fixture(scope="session")
def limit(mongo_client: Any) -> int:
    """The largest document that the server stores, in bytes."""
    size: int = mongo_client.admin.command("hello")["maxBsonObjectSize"]
    return size


def overhead(database: Data, collection: str, **query: Any) -> int:
    """Bytes of a stored document beside its value."""
    (document,) = database[collection].find(query)
    return len(bson.encode(document)) - len(document["value"])


def test_a_channel_exactly_at_the_limit_is_stored(face: Face, database: Data, limit: int) -> None:
    chain = Chain(face)
    chain.put({"a": bytes(LARGE_SIZE)})
    room = limit - overhead(database, "checkpoint_channel_values")
    config = chain.put({"a": bytes(room)})
    sizes = [len(bson.encode(found)) for found in database["checkpoint_channel_values"].find({})]
    assert max(sizes) == limit
    assert values_of(face, config) == {"a": bytes(room)}


def test_one_byte_more_is_refused(face: Face, database: Data, limit: int) -> None:
    chain = Chain(face)
    last = chain.put({"a": bytes(LARGE_SIZE), "b": 1})
    room = limit - overhead(database, "checkpoint_channel_values")
    before = contents(database)
    with pytest.raises(ChannelTooLargeError) as caught:
        chain.put({"a": bytes(room + 1), "c": bytes(LARGE_SIZE)})
    error = caught.value
    assert (error.channel, error.size, error.limit) == ("a", limit + 1, limit)
    assert contents(database) == before
    assert values_of(face, thread()) == {"a": bytes(LARGE_SIZE), "b": 1}
    assert [row.config for row in face.list(thread())] == [last]


def test_the_error_says_which_how_large_and_what_to_do(face: Face, limit: int) -> None:
    with pytest.raises(DocumentTooLarge, match=r"'huge' is too large") as caught:
        Chain(face).put({"huge": bytes(17 * MB)})
    assert f"at most {limit:,}" in str(caught.value)
    assert "Nothing was written" in str(caught.value)
    assert "Split the value over several channels" in str(caught.value)


def test_after_a_refusal_the_thread_goes_on(face: Face) -> None:
    chain = Chain(face)
    config = chain.put({"a": bytes(LARGE_SIZE)})
    with pytest.raises(ChannelTooLargeError):
        Chain(face, config=config).put({"a": bytes(17 * MB)})
    assert values_of(face, chain.put({"b": 2})) == {"a": bytes(LARGE_SIZE), "b": 2}


def test_a_write_exactly_at_the_limit_is_stored(face: Face, database: Data, limit: int) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, [("a", b"")], "task0")
    room = limit - overhead(database, "checkpoint_writes")
    face.put_writes(config, [("a", bytes(room))], "task1")
    found = face.get_tuple(config)
    assert found is not None
    assert found.pending_writes == [("task0", "a", b""), ("task1", "a", bytes(room))]


def test_one_byte_more_in_a_write_is_refused(face: Face, database: Data, limit: int) -> None:
    config = Chain(face).put({"a": 1})
    face.put_writes(config, [("a", b""), ("b", 2)], "task0")
    room = limit - overhead(database, "checkpoint_writes", channel="a")
    before = contents(database)
    with pytest.raises(ChannelTooLargeError, match="the pending write of task 'task1'") as caught:
        face.put_writes(config, [("a", bytes(room + 1)), ("b", 2)], "task1")
    error = caught.value
    assert (error.channel, error.size, error.limit) == ("a", limit + 1, limit)
    assert contents(database) == before


@pytest.mark.parametrize(
    ("channel", "value", "named"),
    [
        ("__start__", {"small": 1, "docs": bytes(17 * MB)}, "its item 'docs'"),
        ("__pregel_tasks", [Send("node", 1), Send("node", bytes(17 * MB))], "its large item 1"),
    ],
)
def test_a_part_of_a_reserved_channel_has_the_same_limit(
    face: Face, database: Data, limit: int, channel: str, value: Any, named: str
) -> None:
    with pytest.raises(ChannelTooLargeError, match=named) as caught:
        Chain(face).put({channel: value})
    assert caught.value.channel == channel
    assert caught.value.size > caught.value.limit == limit
    assert not any(contents(database).values())


def test_metadata_that_is_too_large_is_named(face: Face, database: Data, limit: int) -> None:
    chain = Chain(face)
    chain.put({"a": 1})
    before = contents(database)
    with pytest.raises(CheckpointTooLargeError, match="its metadata") as caught:
        chain.put({"b": bytes(LARGE_SIZE)}, metadata={"notes": "x" * 17 * MB})
    error = caught.value
    assert error.size > error.limit == limit
    assert error.checkpoint_id in str(error)
    assert isinstance(error, DocumentTooLarge)
    assert contents(database) == before


def test_an_old_thread_is_bounded_as_it_always_was(face: Face, database: Data, limit: int) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    old = insert_whole(database, thread(), stored, {"source": "input", "step": -1})
    before = contents(database)
    values = {"a": bytes(7 * MB), "b": bytes(10 * MB)}
    step = {"source": "loop", "step": 0}
    with pytest.raises(CheckpointTooLargeError, match="old layout keeps together") as caught:
        face.put(old, checkpoint(values, {"a": 2, "b": 1}), step, {"a": 2, "b": 1})
    assert caught.value.size > caught.value.limit == limit
    assert {name: found for name, found in contents(database).items() if found} == {
        name: found for name, found in before.items() if found
    }


def test_an_old_thread_takes_what_fits(face: Face, database: Data) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    old = insert_whole(database, thread(), stored, {"source": "input", "step": -1})
    values = {"a": bytes(15 * MB)}
    step = {"source": "loop", "step": 0}
    config = face.put(old, checkpoint(values, {"a": 2}), step, {"a": 2})
    assert values_of(face, config) == values


def test_forty_megabytes_in_one_step_are_more_than_one_message(face: Face) -> None:
    values = {f"channel {number}": bytes([number]) * (10 * MB) for number in range(5)}
    config = Chain(face).put(values)
    assert values_of(face, config) == values


ERRORS: list[Callable[[], MongoDBSaverError]] = [
    lambda: ChannelTooLargeError("a", 20, 10, "its value document"),
    lambda: CheckpointTooLargeError("its metadata", 20, 10, "c"),
    lambda: MissingChannelValueError("t", "ns", "c", [("a", "1"), ("b", "2")]),
    lambda: UnknownLayoutError(3, "t", "c"),
]


@pytest.mark.parametrize("make", ERRORS)
def test_an_error_travels_between_processes(make: Callable[[], MongoDBSaverError]) -> None:
    error = make()
    travelled = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(travelled) is type(error)
    assert str(travelled) == str(error)
    assert vars(travelled) == vars(error)
