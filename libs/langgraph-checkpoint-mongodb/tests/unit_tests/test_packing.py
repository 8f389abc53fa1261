from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._layout.bundle import Bundle
from langgraph.checkpoint.mongodb._layout.growing import Group, Growth
from langgraph.checkpoint.mongodb._layout.packing import pack_checkpoint, unpack_checkpoint
from tests.support import LARGE_SIZE, checkpoint
from tests.unit_tests.strategies import CODEC, names, texts, values, versions

groups = st.builds(Group, st.integers(1, 9), st.integers(0, 2**32), st.binary(max_size=10))
growths = st.builds(Growth, st.binary(max_size=5), st.tuples(groups), st.binary(max_size=9))
bundles = st.builds(Bundle, st.integers(1, 9), st.just({}), st.frozensets(names, max_size=3))


def stored(packed: tuple[str, bytes], checkpoint_id: str) -> dict[str, Any]:
    return {"type": packed[0], "checkpoint": packed[1], "checkpoint_id": checkpoint_id}


def repacked(given: Checkpoint, inline: Mapping[str, Any] | None = None) -> Checkpoint:
    packed = pack_checkpoint(CODEC, given, inline or {})
    return unpack_checkpoint(CODEC, stored(packed, given["id"])).checkpoint


@given(
    st.dictionaries(names, versions, max_size=6),
    st.dictionaries(texts, st.dictionaries(names, versions, max_size=4), max_size=4),
)
@example({"a": 1, "b": 1.0, "c": "1"}, {"n": {"a": True}})
@example({"a": f"{2**64:032d}.{'1' * 16}", "b": f"{'9' * 32}.{'9' * 16}"}, {})
@example({"a": f"{'٣' * 32}.{'٣' * 16}", "b": f"{1:032d}.{'1' * 15}"}, {})
def test_every_version_comes_back_in_value_and_type(
    channel_versions: dict[str, Any], seen: dict[str, Any]
) -> None:
    given_ = checkpoint({}, channel_versions, versions_seen=seen)
    got = repacked(given_)
    assert repr(got["channel_versions"]) == repr(channel_versions)
    assert repr(got["versions_seen"]) == repr(seen)


@given(st.dictionaries(names, values, max_size=4))
def test_inline_values_come_back(inline: dict[str, Any]) -> None:
    got = repacked(checkpoint({}, {}), inline)
    assert got["channel_values"] == inline


def test_every_other_field_of_the_checkpoint_comes_back() -> None:
    given_ = checkpoint({}, {"a": "1"}, updated_channels=["a"], pending_sends=[], future={"x": 1})
    assert repacked(given_) == given_


def test_fields_that_a_checkpoint_lacks_are_not_made_up() -> None:
    bare: Any = {"id": "c", "v": 1, "channel_values": {}}
    assert repacked(bare) == bare


@given(st.dictionaries(names, growths, max_size=3), st.none() | bundles)
def test_how_values_are_cut_comes_back(cut: dict[str, Growth], bundle: Bundle | None) -> None:
    given_ = checkpoint({}, {"a": "1"})
    packed = pack_checkpoint(CODEC, given_, {}, cut, bundle)
    unpacked = unpack_checkpoint(CODEC, stored(packed, given_["id"]))
    assert unpacked.growths == cut
    assert unpacked.pairs == (bundle.pairs if bundle else 0)
    assert set(unpacked.dead) == (bundle.dead if bundle else set())


def test_what_is_not_cut_costs_nothing() -> None:
    given_ = checkpoint({}, {"a": "1"})
    _, data = pack_checkpoint(CODEC, given_, {"a": 1})
    assert len(CODEC.loads(("msgpack", data))) == 7


def test_channel_values_beside_the_inline_ones_are_left_out() -> None:
    given_ = checkpoint({"large": "x" * LARGE_SIZE, "small": 1}, {"large": "1", "small": "1"})
    assert repacked(given_, {"small": 1})["channel_values"] == {"small": 1}


def test_packing_changes_nothing_of_the_checkpoint_it_is_given() -> None:
    given_ = checkpoint({"a": 1}, {"a": "1"}, versions_seen={"n": {"a": "1"}})
    before = repr(given_)
    pack_checkpoint(CODEC, given_, {"a": 1})
    assert repr(given_) == before


@pytest.mark.parametrize("updated", [None, [], ["a"], ["a", "b", "other"]])
def test_the_updated_channels_come_back(updated: list[str] | None) -> None:
    given_ = checkpoint({"a": 1}, {"a": "1", "b": "2"}, updated_channels=updated)
    assert repacked(given_)["updated_channels"] == updated


def test_a_channel_named_many_times_is_stored_once() -> None:
    seen = {f"n{n}": {"channel_name": "1"} for n in range(10)}
    given_ = checkpoint({}, {"channel_name": "1"}, versions_seen=seen)
    _, data = pack_checkpoint(CODEC, given_, {"channel_name": 1})
    assert data.count(b"channel_name") == 1


def test_a_version_named_many_times_is_stored_once() -> None:
    version = "a-version-of-some-other-form"
    channels = [f"c{n}" for n in range(10)]
    seen = {f"n{n}": dict.fromkeys(channels, version) for n in range(10)}
    given_ = checkpoint({}, dict.fromkeys(channels, version), versions_seen=seen)
    _, data = pack_checkpoint(CODEC, given_, {})
    assert data.count(version.encode()) == 1


def test_a_version_as_langgraph_counts_them_takes_little_room() -> None:
    channels = [f"c{n}" for n in range(100)]
    sizes = []
    for versions_ in ({}, {channel: f"{1:032d}.{n:016d}" for n, channel in enumerate(channels)}):
        given_ = checkpoint({}, versions_)
        sizes.append(len(pack_checkpoint(CODEC, given_, dict.fromkeys(channels, 1))[1]))
    assert (sizes[1] - sizes[0]) / len(channels) < 20


def test_releases_that_do_not_know_the_layout_refuse_the_type() -> None:
    type_, data = pack_checkpoint(CODEC, checkpoint({}, {}), {})
    with pytest.raises(NotImplementedError, match="Unknown serialization type"):
        JsonPlusSerializer(pickle_fallback=True).loads_typed((type_, data))
