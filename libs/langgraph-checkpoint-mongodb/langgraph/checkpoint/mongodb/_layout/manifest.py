"""The manifest of a split checkpoint: where its channel values lie."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError

__all__ = ["NO_PART", "ManifestEntry"]


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Where one channel value of a checkpoint lies.

    Attributes:
        channel: The channel.
        version: The value document's `version`.
        size: Bytes of the serialized value, all parts together.
        channel_version: The channel's version as text, where it is not `version`.
        parts: How many documents hold the value; None for one without parts.
        pieces: The numbers of the documents that hold a value that grows, in their order,
            `NO_PART` for one that has no `part`; None for any other value. What follows the
            pieces lies in the packed checkpoint.
        snapshot: Whether it is the snapshot of a delta channel.
        stored_channel: The value document's `channel`, where it is not `channel`: the
            value was first stored as an item of the graph's input.
        stored_part: The value document's `part` then.
    """

    channel: str
    version: str
    size: int
    channel_version: str | None = None
    parts: int | None = None
    pieces: tuple[int, ...] | None = None
    snapshot: bool = False
    stored_channel: str | None = None
    stored_part: int | None = None

    @property
    def holds(self) -> str:
        """The channel version, as text, whose value this is."""
        return self.version if self.channel_version is None else self.channel_version

    def keys(self, checkpoint: CheckpointKey) -> list[ValueKey]:
        """The documents that hold the value, parts in order."""
        channel = self.channel if self.stored_channel is None else self.stored_channel
        return [
            ValueKey(*checkpoint[:2], channel, self.version, number) for number in self._numbers()
        ]

    def _numbers(self) -> Iterable[int | None]:
        """The `part` of each document, None for one that has none."""
        if self.pieces is not None:
            return [None if number == NO_PART else number for number in self.pieces]
        return [self.stored_part] if self.parts is None else range(self.parts)

    def to_document(self) -> Document:
        """The entry as it is stored, absent facts left out."""
        document = {
            name: value
            for name in _ENTRY_FIELDS
            if (value := getattr(self, name)) is not None and value is not False
        }
        if self.pieces is not None:
            # Numbers of four bytes: a checkpoint of a long chat lists a hundred.
            document["pieces"] = struct.pack(f"<{len(self.pieces)}I", *self.pieces)
            # It is the channel's version in the checkpoint, which holds every one.
            document.pop("channel_version", None)
            if not self.version:
                del document["version"]
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ManifestEntry:
        """Read an entry back; what a later release of this layout may add is ignored.

        Raises:
            DamagedCheckpointError: It is not one that this library has written.
        """
        given = {name: document[name] for name in _ENTRY_FIELDS if name in document}
        if "pieces" in given:
            given.setdefault("version", "")
        wrong = [name for name, value in given.items() if not _is_possible(name, value)]
        if wrong or not given.keys() >= {"channel", "version", "size"}:
            raise DamagedCheckpointError(
                "", f"the manifest entry of channel {given.get('channel')!r} has {wrong or 'gaps'}"
            )
        if "pieces" in given:
            given["pieces"] = struct.unpack(f"<{len(given['pieces']) // 4}I", given["pieces"])
        return cls(**given)


NO_PART = 0
"""Among the numbers of pieces: the document without `part`, a complete serialization."""

_ENTRY_FIELDS = tuple(field.name for field in fields(ManifestEntry))

# A graph's input of 16 GB would have as many parts.
_MOST_PARTS = 65536


def _is_possible(name: str, value: Any) -> bool:
    """Whether a field of a manifest entry holds what it can hold."""
    if name in ("channel", "version", "channel_version", "stored_channel"):
        return isinstance(value, str)
    if name == "snapshot":
        return isinstance(value, bool)
    if name == "pieces":
        return isinstance(value, bytes) and len(value) % 4 == 0
    at_most = _MOST_PARTS if name in ("parts", "stored_part") else 2**63
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= at_most
