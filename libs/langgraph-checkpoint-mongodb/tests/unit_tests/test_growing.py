from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb._layout.growing import (
    MAX_PIECES,
    PIECE_BYTES,
    SMALL_PIECE_BYTES,
    TAIL_BYTES,
    Growth,
    cut_value,
    first_growth,
    header_length,
    join_value,
    map_header,
)
from tests.unit_tests.strategies import CODEC


class Store:
    """What the documents of one value would hold, put after put."""

    def __init__(self, value: Any) -> None:
        self.written = 0
        self._anew(value)

    def _anew(self, value: Any) -> None:
        data = CODEC.dumps(value)[1]
        self.growth: Growth = first_growth(data)
        self.pieces = [data[header_length(data) :]]
        self.written += len(data)

    def put(self, value: Any) -> None:
        """Store the next value, and make sure that it reads as it was put."""
        data = CODEC.dumps(value)[1]
        cut = cut_value(data, self.growth) if header_length(data) else None
        if cut is None:
            self._anew(value)
        else:
            self.pieces = self.pieces[: cut.kept] + cut.pieces
            self.growth = cut.growth
            self.written += sum(map(len, cut.pieces)) + len(cut.growth.tail)
        assert join_value(self.growth, self.pieces) == data
        assert sum(group.count for group in self.growth.groups) == len(self.pieces)
        assert self.growth.size == len(data)


items = st.integers(0, 3).map(lambda n: "abcd"[n] * [1, 700, 3000, 40_000][n])
lists = st.lists(items, max_size=8)
dicts = st.dictionaries(st.sampled_from("abcdefgh"), items, max_size=8)


@given(st.lists(lists | dicts, min_size=1, max_size=12))
def test_whatever_follows_whatever_is_put_together_as_it_was(states: list[Any]) -> None:
    first, *rest = states
    store = Store(first)
    for state in rest:
        store.put(state)


edits = st.sampled_from(["append", "append", "append", "edit last", "edit first", "drop", "trim"])


@given(st.lists(st.tuples(edits, items), max_size=30))
def test_a_list_that_is_edited_is_put_together_as_it_was(steps: list[tuple[str, str]]) -> None:
    state = ["x" * 2 * TAIL_BYTES]
    store = Store(state)
    for number, (edit, item) in enumerate(steps):
        item = f"{number}{item}"
        if edit == "append" or not state:
            state = [*state, item]
        elif edit == "edit last":
            state = [*state[:-1], item]
        elif edit == "edit first":
            state = [item, *state[1:]]
        else:
            state = state[:-1] if edit == "drop" else state[1:]
        store.put(state)


def test_what_is_appended_is_a_tail_first_and_then_a_piece() -> None:
    store = Store(["x" * 2 * TAIL_BYTES])
    store.put(["x" * 2 * TAIL_BYTES, "y" * 1000])
    assert (len(store.pieces), len(store.growth.tail)) == (1, 1003)
    store.put(["x" * 2 * TAIL_BYTES, "y" * 1000, "z" * TAIL_BYTES])
    assert (len(store.pieces), store.growth.tail) == (2, b"")


def test_a_chat_writes_a_few_times_its_own_bytes() -> None:
    messages = [f"{n}" * 350 for n in range(1000, 1200)]
    store = Store(messages[:5])
    for length in range(6, len(messages) + 1):
        store.put(messages[:length])
    own = len(CODEC.dumps(messages)[1])
    assert store.written < 4 * own


def test_an_edit_at_the_end_keeps_what_stands_before() -> None:
    state = ["x" * 100_000, *(str(n) * 3000 for n in range(9))]
    store = Store(state[:1])
    for length in range(2, len(state) + 1):
        store.put(state[:length])
    before = store.written
    store.put([*state[:-1], "edited" * 500])
    assert store.written - before < 20_000


def test_a_list_and_a_dict_of_the_same_bytes_are_not_mixed_up() -> None:
    items = [n % 100 for n in range(6000)]
    store = Store(items)
    store.put(dict(zip(items[::2], items[1::2], strict=True)))
    store.put(items)


def test_a_short_value_has_few_pieces_and_a_long_one_more() -> None:
    state = ["x" * 2 * TAIL_BYTES]
    store = Store(state)
    for number in range(150):
        state = [*state, str(number) * (TAIL_BYTES // len(str(number)) + 10)]
        store.put(state)
        size = len(CODEC.dumps(state)[1])
        assert len(store.pieces) <= 3 + SMALL_PIECE_BYTES // TAIL_BYTES + size // SMALL_PIECE_BYTES
    assert store.written < 4 * size


def test_many_small_pieces_become_one() -> None:
    state = ["x" * 8 * 1024 * 1024]
    store = Store(state)
    for number in range(3 * MAX_PIECES):
        state = [*state, str(number) * (TAIL_BYTES // len(str(number)) + 10)]
        store.put(state)
        assert len(store.pieces) <= MAX_PIECES + 4
    assert store.pieces[0] == CODEC.dumps(state[0])[1]


def test_of_a_value_of_small_pieces_none_is_left_when_they_become_one() -> None:
    state = ["x" * 5000]
    store = Store(state)
    counts = []
    while len(CODEC.dumps(state)[1]) < SMALL_PIECE_BYTES:
        state = [*state, "y" * TAIL_BYTES]
        store.put(state)
        counts.append(len(store.pieces))
    assert counts == [2, 3, 4, 5, 1]


def test_few_digests_serve_many_pieces() -> None:
    state = ["x" * 2 * TAIL_BYTES]
    store = Store(state)
    for number in range(200):
        state = [*state, str(number) * 3000]
        store.put(state)
    assert len(store.growth.groups) <= 10


def test_no_piece_is_larger_than_a_piece_may_be() -> None:
    store = Store(["x" * 2 * TAIL_BYTES])
    store.put(["x" * 2 * TAIL_BYTES, "y" * (2 * PIECE_BYTES + 10)])
    assert max(map(len, store.pieces)) == PIECE_BYTES


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", 1.5, {1, 2}])
def test_what_is_no_list_and_no_dict_is_not_cut(value: Any) -> None:
    assert header_length(CODEC.dumps(value)[1]) == 0


@pytest.mark.parametrize("length", [0, 1, 15, 16, 65_535, 65_536])
def test_the_header_is_what_msgpack_makes_it(length: int) -> None:
    as_list = CODEC.dumps([None] * length)[1]
    as_dict = CODEC.dumps(dict.fromkeys(range(length)))[1]
    assert as_list[header_length(as_list) :] == b"\xc0" * length
    assert as_dict[: header_length(as_dict)] == map_header(length)
