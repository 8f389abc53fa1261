"""Small bytes are stored compressed, and restored in bounded time and memory."""

from __future__ import annotations

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langgraph.checkpoint.mongodb._layout.compression import (
    COMPRESSED_BYTES,
    DICTIONARY,
    compress,
    decompress,
)
from tests.unit_tests.strategies import CODEC


def stream(data: bytes) -> bytes:
    """A stream of any length, as somebody else could make it."""
    writer = zlib.compressobj(zdict=DICTIONARY)
    return writer.compress(data) + writer.flush()


pieces = st.binary(max_size=300) | st.sampled_from([b"a", b"messages", DICTIONARY])


@given(st.lists(pieces, max_size=20), st.integers(1, 400))
def test_what_was_compressed_is_restored(parts: list[bytes], times: int) -> None:
    data = b"".join(parts) * times
    compressed = compress(data)
    if compressed is not None:
        assert len(compressed) < len(data) <= COMPRESSED_BYTES
        assert decompress(compressed) == data


@pytest.mark.parametrize("length", [0, 1, 127, COMPRESSED_BYTES + 1])
def test_what_is_too_short_or_too_long_stays_as_it_is(length: int) -> None:
    assert compress(b"a" * length) is None


@pytest.mark.parametrize("length", [128, COMPRESSED_BYTES - 1, COMPRESSED_BYTES])
def test_what_is_just_within_the_limits_is_compressed(length: int) -> None:
    assert decompress(compress(b"a" * length) or b"") == b"a" * length


def test_what_does_not_become_shorter_stays_as_it_is() -> None:
    noise = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(100))
    assert compress(noise) is None


def test_of_a_short_message_little_is_left_but_its_text() -> None:
    ids = [hashlib.md5(bytes([n]), usedforsecurity=False).hexdigest() for n in range(2)]
    messages = [HumanMessage("Where is it?", id=ids[0]), AIMessage("Over there.", id=ids[1])]
    data = CODEC.dumps(messages)[1]
    assert len(compress(data) or data) < len(data) / 3


def test_the_dictionary_is_the_one_that_stored_bytes_were_made_with() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (764, 1154958248)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"not a stream",
        stream(b"a" * 500)[:-1],
        stream(b"a" * 500) + b"x",
        stream(b"a" * (COMPRESSED_BYTES + 1)),
        stream(b"a" * 100_000_000),
    ],
    ids=["empty", "other bytes", "cut", "longer", "above the limit", "a bomb"],
)
def test_bytes_that_were_not_compressed_so_are_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="zlib stream"):
        decompress(damaged)
