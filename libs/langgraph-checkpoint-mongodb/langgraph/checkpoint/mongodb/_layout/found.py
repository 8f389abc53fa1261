"""A checkpoint as it was read: is everything there, and what does it hold?"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE, Bundle, load_bundle
from langgraph.checkpoint.mongodb._layout.checkpoint import (
    CheckpointInfo,
    parent_id_of,
    stored_value_keys,
)
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.growing import header_length, join_value
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey, config_of
from langgraph.checkpoint.mongodb._layout.layouts import layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.packing import Unpacked
from langgraph.checkpoint.mongodb._layout.parts import join_parts
from langgraph.checkpoint.mongodb._layout.values import values_by_channel, version_text
from langgraph.checkpoint.mongodb._layout.writes import (
    counting,
    pending_writes,
    referred,
    write_order,
)
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError

__all__ = ["Found", "fill_writes", "group_writes", "load_value", "load_values", "piece_body"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """A checkpoint as it was read, everything there, nothing deserialized.

    Attributes:
        document: The checkpoint document.
        info: What a put that follows it needs to know; its manifest.
        values: The value documents that were read, with others of the same page.
        writes: The pending write documents.
    """

    document: Document
    info: CheckpointInfo
    values: Mapping[ValueKey, Document] = field(default_factory=dict)
    writes: list[Document] = field(default_factory=list)

    @classmethod
    def of(cls, document: Document) -> Found:
        """A checkpoint of which the values and writes are still to be read."""
        return cls(document, CheckpointInfo.of(document))

    @property
    def key(self) -> CheckpointKey:
        """The checkpoint's key."""
        return CheckpointKey.of(self.document)

    def value_keys(self) -> list[ValueKey]:
        """The value documents that its manifest refers to."""
        return list(stored_value_keys(self.key, self.info.manifest))

    def fill(self) -> list[tuple[str, str]]:
        """Complete the pending writes; return channel and version of what was not found."""
        missing = [
            (entry.channel, entry.version)
            for entry in self.info.manifest.values()
            if not all(key in self.values for key in entry.keys(self.key))
        ]
        if len({write_order(one) for one in self.writes}) < len(self.writes):
            logger.warning(
                "Pending writes of checkpoint %r of thread %r are stored twice: their collection "
                "has no unique index. Each is read once. Construct a saver with "
                "create_indexes=True, or call its setup().",
                self.key.checkpoint_id,
                self.key.thread_id,
            )
        # Before the values are looked for: those of a part that does not count may be gone.
        self.writes = counting(self.writes)
        return missing + fill_writes(self.writes, self.values)

    def learn(self, unpacked: Unpacked, values: Mapping[str, Any]) -> None:
        """Note what only the deserialized checkpoint tells.

        Args:
            unpacked: What its own document holds.
            values: The values that lie in other documents, those of its bundle among them.
        """
        manifest, checkpoint = self.info.manifest, unpacked.checkpoint
        versions: Mapping[str, Any] = checkpoint.get("channel_versions") or {}
        cut = {
            channel: replace(entry, channel_version=version_text(versions.get(channel)))
            for channel, entry in manifest.items()
            if entry.pieces is not None and channel != BUNDLE
        }
        bundle = None
        if BUNDLE in manifest and values:
            live = {one: version_text(versions.get(one)) for one in values if one not in manifest}
            bundle = Bundle(unpacked.pairs, live, frozenset(unpacked.dead))
        self.info = replace(
            self.info,
            manifest={**manifest, **cut} if cut else manifest,
            growths=unpacked.growths,
            bundle=bundle,
            wrote=frozenset(checkpoint.get("updated_channels") or ()),
            inline={one: version_text(versions.get(one)) for one in values_by_channel(checkpoint)},
        )

    def read_small(self, codec: Codec) -> dict[str, Any]:
        """Deserialize the values of its own document and of its bundle alone, and note them."""
        unpacked = layout_of(self.document).read(codec, self.document)
        manifest = {name: one for name, one in self.info.manifest.items() if name == BUNDLE}
        values = load_values(codec, self.key, manifest, unpacked, self.values)
        self.learn(unpacked, values)
        return {**values_by_channel(unpacked.checkpoint), **values}

    def to_tuple(self, codec: Codec) -> CheckpointTuple:
        """Deserialize it, when everything is there."""
        unpacked = layout_of(self.document).read(codec, self.document)
        checkpoint = unpacked.checkpoint
        values = load_values(codec, self.key, self.info.manifest, unpacked, self.values)
        self.learn(unpacked, values)
        if values:
            checkpoint["channel_values"] |= values
        parent_id = parent_id_of(self.document)
        return CheckpointTuple(
            config=config_of(self.key),
            checkpoint=checkpoint,
            metadata=codec.loads_metadata(self.document),
            parent_config=(
                config_of(self.key._replace(checkpoint_id=parent_id)) if parent_id else None
            ),
            pending_writes=pending_writes(codec, self.writes),
        )

    def size(self) -> int:
        """Bytes that are to be deserialized."""
        values = sum(entry.size for entry in self.info.manifest.values())
        writes = sum(len(document["value"]) for document in self.writes)
        return len(self.document["checkpoint"]) + values + writes


def load_values(
    codec: Codec,
    key: CheckpointKey,
    manifest: Mapping[str, ManifestEntry],
    unpacked: Unpacked,
    stored: Mapping[ValueKey, Document],
) -> dict[str, Any]:
    """Deserialize the values that lie in documents, which were read.

    Args:
        codec: The serializer.
        key: Their checkpoint.
        manifest: Their manifest entries, by channel.
        unpacked: What their checkpoint's own document holds.
        stored: The value documents.

    Returns:
        The values by channel, those of a bundle each.
    """
    values: dict[str, Any] = {}
    for channel, entry in manifest.items():
        if entry.pieces is None:
            values[channel] = load_value(codec, entry, key, stored)
            continue
        bodies = [piece_body(codec, key, stored[one]) for one in entry.keys(key)]
        if channel == BUNDLE:
            values |= load_bundle(codec, bodies, unpacked.pairs, unpacked.dead)
        else:
            joined = join_value(unpacked.growths[channel], bodies)
            values[channel] = codec.loads_in_clear(joined)
    return values


def load_value(
    codec: Codec,
    entry: ManifestEntry,
    key: CheckpointKey,
    stored: Mapping[ValueKey, Document],
) -> Any:
    """Deserialize a value that is not cut, whose documents were read."""
    parts = [(stored[one]["type"], stored[one]["value"]) for one in entry.keys(key)]
    size = sum(len(data) for _, data in parts)
    if size != entry.size:
        raise DamagedCheckpointError(
            key.checkpoint_id,
            f"it names {entry.size:,} bytes of channel {entry.channel!r}, and {size:,} are stored",
        )
    return codec.loads(parts[0]) if entry.parts is None else join_parts(codec, parts)


def piece_body(codec: Codec, key: CheckpointKey, document: Document) -> bytes:
    """The bytes of a piece, without the header of one that holds a complete serialization."""
    if "part" in document:
        try:
            return codec.unseal((document["type"], document["value"]))
        except ValueError as error:
            what = f"a piece of channel {document['channel']!r} cannot be read: {error}"
            raise DamagedCheckpointError(key.checkpoint_id, what) from error
    complete: bytes = document["value"]
    return complete[header_length(complete) :]


def group_writes(documents: Iterable[Document]) -> dict[CheckpointKey, list[Document]]:
    """Pending write documents by their checkpoint."""
    writes: defaultdict[CheckpointKey, list[Document]] = defaultdict(list)
    for document in documents:
        writes[CheckpointKey.of(document)].append(document)
    return writes


def fill_writes(
    writes: Iterable[Document], values: Mapping[ValueKey, Document]
) -> list[tuple[str, str]]:
    """Give pending writes the bytes they refer to; return those whose bytes are not there."""
    missing = []
    for document in writes:
        key = referred(document)
        if key is None:
            continue
        if key in values:
            document["value"] = values[key]["value"]
        else:
            missing.append((document["channel"], key.version))
    return missing
