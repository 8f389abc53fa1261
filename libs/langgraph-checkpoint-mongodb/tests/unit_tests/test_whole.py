from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._layout.whole import read_whole, whole_fields
from tests.support import checkpoint
from tests.unit_tests.strategies import CODEC, names, unique_versions, values

numbers = st.integers(1, 1000)


@given(st.dictionaries(names, values, max_size=4), st.dictionaries(names, numbers, max_size=4))
def test_a_checkpoint_with_integer_versions_comes_back_as_it_was(
    channel_values: dict[str, Any], channel_versions: dict[str, int]
) -> None:
    given_ = checkpoint(channel_values, channel_versions, versions_seen={"n": channel_versions})
    assert read_whole(CODEC, whole_fields(CODEC, given_)).checkpoint == given_


def test_it_is_stored_as_releases_up_to_051_read_it() -> None:
    given_ = checkpoint({"a": 1}, {"a": 1})
    fields = whole_fields(CODEC, given_)
    assert set(fields) == {"type", "checkpoint"}
    assert JsonPlusSerializer().loads_typed((fields["type"], fields["checkpoint"])) == given_


@given(unique_versions)
def test_string_versions_are_counted_as_integers(version: str) -> None:
    given_ = checkpoint({}, {"a": version}, versions_seen={"n": {"a": version}})
    got = read_whole(CODEC, whole_fields(CODEC, given_)).checkpoint
    counter = int(version.partition(".")[0])
    assert got["channel_versions"] == {"a": counter}
    assert got["versions_seen"] == {"n": {"a": counter}}


@pytest.mark.parametrize("version", [1.5, "x", "", "-1", "v.1"])
def test_a_version_that_counts_nothing_is_left_as_it_is(version: Any) -> None:
    given_ = checkpoint({}, {"a": version})
    got = read_whole(CODEC, whole_fields(CODEC, given_)).checkpoint
    assert got["channel_versions"] == {"a": version}


def test_the_checkpoint_that_was_given_is_not_changed() -> None:
    given_ = checkpoint({}, {"a": f"{1:032d}.5"}, versions_seen={"n": {"a": f"{1:032d}.5"}})
    before = repr(given_)
    whole_fields(CODEC, given_)
    assert repr(given_) == before


def test_fields_that_a_checkpoint_lacks_are_not_made_up() -> None:
    bare: Any = {"id": "c", "v": 1, "channel_values": {"a": 1}}
    assert read_whole(CODEC, whole_fields(CODEC, bare)).checkpoint == bare
