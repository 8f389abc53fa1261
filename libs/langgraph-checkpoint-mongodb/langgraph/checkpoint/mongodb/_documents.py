"""The split layout: checkpoint, channel value and pending write documents.

Pure functions between LangGraph's values and MongoDB's documents. What the fields
mean is written down in `docs/stored-layout.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite

from langgraph.checkpoint.mongodb._codec import Codec, Typed, document_size
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError

__all__ = [
    "COPY_CHANNEL",
    "LAYOUT",
    "VALUE_KEY",
    "WRITE_KEY",
    "CheckpointKey",
    "Document",
    "ManifestEntry",
    "ValueKey",
    "layout_of",
    "load_writes",
    "payload_size",
    "pending_writes",
    "refer",
    "referred",
    "value_documents",
    "value_version",
    "version_text",
    "write_documents",
    "write_order",
]

Document = dict[str, Any]

COPY_CHANNEL = "__copy__"
"""Channel of the marker in a target that is being copied to; `version` is the source."""

LAYOUT = 2
"""The `layout` of a split checkpoint document; the whole layout has no such field."""

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
        return {name: value for name, value in self._asdict().items() if value is not None}


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Where one channel value of a checkpoint lies.

    Attributes:
        channel: The channel.
        version: The value document's `version`.
        size: Bytes of the serialized value, all parts together.
        channel_version: The channel's version as text, where it is not `version`.
        parts: How many documents hold the value; None for one without parts.
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
        numbers = [self.stored_part] if self.parts is None else range(self.parts)
        return [ValueKey(*checkpoint[:2], channel, self.version, number) for number in numbers]

    def to_document(self) -> Document:
        """The entry as it is stored, absent facts left out."""
        return {
            name: value
            for name in _ENTRY_FIELDS
            if (value := getattr(self, name)) is not None and value is not False
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ManifestEntry:
        """Read an entry back; what a later release of this layout may add is ignored."""
        return cls(**{name: document[name] for name in _ENTRY_FIELDS if name in document})


_ENTRY_FIELDS = tuple(field.name for field in fields(ManifestEntry))


# What of a value's key a pending write says that it does not share.
_STORED = ("channel", "version", "part")


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
    for number, (type_, data) in enumerate(parts):
        document = {**key.namespace(), "channel": entry.channel, "version": entry.version}
        if entry.parts is not None:
            document["part"] = number
        document["type"] = type_
        document["value"] = data
        if stamp is not None:
            document["created_at"] = stamp
        documents.append(document)
    return documents


def write_documents(
    codec: Codec,
    key: CheckpointKey,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    stamp: datetime | None,
) -> list[Document]:
    """The documents of one task's pending writes, the special channels at their own `idx`."""
    documents = []
    for number, (channel, value) in enumerate(writes):
        type_, data = codec.dumps(value)
        document = {
            **key.query(),
            "task_id": task_id,
            "task_path": task_path,
            "idx": WRITES_IDX_MAP.get(channel, number),
            "channel": channel,
            "type": type_,
            "value": data,
        }
        if stamp is not None:
            document["created_at"] = stamp
        documents.append(document)
    return documents


def payload_size(document: Document) -> int:
    """Bytes that a channel value or pending write document takes in the server."""
    return document_size({**document, "value": b""}, document["value"])


def refer(document: Document, entry: ManifestEntry) -> None:
    """Let a pending write name the stored bytes of its value instead of holding them.

    Args:
        document: The pending write.
        entry: An item of the input that its checkpoint's manifest names: it stays as long
            as that checkpoint, and so as long as the write.
    """
    (key,) = entry.keys(CheckpointKey(document["thread_id"], document["checkpoint_ns"], ""))
    document["value"] = b""
    document["stored"] = {name: value for name, value in key.query().items() if name in _STORED}


def referred(document: Mapping[str, Any]) -> ValueKey | None:
    """The value document that holds a pending write's value, None where it holds it itself."""
    stored = document.get("stored")
    return None if stored is None else ValueKey.of({**document, "part": None, **stored})


def write_order(document: Mapping[str, Any]) -> tuple[str, str, int]:
    """Sort key of pending writes: the order in which a live step applies them."""
    return document.get("task_path", ""), document["task_id"], document["idx"]


def load_writes(codec: Codec, documents: Iterable[Mapping[str, Any]]) -> list[PendingWrite]:
    """Read pending writes back, in the order given."""
    return [
        (found["task_id"], found["channel"], codec.loads((found["type"], found["value"])))
        for found in documents
    ]


def pending_writes(codec: Codec, documents: Iterable[Mapping[str, Any]]) -> list[PendingWrite]:
    """Read pending writes back, in `(task_path, task_id, idx)` order."""
    return load_writes(codec, sorted(documents, key=write_order))
