"""The whole layout of releases up to 0.5.1, the only place that knows it.

One document holds the checkpoint with every channel value, and channel versions are
integers. A thread that began in this layout keeps it, so that the release that made it
can read and continue it still.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.packing import Unpacked

__all__ = ["read_whole", "whole_fields"]


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
