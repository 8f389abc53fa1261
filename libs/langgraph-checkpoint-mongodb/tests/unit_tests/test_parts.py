from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb._layout.codec import Typed
from langgraph.checkpoint.mongodb._layout.parts import (
    LARGE_ITEM_BYTES,
    digest,
    join_parts,
    split_parts,
)
from tests.unit_tests.strategies import CODEC

MB = 1024 * 1024

items = st.sampled_from([0, 10, 1000, LARGE_ITEM_BYTES - 100, LARGE_ITEM_BYTES + 1, MB])
payloads = st.builds(
    lambda size, kind: kind(b"x" * size), items, st.sampled_from([bytes, bytearray])
)


def split(value: Any) -> list[Typed] | None:
    return split_parts(CODEC, value, CODEC.dumps(value))


def in_parts(value: Any) -> list[Typed]:
    parts = split(value)
    assert parts is not None
    return parts


@given(st.dictionaries(st.text("abc", min_size=1) | st.integers(0, 9), items, max_size=8))
@example({})
def test_a_mapping_comes_back_in_its_order(sizes: dict[Any, int]) -> None:
    value = {"first": b"x" * MB, **{key: b"y" * size for key, size in sizes.items()}}
    assert list(join_parts(CODEC, in_parts(value)).items()) == list(value.items())


@given(st.lists(items, max_size=8))
def test_a_list_comes_back_in_its_order(sizes: list[int]) -> None:
    value = [bytes([place]) * size for place, size in enumerate([MB, *sizes])]
    assert join_parts(CODEC, in_parts(value)) == value


@given(st.lists(items, max_size=8))
def test_a_value_is_in_parts_exactly_when_it_is_a_megabyte(sizes: list[int]) -> None:
    value = [b"x" * size for size in sizes]
    assert (split(value) is not None) == (len(CODEC.dumps(value)[1]) >= MB)


@given(st.lists(items, min_size=1, max_size=8))
@example([LARGE_ITEM_BYTES - 100] * 30)
def test_a_part_is_one_large_item_or_at_most_four_megabytes_of_small_ones(
    sizes: list[int],
) -> None:
    value = [b"x" * size for size in [MB, *sizes]]
    for _, data in in_parts(value)[1:]:
        assert len(data) <= max(4 * MB + 1024, max(sizes))


@given(st.lists(payloads, max_size=5))
def test_a_large_item_keeps_its_type(value: list[Any]) -> None:
    value = [b"x" * MB, *value]
    got = join_parts(CODEC, in_parts(value))
    large = [place for place, item in enumerate(value) if len(item) > LARGE_ITEM_BYTES]
    assert [type(got[place]) for place in large] == [type(value[place]) for place in large]


def test_a_large_item_lies_as_it_would_alone() -> None:
    item = b"x" * MB
    assert CODEC.dumps(item) in in_parts({"small": 1, "large": item})


def test_small_items_share_a_part() -> None:
    assert len(in_parts([b"x" * 1024] * 2048)) == 2


@pytest.mark.parametrize("value", ["x" * 3 * MB, ("x" * 3 * MB,), {"x" * MB, "y" * MB}])
def test_only_dicts_and_lists_are_split(value: object) -> None:
    assert split(value) is None


@pytest.mark.parametrize("value", [{}, [], {"a": 1}, [1, 2], None])
def test_a_small_value_is_not_split(value: object) -> None:
    assert split(value) is None


def test_digests_tell_types_and_bytes_apart() -> None:
    typed = [("msgpack", b"a"), ("bytes", b"a"), ("msgpack", b"b"), ("msgpack\0a", b""), ("", b"")]
    assert len({digest(one) for one in typed}) == len(typed)
