"""Graphs that do not know a channel go on with a thread that holds its value.

LangGraph keeps the versions of all channels, but gives a saver the values of those that the
running graph has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MissingChannelValueError
from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.growing import MAX_PIECES
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face, MakeFace
from tests.support import Chain, checkpoint, insert_whole, thread, values_of

Data = Database[dict[str, Any]]


class Graphs:
    """Graphs that take turns on one thread, each with channels of its own."""

    def __init__(self, face: Face) -> None:
        self.face, self.chain = face, Chain(face)
        self.everything: dict[str, Any] = {}

    def put(self, changes: dict[str, Any], *, known: Collection[str] = (), fresh: bool) -> None:
        """Put a step of a graph that knows what it changes, and some channels more."""
        self.chain.face = self.face.fresh() if fresh else self.face
        known = {*changes, *known}
        self.chain.values = {
            name: value for name, value in self.everything.items() if name in known
        }
        self.everything |= changes
        self.chain.put(changes)

    def empty(self, name: str, *, fresh: bool) -> None:
        """Put a step of a graph that knows only this channel, and empties it."""
        self.chain.face = self.face.fresh() if fresh else self.face
        self.chain.values = {name: self.everything.pop(name)}
        self.chain.put({}, drop=[name])

    def check(self) -> None:
        for face in (self.face, self.face.fresh()):
            assert values_of(face, self.chain.config) == self.everything


VALUES = {
    "inline": "small",
    "own document": "x" * 5 * INLINE_VALUE_BYTES,
    "list": ["y" * 500] * 40,
    "recent": "z" * 2 * INLINE_VALUE_BYTES,
}


def many(count: int) -> dict[str, Any]:
    return {f"channel_{place:04}": f"{place:04}" * 60 for place in range(count)}


@pytest.fixture(params=["split", "whole"])
def graphs(request: pytest.FixtureRequest, face: Face, database: Data) -> Graphs:
    """Graphs on a thread of today, or on one that an older release began."""
    graphs = Graphs(face)
    if request.param == "whole":
        graphs.everything = {"old": "small", "old and large": "x" * 5 * INLINE_VALUE_BYTES}
        graphs.chain.versions = dict.fromkeys(graphs.everything, 1)
        first = checkpoint(graphs.everything, graphs.chain.versions)
        graphs.chain.config = insert_whole(database, thread(), first, {"source": "input"})
    return graphs


@pytest.mark.parametrize("fresh", [False, True], ids=["one saver", "fresh savers"])
def test_every_graph_keeps_what_all_the_others_hold(graphs: Graphs, fresh: bool) -> None:
    for number in range(3):
        for name, value in VALUES.items():
            graphs.put({f"{name} {number}": value}, fresh=fresh)
            graphs.put({f"{name} of another": value}, fresh=fresh)
            graphs.put({"own": number}, fresh=fresh)
            graphs.check()


@pytest.mark.parametrize("fresh", [False, True], ids=["one saver", "fresh savers"])
def test_what_a_graph_emptied_stays_empty(graphs: Graphs, fresh: bool) -> None:
    graphs.put(VALUES, fresh=fresh)
    for name in VALUES:
        graphs.empty(name, fresh=fresh)
        graphs.put({"own": name}, fresh=fresh)
        graphs.check()


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("fresh", [False, True], ids=["one saver", "fresh savers"])
def test_a_bundle_is_written_anew_by_a_graph_that_knows_a_part_of_it(
    make_face: MakeFace, database: Data, fresh: bool, encrypted: bool
) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    graphs = Graphs(make_face(serde=serde) if encrypted else make_face())
    graphs.put(many(500), fresh=False)
    known = list(many(500))[:200]
    for number in range(8):
        graphs.put(dict.fromkeys(known, f"{number}" * 200), fresh=fresh)
        graphs.put({"n": number}, known=known, fresh=fresh)
    graphs.check()
    newest: Any = database["checkpoints"].find_one({}, sort=[("checkpoint_id", -1)])
    (entry,) = [one for one in newest["channels"] if one["channel"] == BUNDLE]
    # What counts, about as much again, and no more.
    assert entry["size"] < 2.5 * 500 * 270


def test_a_bundle_stays_short_whatever_the_graph_knows(face: Face, database: Data) -> None:
    graphs = Graphs(face)
    graphs.put(many(500), fresh=False)
    known = [f"step {number}" for number in range(2 * MAX_PIECES)]
    for number, name in enumerate(known):
        graphs.put({name: "s" * 3000}, known=known[max(0, number - 4) : number], fresh=False)
        graphs.put({"n": number}, known=known[max(0, number - 4) : number + 1], fresh=False)
    graphs.check()
    newest: Any = database["checkpoints"].find_one({}, sort=[("checkpoint_id", -1)])
    (entry,) = [one for one in newest["channels"] if one["channel"] == BUNDLE]
    assert len(entry["pieces"]) / 4 <= MAX_PIECES + 1


@pytest.mark.parametrize("known", [[], list(many(500))], ids=["known in part", "known"])
def test_a_bundle_that_was_lost_is_not_taken_for_empty(
    face: Face, database: Data, known: list[str]
) -> None:
    graphs = Graphs(face)
    graphs.put(many(500), fresh=False)
    graphs.put({"n": 1}, known=many(500), fresh=False)
    assert database["checkpoint_channel_values"].delete_many({"channel": BUNDLE}).deleted_count
    with pytest.raises(MissingChannelValueError, match=BUNDLE):
        graphs.put({"n": 2}, known=known, fresh=True)
    assert database["checkpoints"].count_documents(thread()["configurable"]) == 2
