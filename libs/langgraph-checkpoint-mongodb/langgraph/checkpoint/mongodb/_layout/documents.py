"""The split layout: checkpoint, channel value and pending write documents.

Pure functions between LangGraph's values and MongoDB's documents. What the fields
mean is written down in `docs/stored-layout.md`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.mongodb._layout.codec import Typed, document_size, native_metadata
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError, UnknownLayoutError

__all__ = [
    "COPY_CHANNEL",
    "LAYOUT",
    "UNCOUNTED",
    "VALUE_KEY",
    "WHOLE",
    "WRITE_KEY",
    "CheckpointKey",
    "Document",
    "ManifestEntry",
    "ValueKey",
    "delta_channels",
    "layout_of",
    "payload_size",
    "value_documents",
    "value_version",
    "version_text",
]

Document = dict[str, Any]

COPY_CHANNEL = "__copy__"
"""Channel of the marker in a target that is being copied to; `version` is the source."""

LAYOUT = 2
"""The `layout` of a split checkpoint document; the whole layout has no such field."""

UNCOUNTED = "uncounted"
"""Field of a checkpoint: the delta channels of its ancestors that its graph does not know."""

VALUE_KEY = ("thread_id", "checkpoint_ns", "channel", "version", "part")
"""The fields of the unique index of channel values."""

WRITE_KEY = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
"""The fields of the unique index of pending writes, as the older releases made it."""

# What `get_next_version` makes here and in the other Python savers: only this form
# is unique by itself. Any other version may be met by two forks.
_UNIQUE_VERSION = re.compile(r"\d{32}\.\S+")


class CheckpointKey(NamedTuple):
    """What identifies a checkpoint: the fields of its unique index."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    def namespace(self) -> Document:
        """The query for the checkpoint's thread and namespace."""
        return {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}

    def query(self) -> Document:
        """The query for exactly this checkpoint."""
        return self._asdict()


class ValueKey(NamedTuple):
    """What identifies a channel value document: the fields of its unique index."""

    thread_id: str
    checkpoint_ns: str
    channel: str
    version: str
    part: int | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ValueKey:
        """The key of a stored document."""
        # Only `part`, which may be None, can be absent.
        return cls(*(document.get(name) for name in VALUE_KEY))  # type: ignore[arg-type]

    def query(self) -> Document:
        """The query for exactly this document."""
        return self._asdict()


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
            `WHOLE` for one that has no `part`; None for any other value. What follows the
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
            return [None if number == WHOLE else number for number in self.pieces]
        return [self.stored_part] if self.parts is None else range(self.parts)

    def to_document(self) -> Document:
        """The entry as it is stored, absent facts left out."""
        document = {
            name: value
            for name in _ENTRY_FIELDS
            if (value := getattr(self, name)) is not None and value is not False
        }
        if self.pieces is not None:
            # Numbers of four bytes: a checkpoint of a long chat names a hundred.
            document["pieces"] = struct.pack(f"<{len(self.pieces)}I", *self.pieces)
            # It is the channel's version in the checkpoint, which holds every one.
            document.pop("channel_version", None)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ManifestEntry:
        """Read an entry back; what a later release of this layout may add is ignored.

        Raises:
            DamagedCheckpointError: It is not one that this library has written.
        """
        given = {name: document[name] for name in _ENTRY_FIELDS if name in document}
        wrong = [name for name, value in given.items() if not _is_possible(name, value)]
        if wrong or not given.keys() >= {"channel", "version", "size"}:
            raise DamagedCheckpointError(
                "", f"the manifest entry of channel {given.get('channel')!r} has {wrong or 'gaps'}"
            )
        if "pieces" in given:
            given["pieces"] = struct.unpack(f"<{len(given['pieces']) // 4}I", given["pieces"])
        return cls(**given)


WHOLE = 0
"""Among the numbers of pieces: the document without `part`, a whole serialization."""

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


def layout_of(document: Mapping[str, Any]) -> int:
    """The layout of a checkpoint document: 1 (whole) or 2 (split).

    Raises:
        UnknownLayoutError: A newer release wrote it.
    """
    layout = document.get("layout", 1)
    if layout not in (1, LAYOUT):
        raise UnknownLayoutError(
            layout, document.get("thread_id", "?"), document.get("checkpoint_id", "?")
        )
    return cast(int, layout)


def delta_channels(document: Mapping[str, Any]) -> set[str]:
    """The delta channels that a checkpoint does not hold itself, as its document tells.

    Some may never have been written: then they have no version.
    """
    return {*native_metadata(document, COUNTERS), *document.get(UNCOUNTED, ())}


def version_text(version: object) -> str:
    """A channel version as the text that keys hold; empty for none."""
    return "" if version is None else str(version)


def value_version(version: object, checkpoint_id: str, *, own: bool = False) -> str:
    """The `version` under which a channel value is stored.

    Args:
        version: The channel's version; None for a channel that has none.
        checkpoint_id: The checkpoint that writes the value.
        own: Make the key this checkpoint's own even if the version is unique.

    Returns:
        The version itself when it is unique, else the version and the checkpoint:
        two forks that count to the same number must not meet on one key.
    """
    if not own and isinstance(version, str) and _UNIQUE_VERSION.fullmatch(version):
        return version
    return f"{version_text(version)}@{checkpoint_id}"


def value_documents(
    key: CheckpointKey, entry: ManifestEntry, parts: Sequence[Typed], stamp: datetime | None
) -> list[Document]:
    """The documents of one channel value.

    Args:
        key: The checkpoint that writes the value.
        entry: Its manifest entry.
        parts: The serialized value, or its parts in order.
        stamp: The TTL stamp, None without a TTL.

    Returns:
        One document, or one for each part.
    """
    documents = []
    for one, (type_, data) in zip(entry.keys(key), parts, strict=True):
        document = {**key.namespace(), "channel": entry.channel, "version": entry.version}
        if one.part is not None:
            document["part"] = one.part
        document["type"] = type_
        document["value"] = data
        if stamp is not None:
            document["created_at"] = stamp
        documents.append(document)
    return documents


def payload_size(document: Document) -> int:
    """Bytes that a channel value or pending write document takes in the server."""
    return document_size({**document, "value": b""}, document["value"])
