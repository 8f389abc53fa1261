"""The serialized checkpoint of the split layout: nothing is in it twice.

A checkpoint names its channels four times over, and the same few version strings of 49
characters even more often: written out they would be a third of a small checkpoint. Here
each name and each version is stored once, in a table, and referred to by its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb._layout.bundle import Bundle
from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed
from langgraph.checkpoint.mongodb._layout.compression import compress, decompress
from langgraph.checkpoint.mongodb._layout.growing import Group, Growth
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError

__all__ = ["Unpacked", "is_packed", "pack_checkpoint", "split_fields", "unpack_checkpoint"]

# Put before the serializer's type, so that a release that does not know the split
# layout refuses the document ("Unknown serialization type") instead of showing a part.
# Without a "+", at which an EncryptedSerializer would divide it.
_TYPE_PREFIX = "split:"
_COMPRESSED_TYPE = "split-zlib"  # Of msgpack: values that grow are LangGraph's own bytes.

# The versions that `get_next_version` makes are stored as counter and suffix, while the
# counter is one that a serializer can hold.
_VERSION = re.compile(r"(0{13}\d{19})\.(\d{16})", re.ASCII)


# Fields of a checkpoint that have a place of their own, here or in the document.
_ELSEWHERE = frozenset(
    {"id", "channel_values", "channel_versions", "versions_seen", "updated_channels"}
)


class _Table(dict[Any, int]):
    """The places of distinct items, in order of appearance."""

    def __missing__(self, item: Any) -> int:
        place = self[item] = len(self)
        return place

    def places(self, items: Iterable[Any]) -> list[int]:
        """The places of items, new ones added."""
        return [self[item] for item in items]


class Unpacked(NamedTuple):
    """What a packed checkpoint holds.

    Attributes:
        checkpoint: The checkpoint with its inline channel values.
        growths: How the values that grow are cut, by channel.
        pairs: All pairs of its bundle, 0 without one.
        dead: The channels of which its bundle has only pairs that do not count.
    """

    checkpoint: Checkpoint
    growths: dict[str, Growth]
    pairs: int
    dead: list[str]


def split_fields(
    codec: Codec,
    checkpoint: Checkpoint,
    manifest: Iterable[ManifestEntry],
    inline: Mapping[str, Any],
    growths: Mapping[str, Growth],
    bundle: Bundle | None,
) -> Document:
    """The fields of a split document that depend on the channel values.

    Args:
        codec: The serializer.
        checkpoint: The checkpoint.
        manifest: The values that lie in documents of their own.
        inline: Those that lie in the checkpoint's.
        growths: How the values that grow are cut, by channel.
        bundle: What its bundle holds.
    """
    type_, data = pack_checkpoint(codec, checkpoint, inline, growths, bundle)
    channels = [entry.to_document() for entry in manifest]
    return {"layout": 2, "type": type_, "checkpoint": data, "channels": channels}


def pack_checkpoint(
    codec: Codec,
    checkpoint: Checkpoint,
    inline: Mapping[str, Any],
    growths: Mapping[str, Growth] | None = None,
    bundle: Bundle | None = None,
) -> Typed:
    """Serialize a checkpoint with its inline channel values.

    Args:
        codec: The serializer.
        checkpoint: The checkpoint; its `channel_values` are left out.
        inline: The channel values that go with it.
        growths: How the values that grow are cut, by channel.
        bundle: What its bundle holds.

    Returns:
        The document's `type`, refused by releases that do not know the layout, and
        its `checkpoint` bytes: a list of the name table, the version table, channel
        versions, versions seen, updated channels, inline values, whatever else the
        checkpoint has, and, where there are such, the cut values and the bundle.
    """
    rest = {name: value for name, value in checkpoint.items() if name not in _ELSEWHERE}
    names, versions = _Table(), _Table()

    def pack(of_channels: Mapping[str, Any]) -> list[list[int]]:
        # A version that is no text is told apart by its type as well: 1 and 1.0 are equal keys.
        keys = [one if type(one) is str else (type(one), one) for one in of_channels.values()]
        return [names.places(of_channels), versions.places(keys)]

    given: Mapping[str, Any] = checkpoint
    channel_versions, seen = given.get("channel_versions"), given.get("versions_seen")
    updated = given.get("updated_channels", _ABSENT)
    packed = [
        None if channel_versions is None else pack(channel_versions),
        None if seen is None else {node: pack(of_node) for node, of_node in seen.items()},
        _ABSENT if updated is _ABSENT else updated and names.places(updated),
        [names.places(inline), list(inline.values())],
    ]
    further: list[Any] = []
    if growths or bundle:
        growths = growths or {}
        further.append([_cut(names[channel], growth) for channel, growth in growths.items()])
    if bundle:
        further.append([bundle.pairs, names.places(sorted(bundle.dead))])
    table = [_shortened(version) for version in versions]
    type_, data = codec.dumps([list(names), table, *packed, rest, *further])
    if growths and type_ == "msgpack" and (compressed := compress(data)):
        return _COMPRESSED_TYPE, compressed
    return _TYPE_PREFIX + type_, data


_ABSENT = 0
"""Stands for a field that the checkpoint does not have, where None is a value."""


def _cut(place: int, growth: Growth) -> list[Any]:
    groups = [[group.count, group.size, group.digest] for group in growth.groups]
    return [place, growth.head, groups, growth.tail]


def is_packed(document: Mapping[str, Any]) -> bool:
    """Whether a document's type says that it is a packed checkpoint."""
    type_ = str(document.get("type"))
    return type_ == _COMPRESSED_TYPE or type_.startswith(_TYPE_PREFIX)


def unpack_checkpoint(codec: Codec, document: Mapping[str, Any]) -> Unpacked:
    """Read back a split checkpoint with its inline channel values.

    Args:
        codec: The serializer.
        document: The checkpoint document.

    Returns:
        The checkpoint, without the channel values that the manifest names, and what is needed
        to read those.
    """
    if document["type"] == _COMPRESSED_TYPE:
        typed = ("msgpack", _decompressed(document))
    else:
        typed = (document["type"].removeprefix(_TYPE_PREFIX), document["checkpoint"])
    names, table, channel_versions, seen, updated, inline, checkpoint, *further = codec.loads(typed)
    versions = [_restored(version) for version in table]

    name_of, version_of = names.__getitem__, versions.__getitem__

    def unpack(packed: list[list[int]]) -> dict[str, Any]:
        places, version_places = packed
        return dict(zip(map(name_of, places), map(version_of, version_places), strict=True))

    checkpoint["id"] = document["checkpoint_id"]
    if channel_versions is not None:
        checkpoint["channel_versions"] = unpack(channel_versions)
    if seen is not None:
        checkpoint["versions_seen"] = {node: unpack(packed) for node, packed in seen.items()}
    if updated != _ABSENT:
        checkpoint["updated_channels"] = updated and [*map(name_of, updated)]
    places, values = inline
    checkpoint["channel_values"] = dict(zip(map(name_of, places), values, strict=True))
    growths = {
        names[place]: Growth(head, tuple(Group(*group) for group in groups), tail)
        for place, head, groups, tail in (further[0] if further else ())
    }
    pairs, dead = further[1] if len(further) > 1 else (0, [])
    dead = [*map(name_of, dead)]
    return Unpacked(cast(Checkpoint, checkpoint), growths, pairs, dead)


def _decompressed(document: Mapping[str, Any]) -> bytes:
    try:
        return decompress(document["checkpoint"])
    except ValueError as error:
        raise DamagedCheckpointError(document["checkpoint_id"], str(error)) from None


def _shortened(key: Any) -> Any:
    if type(key) is not str:
        return key[1]
    match = _VERSION.fullmatch(key)
    return key if match is None else [int(match[1]), int(match[2])]


def _restored(version: Any) -> Any:
    if isinstance(version, list):
        counter, suffix = version
        return f"{counter:032d}.{suffix:016d}"
    return version
