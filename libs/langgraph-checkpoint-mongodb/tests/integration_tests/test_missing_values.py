"""A value that is gone is an error, never a hole in the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from langgraph.checkpoint.mongodb import (
    DamagedCheckpointError,
    MissingChannelValueError,
    MongoDBSaverError,
)
from tests.face import Face, MakeFace
from tests.support import LARGE_SIZE, MB, Chain, CommandCounter, thread, values_of

Data = Database[dict[str, Any]]

LARGE = b"v" * LARGE_SIZE


def lose(database: Data, **query: Any) -> int:
    """Delete value documents behind the savers' back."""
    return database["checkpoint_channel_values"].delete_many(query).deleted_count


def get(face: Face) -> Any:
    return face.get_tuple(thread())


def list_thread(face: Face) -> Any:
    return face.list(thread())


def list_filtered(face: Face) -> Any:
    return face.list(thread(), filter={"source": "loop"})


READS = pytest.mark.parametrize("read", [get, list_thread, list_filtered])


@READS
def test_a_lost_value_is_named(face: Face, database: Data, read: Callable[[Face], Any]) -> None:
    chain = Chain(face)
    config = chain.put({"docs": LARGE, "more": LARGE, "few": 1})
    assert lose(database, channel="docs") == 1
    with pytest.raises(MissingChannelValueError) as caught:
        read(face)
    error = caught.value
    assert isinstance(error, MongoDBSaverError)
    assert (error.thread_id, error.checkpoint_ns) == ("t", "")
    assert error.checkpoint_id == config["configurable"]["checkpoint_id"]
    assert error.missing == [("docs", chain.versions["docs"])]
    assert error.cause == "value lost"
    for fact in ("'t'", error.checkpoint_id, "'docs'", chain.versions["docs"], "go on from an"):
        assert fact in str(error)


def test_all_lost_values_are_named(face: Face, database: Data) -> None:
    chain = Chain(face, "t", "sub:1")
    config = chain.put({"docs": LARGE, "more": LARGE})
    lose(database)
    with pytest.raises(MissingChannelValueError) as caught:
        face.get_tuple(config)
    assert caught.value.checkpoint_ns == "sub:1"
    assert sorted(caught.value.missing) == sorted(chain.versions.items())


@READS
@pytest.mark.parametrize("part", [0, 1, 3])
def test_a_lost_part_loses_the_value(
    face: Face, database: Data, read: Callable[[Face], Any], part: int
) -> None:
    Chain(face).put({"__start__": {name: bytes(MB) for name in "abc"}})
    assert lose(database, part=part) == 1
    with pytest.raises(MissingChannelValueError, match="__start__"):
        read(face)


def test_a_lost_value_that_was_carried_over_is_named(face: Face, database: Data) -> None:
    chain = Chain(face)
    chain.put({"docs": LARGE})
    last = chain.put({"few": 1})
    lose(database)
    with pytest.raises(MissingChannelValueError) as caught:
        face.get_tuple(thread())
    assert caught.value.checkpoint_id == last["configurable"]["checkpoint_id"]


def test_other_checkpoints_are_still_read(face: Face, database: Data) -> None:
    chain = Chain(face)
    first = chain.put({"docs": LARGE})
    chain.put({"docs": LARGE * 2})
    lose(database, version=chain.versions["docs"])
    assert values_of(face, first) == {"docs": LARGE}
    assert len(face.list(thread(), before=chain.config)) == 1


def test_the_primary_is_asked_before_a_value_counts_as_lost(
    make_face: MakeFace, database: Data
) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    Chain(face).put({"docs": LARGE})
    lose(database)
    with counter.recording(), pytest.raises(MissingChannelValueError):
        get(face)
    assert [one.collection for one in counter.commands].count("checkpoints") == 2
    assert [one.collection for one in counter.commands].count("checkpoint_channel_values") == 2


class DeletesBeforeValues(CommandCounter):
    """Deletes documents just before the first query for values is sent."""

    def __init__(self, database: Data, *collections: str) -> None:
        super().__init__()
        self.database, self.collections = database, collections

    def started(self, event: Any) -> None:
        if self.on and event.command.get("find") == "checkpoint_channel_values":
            self.on = False
            for name in self.collections:
                self.database[name].delete_many({"thread_id": "t"})


@READS
def test_a_checkpoint_that_is_deleted_meanwhile_was_never_there(
    make_face: MakeFace, database: Data, read: Callable[[Face], Any]
) -> None:
    deleting = DeletesBeforeValues(database, "checkpoints", "checkpoint_channel_values")
    face = make_face(client_kwargs={"event_listeners": [deleting]})
    Chain(face).put({"docs": LARGE})
    with deleting.recording():
        assert read(face) in (None, [])
    assert not deleting.on


def test_a_checkpoint_that_stays_while_its_values_go_is_an_error(
    make_face: MakeFace, database: Data
) -> None:
    deleting = DeletesBeforeValues(database, "checkpoint_channel_values")
    face = make_face(client_kwargs={"event_listeners": [deleting]})
    Chain(face).put({"docs": LARGE})
    with deleting.recording(), pytest.raises(MissingChannelValueError):
        get(face)


def test_a_listing_goes_on_past_a_checkpoint_deleted_meanwhile(
    make_face: MakeFace, database: Data
) -> None:
    class DeletesNewest(DeletesBeforeValues):
        def started(self, event: Any) -> None:
            if self.on and event.command.get("find") == "checkpoint_channel_values":
                self.on = False
                newest = {"version": chain.versions["docs"]}
                self.database["checkpoint_channel_values"].delete_many(newest)
                self.database["checkpoints"].delete_many(chain.config["configurable"])

    deleting = DeletesNewest(database)
    face = make_face(client_kwargs={"event_listeners": [deleting]})
    chain = Chain(face)
    first = chain.put({"docs": LARGE * 4})
    chain.put({"docs": LARGE * 5})
    with deleting.recording():
        assert [row.config for row in face.list(thread())] == [first]


def test_a_put_that_repeats_a_lost_value_restores_it(face: Face, database: Data) -> None:
    chain = Chain(face)
    chain.put({"docs": LARGE})
    lose(database)
    config = chain.put({"docs": LARGE})
    assert values_of(face, config) == {"docs": LARGE}


TAMPERED: list[dict[str, Any]] = [
    {"parts": 20_000_000},
    {"parts": -1},
    {"parts": "many"},
    {"size": -5},
    {"size": 10**9},
    {"size": "large"},
    {"channel": 5},
    {"version": None},
    {"pieces": b"\1\2\3"},
    {"pieces": "text"},
    {"snapshot": "yes"},
    {"stored_part": 1.5},
]


@pytest.mark.parametrize("change", TAMPERED, ids=str)
def test_a_manifest_that_was_tampered_with_ends_in_a_clear_error(
    face: Face, database: Data, change: dict[str, Any]
) -> None:
    chain = Chain(face)
    first = chain.put({"n": 1})
    chain.put({"docs": LARGE})
    fields = {f"channels.0.{name}": value for name, value in change.items()}
    database["checkpoints"].update_one(
        {"checkpoint_id": chain.config["configurable"]["checkpoint_id"]}, {"$set": fields}
    )
    for read in (face.fresh().get_tuple, face.fresh().list):
        with pytest.raises(DamagedCheckpointError, match="is damaged"):
            read(thread())
    assert values_of(face.fresh(), first) == {"n": 1}


@pytest.mark.parametrize("damage", [b"", b"other bytes", b"x\x9c"])
def test_a_compressed_piece_that_was_damaged_is_told(
    face: Face, database: Data, damage: bytes
) -> None:
    chain = Chain(face)
    chain.put({"list": ["x" * 500] * 20})
    config = chain.put({"list": ["x" * 500] * 30})
    pieces = {"type": "zlib"}
    assert database["checkpoint_channel_values"].count_documents(pieces) == 1
    database["checkpoint_channel_values"].update_one(pieces, {"$set": {"value": damage}})
    with pytest.raises(DamagedCheckpointError, match="channel 'list'"):
        face.fresh().get_tuple(config)


def test_a_compressed_checkpoint_that_was_damaged_is_told(face: Face, database: Data) -> None:
    chain = Chain(face)
    chain.put({"list": ["x" * 500] * 20})
    config = chain.put({"list": [*(["x" * 500] * 20), "y" * 500]})
    damaged = {"$set": {"checkpoint": b"x\x9c"}}
    assert database["checkpoints"].update_many({"type": "split-zlib"}, damaged).modified_count
    with pytest.raises(DamagedCheckpointError, match="zlib stream"):
        face.fresh().get_tuple(config)
