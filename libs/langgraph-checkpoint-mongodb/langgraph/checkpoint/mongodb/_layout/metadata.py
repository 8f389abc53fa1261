"""Checkpoint metadata as it is stored: keys native, leaves serialized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph.checkpoint.mongodb.errors import OldMetadataError

__all__ = ["dumps_metadata", "has_old_form", "loads_metadata", "native_metadata"]

# BSON nests at most 100 levels, and the document around the metadata takes some.
_MAX_NATIVE_DEPTH = 60


def dumps_metadata(serde: SerializerProtocol, metadata: Any, _depth: int = 0) -> Any:
    """Turn metadata into what a document holds: keys native, leaves serialized.

    Args:
        serde: The saver's serializer.
        metadata: A mapping of any depth, or a leaf.

    Returns:
        A dict for a dict whose keys BSON can hold; for everything else the
        serializer's `[type, bytes]` pair.
    """
    if _is_native(metadata) and _depth < _MAX_NATIVE_DEPTH:
        return {k: dumps_metadata(serde, v, _depth + 1) for k, v in metadata.items()}
    type_, data = serde.dumps_typed(metadata)
    return [type_, bytes(data)]


def _is_native(metadata: Any) -> bool:
    return isinstance(metadata, dict) and all(_is_native_key(key) for key in metadata)


def _is_native_key(key: Any) -> bool:
    if not isinstance(key, str):
        return False
    # With a NUL, too: BSON refuses it (`InvalidDocument`), as it did in older releases.
    # Half of a surrogate pair is no UTF-8; the serializer raises an error for it.
    return key.isascii() or not any("\ud800" <= char <= "\udfff" for char in key)


def loads_metadata(serde: SerializerProtocol, metadata: Any) -> CheckpointMetadata:
    """Read back what `dumps_metadata` made.

    Args:
        serde: The saver's serializer.
        metadata: The stored form: a document, or a `[type, bytes]` pair.

    Returns:
        The metadata, leaves deserialized.

    Raises:
        OldMetadataError: A release before 0.2.2 wrote it.
    """
    if isinstance(metadata, bytes):
        raise OldMetadataError
    if isinstance(metadata, Mapping):
        loaded = {key: loads_metadata(serde, value) for key, value in metadata.items()}
        return cast(CheckpointMetadata, loaded)
    return cast(CheckpointMetadata, serde.loads_typed((metadata[0], metadata[1])))


def has_old_form(metadata: Any) -> bool:
    """Whether a release before 0.2.2 wrote metadata: its leaves were bytes."""
    return isinstance(metadata, Mapping) and any(
        isinstance(value, bytes) or has_old_form(value) for value in metadata.values()
    )


def native_metadata(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The keys of a dict in a document's metadata that are stored natively."""
    # Plain dicts, as the ports read them. This runs for every ancestor, and to ask for a
    # `Mapping` would take longer than the rest.
    metadata = document.get("metadata")
    item = metadata.get(key) if isinstance(metadata, dict) else None
    return item if isinstance(item, dict) else {}
