"""The whole layout of releases up to 0.5.1, the only place that knows it.

One document holds the checkpoint with every channel value, and channel versions are
integers. A thread that began in this layout keeps it, so that the release that made it
can read and continue it still.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.packing import Unpacked

__all__ = ["as_strings", "integer_version", "read_whole", "strings_of", "whole_fields"]

_DIGITS = 16


def whole_fields(codec: Codec, checkpoint: Checkpoint) -> Document:
    """The `type` and `checkpoint` fields of a whole document."""
    type_, data = codec.dumps(_with_integer_versions(checkpoint))
    return {"type": type_, "checkpoint": data}


def read_whole(codec: Codec, document: Mapping[str, Any]) -> Unpacked:
    """Read the checkpoint of a whole document, every channel value included."""
    checkpoint = cast(Checkpoint, codec.loads((document["type"], document["checkpoint"])))
    return Unpacked(checkpoint, {}, 0, [])


def _with_integer_versions(checkpoint: Checkpoint) -> Checkpoint:
    """Count string versions as the integers they begin with.

    LangGraph asks for the first version of a namespace without saying of which thread;
    a namespace that is new in an old thread thus counts in strings while it runs.
    """
    kept: dict[str, Any] = dict(checkpoint)
    if "channel_versions" in kept:
        kept["channel_versions"] = _integers(kept["channel_versions"])
    if "versions_seen" in kept:
        kept["versions_seen"] = {
            node: _integers(seen) for node, seen in kept["versions_seen"].items()
        }
    return cast(Checkpoint, kept)


def _integers(versions: Mapping[str, Any]) -> dict[str, Any]:
    return {channel: integer_version(version) for channel, version in versions.items()}


def integer_version(version: Any) -> Any:
    """A channel version as a whole document has it."""
    counter = version.partition(".")[0] if isinstance(version, str) else ""
    return int(counter) if counter.isdecimal() else version


def as_strings(document: Mapping[str, Any], checkpoint: Checkpoint, line: Mapping[int, str]) -> Any:
    """Give a whole checkpoint string versions, as its thread has them in the split layout.

    An integer becomes the text that the line of descent has for it, or else a new one, drawn
    from what is stored: the same whenever it is done, and another one in another fork.

    Args:
        document: Its document.
        checkpoint: The checkpoint.
        line: The texts of its parent, by their integers.

    Raises:
        ValueError: It counts in something else.
    """
    drawn = hashlib.sha256(document["checkpoint_id"].encode() + b"\0")
    drawn.update(document["checkpoint"])
    suffix = int.from_bytes(drawn.digest()[:8], "big") % 10**_DIGITS

    def text(version: Any) -> Any:
        if isinstance(version, str):
            return version
        if type(version) is not int or version < 0:
            raise ValueError(
                f"Cannot migrate checkpoint {document['checkpoint_id']!r} of thread "
                f"{document['thread_id']!r}: it counts a channel's versions by {version!r}, where "
                "older releases have whole numbers. Leave the thread as it is."
            )
        return line.get(version) or f"{version:032d}.{suffix:0{_DIGITS}d}"

    def texts(versions: Mapping[str, Any]) -> dict[str, Any]:
        return {channel: text(version) for channel, version in versions.items()}

    kept: dict[str, Any] = dict(checkpoint)
    if kept.get("channel_versions") is not None:
        kept["channel_versions"] = texts(kept["channel_versions"])
    if kept.get("versions_seen") is not None:
        kept["versions_seen"] = {node: texts(seen) for node, seen in kept["versions_seen"].items()}
    return kept


def strings_of(checkpoint: Mapping[str, Any]) -> dict[int, str]:
    """The string versions of a checkpoint, by the integers they begin with."""
    return {
        counter: version
        for version in _versions(checkpoint)
        if type(counter := integer_version(version)) is int and isinstance(version, str)
    }


def _versions(checkpoint: Mapping[str, Any]) -> Iterator[Any]:
    for seen in (checkpoint.get("versions_seen") or {}).values():
        yield from seen.values()
    # Last, so that these count where both have an integer.
    yield from (checkpoint.get("channel_versions") or {}).values()
