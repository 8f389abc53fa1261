"""A value that grows: what is new in it is stored, and every checkpoint reads as it was put."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb import ChannelTooLargeError, MissingChannelValueError
from langgraph.checkpoint.mongodb._layout.found import Found
from langgraph.checkpoint.mongodb._layout.keys import ValueKey, value_queries
from langgraph.checkpoint.mongodb._layout.pieces import Pieces
from tests.face import Face, MakeFace
from tests.hypothesis_profile import examples
from tests.integration_tests.growing_threads import AES_KEY, LARGE, Data, chat, many, message
from tests.support import Chain, checkpoint, contents, thread, values_of


class Model:
    """The same puts into a saver of ours, new ones now and then, and into memory.

    Its limits are small, so that few items make pieces, merges and bundles.
    """

    def __init__(self, face: Face) -> None:
        self.face, self.reference = face, InMemorySaver()
        self.rows: list[tuple[Any, Any]] = []  # (our config, the one in memory)
        self.states: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.count = 0
        self.last: Any = None

    def step(
        self, parent: int, changes: dict[str, Any], drop: str, run: str, *, partial: bool
    ) -> None:
        """Put a checkpoint that follows another; a parent beyond the last is the last.

        A partial graph knows no other channels than those that it changes.
        """
        place = min(parent, len(self.rows) - 1)
        values, versions = self.states.get(place, ({}, {}))
        ours, theirs = self.rows[place] if self.rows else (thread("t"), thread("t"))
        new: dict[str, str | int | float] = {
            channel: self.reference.get_next_version(versions.get(channel), None)
            for channel in {*changes, *([drop] if drop in values else [])}
        }
        values = {**values, **changes}
        if drop in values and drop not in changes:
            del values[drop]
        versions = {**versions, **new}
        given = {name: values[name] for name in changes} if partial else values
        stored = checkpoint(given, versions, updated_channels=sorted(new))
        metadata: Any = {"source": "loop", "step": self.count, "run_id": run}
        self.count += 1
        self.last = (ours, stored, metadata, new)
        pair = (self.face.put(*self.last), self.reference.put(theirs, stored, metadata, new))
        self.states[len(self.rows)] = (values, versions)
        self.rows.append(pair)

    def check(self) -> None:
        """Read every checkpoint, one by one and in a listing."""
        expected = {}
        for ours, theirs in self.rows:
            found = self.reference.get_tuple(theirs)
            assert found is not None
            expected[ours["configurable"]["checkpoint_id"]] = found.checkpoint["channel_values"]
            assert values_of(self.face, ours) == found.checkpoint["channel_values"]
        listed = {
            row.config["configurable"]["checkpoint_id"]: row.checkpoint["channel_values"]
            for row in self.face.list(thread("t"))
        }
        assert listed == expected


@st.composite
def a_value(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["list", "dict", "small", "small", "small", "text"]))
    size = draw(st.integers(1, 6))
    if kind == "list":
        return [draw(st.sampled_from("abc")) * 15 for _ in range(size)]
    if kind == "dict":
        return {f"k{place}": draw(st.sampled_from("abc")) * 15 for place in range(size)}
    return draw(st.sampled_from("abc")) * (100 if kind == "text" else 20)


class Edit:
    """How a step changes a list; a channel that holds no list gets one."""

    def __init__(self, kind: str, item: str) -> None:
        self.kind, self.item = kind, item

    def __repr__(self) -> str:
        return f"{self.kind} {self.item}"

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {**value, self.item: self.kind * 3}
        if not isinstance(value, list):
            return [self.item * 15]
        if self.kind == "append":
            return [*value, self.item * 15]
        if self.kind == "edit":
            return [*value[:-1], self.item * 16]
        return value[1:] if self.kind == "trim" else value[:-1]


edits = st.builds(
    Edit, st.sampled_from(["append", "append", "edit", "trim", "drop"]), st.sampled_from("xyz")
)

CHANNELS = ["a", "b", "c", "d", "e", "f", "__start__"]

steps = st.tuples(
    st.integers(0, 30),
    st.dictionaries(st.sampled_from(CHANNELS), edits | a_value(), min_size=1, max_size=3),
    st.sampled_from(["", "a", "b", "c"]),
    st.sampled_from(
        ["put", "put", "put", "fresh", "again", "partial", "copy", "prune", "rollback"]
    ),
)

SERDES = [
    None,
    EncryptedSerializer.from_pycryptodome_aes(key=AES_KEY),
]


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("serde", SERDES, ids=["plain", "encrypted"])
@pytest.mark.parametrize("ttl", [None, 3600])
def test_every_checkpoint_reads_as_from_memory(
    make_face: MakeFace, database: Data, serde: Any, ttl: int | None
) -> None:
    made = {"serde": serde, "ttl": ttl}
    faces = [make_face(**made), make_face(**made)]

    @settings(max_examples=examples(15))
    @given(st.lists(steps, min_size=1, max_size=14))
    def law(drawn: list[Any]) -> None:
        faces[0].delete_thread("t")
        model = Model(faces[0])
        for number, (parent, drafts, drop, how) in enumerate(drawn):
            at = min(parent, len(model.rows) - 1)
            values, _ = model.states.get(at, ({}, {}))
            changes = {
                channel: draft(values.get(channel)) if isinstance(draft, Edit) else draft
                for channel, draft in drafts.items()
            }
            model.step(parent, changes, drop, f"run{number}", partial=how == "partial")
            if how == "again":
                faces[number % 2].put(*model.last)
            elif how == "fresh":
                model.face = faces[1] if model.face is faces[0] else faces[0]
            elif how == "prune":
                model.face.prune(["t"])
                model.rows, state = model.rows[-1:], model.states[len(model.rows) - 1]
                newest = max(model.rows, key=lambda row: row[0]["configurable"]["checkpoint_id"])
                model.rows, model.states = [newest], {0: state}
            elif how == "rollback" and len(model.rows) > 1:
                model.face.delete_for_runs([f"run{number}"])
                model.rows.pop()
                del model.states[len(model.rows)]
            elif how == "copy":
                model.face.delete_thread("copy")
                model.face.copy_thread("t", "copy")
                copied = {
                    row.config["configurable"]["checkpoint_id"]: row.checkpoint["channel_values"]
                    for row in model.face.list(thread("copy"))
                }
                listed = {
                    row.config["configurable"]["checkpoint_id"]: row.checkpoint["channel_values"]
                    for row in model.face.list(thread("t"))
                }
                assert copied == listed
        model.check()

    law()


@pytest.mark.parametrize("beyond", [0, 1])
def test_all_pieces_together_are_as_large_as_a_document_may_be(
    face: Face, database: Data, beyond: int
) -> None:
    limit: int = database.client.admin.command("hello")["maxBsonObjectSize"]
    chain = Chain(face)
    chain.put({"list": ["x" * LARGE]})
    (document,) = database["checkpoint_channel_values"].find({})
    overhead = len(bson.encode({**document, "value": b""}))
    # The array's header, the first text's, the second's.
    room = limit - overhead - 1 - (3 + LARGE) - 5
    before = contents(database)
    if beyond:
        with pytest.raises(ChannelTooLargeError) as caught:
            chain.put({"list": ["x" * LARGE, "y" * (room + 1)], "other": "z" * LARGE})
        assert (caught.value.channel, caught.value.size) == ("list", limit + 1)
        assert contents(database) == before
    else:
        config = chain.put({"list": ["x" * LARGE, "y" * room]})
        assert values_of(face.fresh(), config) == chain.values
        assert database["checkpoint_channel_values"].count_documents({}) > 4


def test_a_missing_piece_is_a_missing_value(face: Face, database: Data) -> None:
    chain = chat(face, 20)
    newest: Any = database["checkpoints"].find_one({}, sort=[("checkpoint_id", -1)])
    lost = Found.of(newest).value_keys()[-1]
    assert lost.part
    database["checkpoint_channel_values"].delete_one(lost.query())
    with pytest.raises(MissingChannelValueError, match="messages") as caught:
        face.fresh().get_tuple(chain.config)
    assert [channel for channel, _ in caught.value.missing] == ["messages"]


def test_forks_that_grow_from_one_checkpoint_keep_their_own(face: Face) -> None:
    chain = chat(face, 10)
    forks = []
    for number in range(3):
        fork = Chain(face, config=chain.config)
        fork.values, fork.versions = dict(chain.values), dict(chain.versions)
        for turn in range(4):
            fork.put({"messages": [*fork.values["messages"], message(1000 * number + turn, 2000)]})
        forks.append(fork)
    for fork in forks:
        assert values_of(face, fork.config) == fork.values
        assert values_of(face.fresh(), fork.config) == fork.values


def test_a_number_that_another_piece_has_is_not_taken_for_stored(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chat(face, 3)
    fork = Chain(face, config=chain.config)
    fork.values, fork.versions = dict(chain.values), dict(chain.versions)
    first = {"messages": [*chain.values["messages"], message(50, 4000)]}
    second = {"messages": [*chain.values["messages"], message(51, 4000)]}
    # As if two contents had the same number, once.
    real = Pieces._numbers

    def numbers(self: Any, entry: Any, pieces: Any) -> tuple[int, ...]:
        return real(self, entry, pieces) if self._salt else tuple(7 for _ in pieces)

    monkeypatch.setattr(Pieces, "_numbers", numbers)
    chain.put(first)
    fork.put(second)
    assert values_of(face.fresh(), chain.config) == chain.values
    assert values_of(face.fresh(), fork.config) == fork.values


def test_a_put_that_is_repeated_stores_no_piece_twice(face: Face, database: Data) -> None:
    chain = chat(face, 3)
    config, values, versions = chain.config, dict(chain.values), dict(chain.versions)
    chain.put({"messages": [*values["messages"], message(50, 4000)]}, id="1fff")
    before = contents(database)
    again = Chain(face.fresh(), config=config)
    again.values, again.versions, again.number = values, versions, chain.number - 1
    saver: Any = again.face.saver
    saver.get_next_version = lambda *_: chain.versions["messages"]
    again.put({"messages": chain.values["messages"]}, id="1fff")
    assert contents(database).keys() == before.keys()
    assert len(contents(database)["checkpoint_channel_values"]) == len(
        before["checkpoint_channel_values"]
    )
    assert values_of(face, again.config) == chain.values


def test_the_first_put_may_be_repeated_when_its_value_has_grown(face: Face, database: Data) -> None:
    first = checkpoint({"messages": [message(0, LARGE)]}, {"messages": f"{1:032}.{1:016}"})
    step: Any = {"source": "loop", "step": 0}
    chain = Chain(face)
    chain.config = face.put(thread(), first, step, first["channel_versions"])
    chain.values, chain.versions = dict(first["channel_values"]), {**first["channel_versions"]}
    chain.put({"messages": [*chain.values["messages"], message(1, LARGE)]})
    before = contents(database)
    for again in (face, face.fresh()):
        again.put(thread(), first, step, first["channel_versions"])
        assert contents(database).keys() == before.keys()
        assert values_of(again, thread()) == chain.values
        assert values_of(again, thread(checkpoint_id=first["id"])) == first["channel_values"]


def test_a_read_asks_for_no_piece_that_a_fork_wrote(face: Face, database: Data) -> None:
    chain = chat(face, 5)
    for number in range(20):
        fork = Chain(face, config=chain.config)
        fork.values, fork.versions = dict(chain.values), dict(chain.versions)
        fork.put({"messages": [*chain.values["messages"], message(100 + number, 6000)]})
    values = database["checkpoint_channel_values"]
    assert values.count_documents({"part": {"$exists": True}}) >= 20
    newest: Any = database["checkpoints"].find_one({}, sort=[("checkpoint_id", -1)])
    named = Found.of(newest).value_keys()
    assert ValueKey.of(values.find_one({"part": None}) or {}) in named
    found = [one for query in value_queries(named) for one in values.find(query)]
    assert sorted(map(ValueKey.of, found), key=str) == sorted(named, key=str)


def nested(depth: int) -> Any:
    value: Any = "inside"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("anew", [False, True], ids=["added", "written anew"])
def test_a_value_that_only_goes_alone_does_not_go_into_a_bundle(
    make_face: MakeFace, encrypted: bool, anew: bool
) -> None:
    serde: Any = JsonPlusSerializer(pickle_fallback=True)
    depth = next(
        depth for depth in range(2000) if serde.dumps_typed([nested(depth)])[0] != "msgpack"
    )
    assert serde.dumps_typed(nested(depth))[0] == "msgpack"
    if encrypted:
        serde = EncryptedSerializer.from_pycryptodome_aes(serde, key=AES_KEY)
    chain = Chain(make_face(serde=serde))
    chain.put(many(1000, 200))
    chain.put({"n": 1})
    if anew:
        for number in range(2):
            chain.put(dict.fromkeys(many(1000, 200), f"{number}" * 200))
    deep = {f"deep {place}": nested(depth) for place in range(3)}
    chain.put({**deep, "channel_0000": "other", **{f"more {n}": "m" * 3000 for n in range(5)}})
    for number in range(3):
        config = chain.put({"n": number})
        assert values_of(chain.face, config) == chain.values
        assert values_of(chain.face.fresh(), config) == chain.values


@pytest.mark.parametrize("channel", ["__bundle__", "__copy__"])
def test_a_channel_with_a_name_of_the_layouts_own_is_refused(
    face: Face, database: Data, channel: str
) -> None:
    with pytest.raises(ValueError, match=f"'{channel}'.*another name"):
        Chain(face).put({channel: ["x"] * LARGE})
    assert all(not found for found in contents(database).values())
