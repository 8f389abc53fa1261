"""A value that grows is stored in pieces: what is new in it, not all of it again.

The serialization of a list or a dict is a header that counts its items, and a body. When a
chat gains a message, the new body begins with the old one, byte for byte. So the documents
that hold the old body are kept, what follows them lies in the checkpoint's own document as
the tail, and a tail that has become too large is a document of its own: a further piece.

Pure: bytes in, bytes out. Nothing has to be known of what the value holds. What is put
together again are exactly the bytes that were cut, whatever they mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "MAX_PIECES",
    "PIECE_BYTES",
    "SMALL_PIECE_BYTES",
    "TAIL_BYTES",
    "Cut",
    "Group",
    "Growth",
    "cut_value",
    "digest_of",
    "first_growth",
    "header_length",
    "join_value",
    "map_header",
    "slices",
    "tail_as_piece",
]

TAIL_BYTES = 2560
"""What follows the pieces lies in the checkpoint's document up to this size.

It is sent again with every checkpoint until it is a piece, which costs a command: a chat of
short messages gets a piece about every second turn.
"""

SMALL_PIECE_BYTES = 16 * 1024
"""Pieces that are smaller become one when they are as large together, or a sixteenth of their
value: a byte is written twice, and the pieces are few."""

MAX_PIECES = 128
"""So many small pieces at the end of a value become one, however small they are."""

PIECE_BYTES = 4 * 1024 * 1024
"""A piece is no larger than this; more is cut into several."""

# The part of a value that small pieces may be.
_SMALL_SHARE = 16

_DIGEST_BYTES = 10

# The first byte of a msgpack array or map, and the length of its header.
_FIX = frozenset(range(0x80, 0xA0))
_LONG = {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring pieces, compared as one.

    Attributes:
        count: How many.
        size: Bytes of the body that they hold.
        digest: A digest of those bytes.
    """

    count: int
    size: int
    digest: bytes

    @property
    def is_small(self) -> bool:
        """Whether its pieces may be put together with others."""
        return self.size < SMALL_PIECE_BYTES * self.count


@dataclass(frozen=True, slots=True)
class Growth:
    """How the value of one channel is cut; its manifest entry lists the pieces.

    Attributes:
        head: The header of the value's serialization.
        groups: Its pieces in their order, some logarithmic number of groups.
        tail: The bytes that follow them.
    """

    head: bytes
    groups: tuple[Group, ...]
    tail: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the complete serialization."""
        return len(self.head) + sum(group.size for group in self.groups) + len(self.tail)


@dataclass(frozen=True, slots=True)
class Cut:
    """A value cut at the pieces of the one before.

    Attributes:
        kept: How many of those pieces it begins with.
        pieces: The pieces that are new.
        growth: How it is cut now.
    """

    kept: int
    pieces: list[bytes]
    growth: Growth


def header_length(data: bytes) -> int:
    """Bytes of the header of a serialized list or dict, 0 for anything else."""
    first = data[0] if data else 0
    return 1 if first in _FIX else _LONG.get(first, 0)


def map_header(count: int) -> bytes:
    """The msgpack header of a dict of so many pairs."""
    if count < 16:
        return bytes([0x80 | count])
    if count < 1 << 16:
        return b"\xde" + count.to_bytes(2, "big")
    return b"\xdf" + count.to_bytes(4, "big")


def first_growth(data: bytes, pieces: Sequence[bytes] = ()) -> Growth:
    """How a list or dict is cut that is stored without regard to another.

    Args:
        data: Its serialization.
        pieces: Its body in pieces, none for one document that holds the serialization.
    """
    length = header_length(data)
    if not pieces:
        return Growth(data[:length], (Group(1, len(data) - length, digest_of(data[length:])),))
    groups = tuple(Group(1, len(piece), digest_of(piece)) for piece in pieces)
    return Growth(data[:length], groups)


def cut_value(data: bytes, before: Growth, *, most_tail: int = TAIL_BYTES) -> Cut | None:
    """Cut a value where the value before was cut, as far as they are equal.

    Args:
        data: The serialization of a list or dict.
        before: How the value before is cut.
        most_tail: The longest tail.

    Returns:
        The cut; None if no piece is worth keeping, so that all of it is stored again.
    """
    length = header_length(data)
    body = memoryview(data)[length:]
    groups, at = _equal_groups(body, before.groups)
    if not groups:
        return None
    if len(body) - at <= most_tail:
        return _cut(data, groups, [], bytes(body[at:]))
    small = [*_small_at_end(groups)]
    together = len(body) - at + sum(group.size for group in small)
    enough = max(SMALL_PIECE_BYTES, len(body) // _SMALL_SHARE)
    if together >= enough or sum(group.count for group in small) >= MAX_PIECES:
        at = len(body) - together
        del groups[len(groups) - len(small) :]
    new = [bytes(piece) for piece in slices(body[at:])]
    kept = sum(group.count for group in groups)
    for piece in new:
        groups.append(Group(1, len(piece), b""))
        _merge(groups)
    return _cut(data, groups, new, b"", kept)


def tail_as_piece(growth: Growth) -> Growth:
    """How a value is cut when its tail has become a piece."""
    groups = [*growth.groups, Group(1, len(growth.tail), digest_of(growth.tail))]
    return Growth(growth.head, tuple(groups))


def slices(data: bytes | memoryview) -> Iterable[bytes | memoryview]:
    """Data in slices that are no larger than a piece may be."""
    return (data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))


def join_value(growth: Growth, pieces: Sequence[bytes]) -> bytes:
    """Put a value's serialization together again.

    Args:
        growth: How it is cut.
        pieces: The bodies of its pieces, in their order.
    """
    return b"".join((growth.head, *pieces, growth.tail))


def _equal_groups(body: memoryview, groups: Iterable[Group]) -> tuple[list[Group], int]:
    """The groups that a body begins with, and where the last of them ends."""
    equal: list[Group] = []
    at = 0
    for group in groups:
        end = at + group.size
        if end > len(body) or digest_of(body[at:end]) != group.digest:
            break
        equal.append(group)
        at = end
    return equal, at


def _small_at_end(groups: Sequence[Group]) -> Iterable[Group]:
    for group in reversed(groups):
        if not group.is_small:
            return
        yield group


def _merge(groups: list[Group]) -> None:
    """Compare neighbours as one where they are about as large: few digests serve many pieces."""
    while len(groups) > 1:
        before, last = groups[-2:]
        if before.size >= 2 * last.size or before.is_small != last.is_small:
            return
        groups[-2:] = [Group(before.count + last.count, before.size + last.size, b"")]


def _cut(
    data: bytes, groups: Sequence[Group], new: list[bytes], tail: bytes, kept: int | None = None
) -> Cut:
    length = header_length(data)
    body = memoryview(data)[length:]
    described = []
    at = 0
    for group in groups:
        digest = group.digest or digest_of(body[at : at + group.size])
        described.append(Group(group.count, group.size, digest))
        at += group.size
    if kept is None:
        kept = sum(group.count for group in groups)
    return Cut(kept, new, Growth(data[:length], tuple(described), tail))


def digest_of(data: bytes | memoryview) -> bytes:
    """The digest by which bytes of a body are compared."""
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]
