"""The bundle: small values that do not fit into the checkpoint's document lie together.

A bundle is a dict of channel values whose pairs are appended: a channel's last pair counts.
It is stored in pieces like any value that grows (`_layout.growing`), under a channel name of its
own, and read by one deserialization. Pairs of channels that have left it, or have no value any
more, are named in the packed checkpoint; when they are too many, the bundle is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.growing import PIECE_BYTES, header_length, map_header

__all__ = ["BUNDLE", "Bundle", "bundle_pieces", "load_bundle"]

BUNDLE = "__bundle__"
"""The channel of a bundle's documents and of its manifest entry."""

# As many pairs that do not count as pairs that do, and these, before it is written again.
_DEAD_PAIRS = 64


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a checkpoint's bundle holds.

    Attributes:
        pairs: All its pairs, those included that do not count any more.
        live: The channels whose values lie in it, with their versions as text.
        dead: The channels that have a pair in it, but whose values do not lie in it.
    """

    pairs: int
    live: Mapping[str, str]
    dead: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All channels that have a pair in it."""
        return self.dead | self.live.keys()

    @property
    def is_mostly_dead(self) -> bool:
        """Whether it should be written again without its dead pairs."""
        return self.pairs > 2 * len(self.live) + _DEAD_PAIRS


def bundle_pieces(codec: Codec, values: Iterable[tuple[int, str, Any]]) -> Iterator[bytes]:
    """Serialize values as pairs, in pieces.

    Args:
        codec: A serializer whose bytes may be cut and joined.
        values: The values: their sizes, at most, their channels, and themselves.
    """
    piece: dict[str, Any] = {}
    room = PIECE_BYTES
    for size, channel, value in values:
        if piece and size > room:
            yield _pairs(codec, piece)
            piece, room = {}, PIECE_BYTES
        piece[channel] = value
        room -= size
    if piece:
        yield _pairs(codec, piece)


def _pairs(codec: Codec, values: dict[str, Any]) -> bytes:
    data = codec.dumps_in_clear(values)
    return data[header_length(data) :]


def load_bundle(
    codec: Codec, pieces: Iterable[bytes], pairs: int, dead: Iterable[str]
) -> dict[str, Any]:
    """Deserialize the values of a bundle that count."""
    values: dict[str, Any] = codec.loads_in_clear(b"".join((map_header(pairs), *pieces)))
    for channel in dead:
        values.pop(channel, None)
    return values
