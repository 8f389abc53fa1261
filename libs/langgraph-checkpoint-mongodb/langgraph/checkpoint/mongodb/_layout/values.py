"""Channel value documents: under which version a value is stored, and what its documents hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Typed, document_size
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry

__all__ = [
    "COPY_CHANNEL",
    "payload_size",
    "value_documents",
    "value_version",
    "values_by_channel",
    "version_text",
]

COPY_CHANNEL = "__copy__"
"""Channel of the marker in a target that is being copied to; `version` is the source."""

# What `get_next_version` makes here and in the other Python savers: only this form
# is unique by itself. Any other version may be met by two forks.
_UNIQUE_VERSION = re.compile(r"\d{32}\.\S+")


def version_text(version: object) -> str:
    """A channel version as the text that keys hold; empty for none."""
    return "" if version is None else str(version)


def values_by_channel(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """The channel values of a checkpoint; none when they are no mapping, which no graph makes."""
    values = checkpoint.get("channel_values")
    return values if isinstance(values, Mapping) else {}


def value_version(version: object, checkpoint_id: str, *, private: bool = False) -> str:
    """The `version` under which a channel value is stored.

    Args:
        version: The channel's version; None for a channel that has none.
        checkpoint_id: The checkpoint that writes the value.
        private: Whether no other checkpoint may have the key, even if the version is unique.

    Returns:
        The version itself when it is unique, else the version and the checkpoint:
        two forks that count to the same number must not meet on one key.
    """
    if not private and isinstance(version, str) and _UNIQUE_VERSION.fullmatch(version):
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
