"""The checkpoint document: put together, taken apart, and what a saver knows of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from bson import ObjectId
from langgraph.checkpoint.base import CheckpointMetadata

from langgraph.checkpoint.mongodb._layout.bundle import Bundle
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS
from langgraph.checkpoint.mongodb._layout.growing import Growth
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._layout.layouts import Layout, layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.metadata import native_metadata
from langgraph.checkpoint.mongodb._layout.states import CLAIMED, REKEYED, RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._layout.ttl import aware
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError

__all__ = [
    "ALL_FIELDS",
    "ANCESTRY_FIELDS",
    "FILTER_FIELDS",
    "INFO_FIELDS",
    "KEY_FIELDS",
    "WALK_FIELDS",
    "CheckpointInfo",
    "Life",
    "claimed_of",
    "common_fields",
    "delta_channels",
    "entries_of",
    "manifest_of",
    "parent_id_of",
    "parent_key_of",
    "stored_value_keys",
]

_MANIFEST = "channels"
"""The field that holds the manifest."""

_PARENT = "parent_checkpoint_id"

_UNCOUNTED = "uncounted"
"""The delta channels of a checkpoint's ancestors that its graph does not know."""

# No projection, so `_id` comes, too: to leave it out, the server would copy each document.
ALL_FIELDS: Document = {}

KEY_FIELDS: Document = {"_id": 0, "thread_id": 1, "checkpoint_ns": 1, "checkpoint_id": 1}

_DELTA_FIELDS: Document = {_UNCOUNTED: 1, f"metadata.{COUNTERS}": 1}

INFO_FIELDS: Document = {
    **KEY_FIELDS,
    "layout": 1,
    _MANIFEST: 1,
    "created_at": 1,
    REKEYED: 1,
    **_DELTA_FIELDS,
}
"""What `CheckpointInfo.of` reads."""

# Not the namespace, which is the same for hundreds of documents, and put back.
WALK_FIELDS: Document = {
    "_id": 0,
    "checkpoint_id": 1,
    _PARENT: 1,
    "layout": 1,
    _MANIFEST: 1,
    **_DELTA_FIELDS,
}
"""What a walk along parents reads of each checkpoint."""

ANCESTRY_FIELDS: Document = {
    **KEY_FIELDS,
    **WALK_FIELDS,
    "_id": 1,
    RETAINED: 1,
    UNPROVEN: 1,
    CLAIMED: 1,
    "metadata.parents": 1,
}
"""What is read of each checkpoint to see which ones others need."""

FILTER_FIELDS: Document = {**KEY_FIELDS, "layout": 1, "type": 1, "metadata": 1}
"""What is read to compare a checkpoint's metadata."""


def common_fields(
    codec: Codec,
    parent_id: str | None,
    metadata: CheckpointMetadata,
    uncounted: Collection[str],
    created_at: datetime | None,
) -> Document:
    """The fields of a checkpoint document that every layout has, its key left out.

    Args:
        codec: The serializer.
        parent_id: The checkpoint that it follows.
        metadata: Its metadata.
        uncounted: The delta channels that only its ancestors hold, and that its graph does
            not count in the metadata.
        created_at: The TTL stamp, None without a TTL.
    """
    fields: Document = {_PARENT: parent_id, "metadata": codec.dumps_metadata(metadata)}
    if isinstance(run_id := metadata.get("run_id"), str):
        fields["run_id"] = run_id
    if created_at is not None:
        fields["created_at"] = created_at
    if uncounted:
        fields[_UNCOUNTED] = sorted(uncounted)
    return fields


def parent_id_of(document: Mapping[str, Any]) -> str | None:
    """The id of the checkpoint that another follows."""
    return document.get(_PARENT) or None


def parent_key_of(key: CheckpointKey, document: Mapping[str, Any]) -> CheckpointKey:
    """The key of the checkpoint that another, which has a parent, follows."""
    return key._replace(checkpoint_id=document[_PARENT])


def delta_channels(document: Mapping[str, Any]) -> set[str]:
    """The delta channels that a checkpoint does not hold itself, as its document tells.

    Some may never have been written: then they have no version.
    """
    return {*native_metadata(document, COUNTERS), *document.get(_UNCOUNTED, ())}


def manifest_of(document: Mapping[str, Any]) -> dict[str, ManifestEntry]:
    """The values of a checkpoint that lie in documents of their own, by channel.

    Raises:
        DamagedCheckpointError: This library did not write it so.
    """
    return _manifest(document, _MANIFEST)


def claimed_of(document: Mapping[str, Any]) -> dict[str, ManifestEntry]:
    """The manifest that a whole checkpoint is about to get, by channel.

    Raises:
        DamagedCheckpointError: This library did not write it so.
    """
    return _manifest(document, CLAIMED)


def _manifest(document: Mapping[str, Any], name: str) -> dict[str, ManifestEntry]:
    try:
        entries = [ManifestEntry.from_document(entry) for entry in document.get(name, ())]
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(document.get("checkpoint_id", ""), error.what) from None
    return {entry.channel: entry for entry in entries}


def entries_of(
    document: Mapping[str, Any], channels: Collection[str], *, in_pieces: bool
) -> Iterator[ManifestEntry]:
    """The manifest entries of some channels alone: those in pieces, or the others.

    This runs for every ancestor of a walk, so what is not asked for is not looked at.
    """
    for entry in document.get(_MANIFEST, ()):
        if entry["channel"] in channels and ("pieces" in entry) == in_pieces:
            yield ManifestEntry.from_document(entry)


def stored_value_keys(
    key: CheckpointKey, manifest: Mapping[str, ManifestEntry]
) -> Iterator[ValueKey]:
    """The documents that hold the values of a checkpoint's manifest."""
    return (one for entry in manifest.values() for one in entry.keys(key))


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What a saver knows of a checkpoint: for a put that follows it, and for its history.

    Attributes:
        layout: The layout of its thread.
        manifest: Its manifest, by channel.
        stamped: No stamped value that it refers to is stamped earlier; None when it was
            written without a TTL.
        exists: Whether the checkpoint is stored.
        digests: Large items of the graph's input that it holds, by digest.
        rekeyed: Its `rekeyed` field, None when it has none.
        steps: How many steps back the last snapshots of its delta channels lie, by channel,
            as its metadata tells: a hint.
        growths: How its values that grow are cut, by channel.
        bundle: What its bundle of small values holds.
        wrote: The channels that its step wrote.
        recent: The values that are inline although they are not small.
        inline: The channels whose values are inline, with their versions as text.
        kept: Those inline values that were read for a graph that does not know their channels.
        rebuilt: The delta channels that only its ancestors hold.
    """

    layout: Layout
    manifest: Mapping[str, ManifestEntry]
    stamped: datetime | None = None
    exists: bool = True
    digests: Mapping[bytes, ManifestEntry] = field(default_factory=dict)
    rekeyed: ObjectId | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    growths: Mapping[str, Growth] = field(default_factory=dict)
    bundle: Bundle | None = None
    wrote: frozenset[str] = frozenset()
    recent: frozenset[str] = frozenset()
    inline: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    rebuilt: frozenset[str] = frozenset()

    @classmethod
    def of(cls, document: Document) -> CheckpointInfo:
        """What a checkpoint's document tells.

        Raises:
            UnknownLayoutError: A newer release wrote it.
            DamagedCheckpointError: Its manifest is not one that this library has written.
        """
        manifest = manifest_of(document)
        return cls(
            layout_of(document),
            manifest,
            aware(document.get("created_at")),
            rekeyed=document.get(REKEYED),
            rebuilt=frozenset(delta_channels(document)),
        )

    @classmethod
    def absent(cls, layout: Layout) -> CheckpointInfo:
        """A checkpoint that is not stored, in a thread of this layout."""
        return cls(layout, {}, exists=False)

    def holds(self, channel: str, version: str) -> bool:
        """Whether it holds the value of a channel at a version, so that it is carried over."""
        entry = self.manifest.get(channel)
        live = self.bundle.live if self.bundle else {}
        held = entry.holds if entry else self.inline.get(channel, live.get(channel))
        return held == version

    def steps_for(self, channels: Sequence[str]) -> int | None:
        """How many steps back the snapshots of channels lie; None if one is not known."""
        known = [self.steps[channel] for channel in channels if channel in self.steps]
        return max(known) if known and len(known) == len(channels) else None


class Life(NamedTuple):
    """How long a checkpoint lives, and those that it relies on.

    Attributes:
        created_at: Its stamp; None for one that never expires.
        callers: The checkpoints, one in each namespace above, that called its graph.
    """

    created_at: datetime | None
    callers: tuple[CheckpointKey, ...] = ()

    @classmethod
    def of(cls, document: Document, callers: Iterable[CheckpointKey] = ()) -> Life:
        """What a checkpoint's document tells."""
        return cls(aware(document.get("created_at")), tuple(callers))
