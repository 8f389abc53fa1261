"""Which pieces of growing values a put keeps, and which it writes, under which numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed
from langgraph.checkpoint.mongodb._layout.growing import (
    Cut,
    first_growth,
    header_length,
    slices,
    tail_as_piece,
)
from langgraph.checkpoint.mongodb._layout.manifest import NO_PART, ManifestEntry
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan

__all__ = ["PIECES_VERSION", "TAILS_TOTAL_BYTES", "Pieces"]

PIECES_VERSION = ""
"""The `version` of pieces that no complete serialization precedes: numbers tell them apart."""

TAILS_TOTAL_BYTES = 16 * 1024
"""The tails of a checkpoint's growing values take at most this together."""


class Pieces:
    """Adds pieces to a plan.

    Args:
        codec: The serializer.
        checkpoint_id: The checkpoint that is put.
        salt: How often pieces got numbers that others have: they get other ones then.
        plan: The plan.
    """

    def __init__(self, codec: Codec, checkpoint_id: str, salt: int, plan: PutPlan) -> None:
        self._codec, self._checkpoint_id, self._salt, self._plan = codec, checkpoint_id, salt, plan

    def place_cut(self, channel: str, text: str, cut: Cut, entry: ManifestEntry) -> None:
        """Keep the pieces that a value begins with, and add what is new in it.

        Args:
            channel: The channel.
            text: Its version.
            cut: How the value is cut now.
            entry: The parent's manifest entry.
        """
        self._plan.growths[channel] = cut.growth
        self._plan.sizes[channel] = cut.growth.size
        # Of a value that is written anew no document is whole.
        version = entry.version if cut.kept else PIECES_VERSION
        entry = replace(entry, version=version, channel_version=text)
        numbers = (NO_PART,) if entry.pieces is None else entry.pieces
        new = [self._codec.seal(piece) for piece in cut.pieces]
        self.add(entry, numbers[: cut.kept], new)

    def add(self, entry: ManifestEntry, kept: Sequence[int], new: Sequence[Typed]) -> None:
        """Name pieces that the parent holds, and new ones."""
        numbers = self._numbers(entry, new)
        # By the share of the pieces: only a listing's pages are made by it.
        size = entry.size * len(kept) // max(len(entry.pieces or (NO_PART,)), 1)
        written = sum(len(data) for _, data in new)
        if kept:
            self._plan.carried.append(replace(entry, size=size, pieces=tuple(kept)))
        if new:
            self._plan.written.append((replace(entry, size=written, pieces=numbers), [*new]))
        if kept or new:
            self._plan.grown[entry.channel] = replace(
                entry, size=size + written, pieces=(*kept, *numbers)
            )

    def _numbers(self, entry: ManifestEntry, pieces: Iterable[Typed]) -> tuple[int, ...]:
        """Numbers for new pieces: two checkpoints, or two contents, never meet on one."""
        context = f"{self._checkpoint_id} {entry.channel} {self._salt}".encode()
        numbers: list[int] = []
        for place, (_, data) in enumerate(pieces):
            hashed = hashlib.sha256(b"%b %d " % (context, place))
            hashed.update(data)
            numbers.append(int.from_bytes(hashed.digest()[:4], "little") >> 1 or 1)
        return tuple(numbers)

    def bound_tails(self) -> None:
        """Make pieces of the longest tails, if all tails together are too long."""
        growths = self._plan.growths
        room = TAILS_TOTAL_BYTES - sum(len(growth.tail) for growth in growths.values())
        if room >= 0:
            return
        entries = self._plan.manifest()
        for channel in sorted(growths, key=lambda one: -len(growths[one].tail)):
            if room >= 0:
                return
            tail, entry = growths[channel].tail, entries[channel]
            room += len(tail)
            growths[channel] = tail_as_piece(growths[channel])
            self._plan.carried = [one for one in self._plan.carried if one.channel != channel]
            numbers = (NO_PART,) if entry.pieces is None else entry.pieces
            self.add(entry, numbers, [self._codec.seal(tail)])

    def write(self, channel: str, text: str, data: bytes) -> None:
        """Write a value in pieces at once: with its header its encryption could not be cut."""
        body = data[header_length(data) :]
        pieces = [bytes(piece) for piece in slices(body)] or [body]
        self._plan.growths[channel] = growth = first_growth(data, pieces)
        self._plan.sizes[channel] = growth.size
        entry = ManifestEntry(channel, PIECES_VERSION, 0, channel_version=text, pieces=())
        self.add(entry, (), [self._codec.seal(piece) for piece in pieces])
