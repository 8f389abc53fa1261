"""Helpers that the published package exposes and someone may import."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from pymongo.driver_info import DriverInfo

from langgraph.checkpoint.mongodb.errors import OldMetadataError

__all__ = ["DRIVER_METADATA", "dumps_metadata", "loads_metadata"]


def _version() -> str | None:
    # An application that is frozen may come without the package's metadata.
    try:
        return version("langgraph-checkpoint-mongodb")
    except PackageNotFoundError:
        return None


DRIVER_METADATA = DriverInfo(name="Langgraph", version=_version())

# BSON nests at most 100 levels, and the document around the metadata takes some.
_MAX_NATIVE_DEPTH = 60


def _append_client_metadata(client: Any) -> None:
    """Name this library in what `client` tells its server about itself."""
    append = getattr(client, "append_metadata", None)
    # Before PyMongo 4.14 the attribute is a database of that name.
    if inspect.ismethod(append):
        told = client.options.pool_options.metadata["driver"]["name"].split("|")
        # 4.14.0 says it once for each saver on the client, until the server refuses that much.
        if DRIVER_METADATA.name not in told:
            append(DRIVER_METADATA)


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
    # Half of a surrogate pair is no UTF-8; the serializer says so in its own words.
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
