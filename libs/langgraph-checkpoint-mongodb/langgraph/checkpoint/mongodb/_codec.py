"""The serializer's calls, and the sizes that decide where a value goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import bson
from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph.checkpoint.mongodb.utils import dumps_metadata, loads_metadata

__all__ = ["Codec", "Typed", "document_size", "estimate_size", "native_metadata", "native_size"]

Typed = tuple[str, bytes]
"""A serialized value: the serializer's type and its bytes."""

# Types of LangGraph's serializer whose values come out of a container's serialization as
# they come out of their own. Others (a pickle, a bytearray) do not.
_NATIVE_TYPES = frozenset({"msgpack", "null", "bytes"})

# `_id`, which the driver or the server adds: type, name, ObjectId.
_OBJECT_ID_BYTES = 1 + 4 + 12

# How many items a size estimate looks at before it calls a value large.
_ESTIMATE_ITEMS = 512


class Codec:
    """Serializes with the saver's serializer of this moment.

    Made anew for each call: `with_allowlist` swaps a clone's `serde`, so nothing
    derived from it may be kept.

    Args:
        serde: The saver's serializer.
    """

    __slots__ = ("_serde",)

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde

    def dumps(self, value: Any) -> Typed:
        """Serialize one value into its type and bytes."""
        type_, data = self._serde.dumps_typed(value)
        return type_, data if type(data) is bytes else bytes(data)

    def loads(self, typed: Typed) -> Any:
        """Deserialize one value from its type and bytes."""
        return self._serde.loads_typed(typed)

    def is_native(self, typed: Typed) -> bool:
        """Whether a value may be serialized inside a container and be the same again."""
        type_ = typed[0]
        return type_.partition("+")[0] in _NATIVE_TYPES or type_ == self.dumps([])[0]

    def dumps_metadata(self, metadata: Mapping[str, Any]) -> Any:
        """Serialize checkpoint metadata: keys native, leaves as typed pairs."""
        return dumps_metadata(self._serde, metadata)

    def loads_metadata(self, document: Mapping[str, Any]) -> CheckpointMetadata:
        """Deserialize the metadata of a checkpoint document."""
        stored = document["metadata"]
        if isinstance(stored, bytes):
            # The JavaScript saver serializes it in one, as it does the checkpoint.
            return cast(CheckpointMetadata, self.loads((document["type"], stored)))
        return loads_metadata(self._serde, stored)

    def loads_metadata_item(self, document: Mapping[str, Any], key: str) -> Any:
        """Deserialize one item of a document's metadata, None when it is absent."""
        stored = document["metadata"]
        if not isinstance(stored, Mapping):
            return self.loads_metadata(document).get(key)
        return loads_metadata(self._serde, stored[key]) if key in stored else None


def native_metadata(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The keys of a dict in a document's metadata that are stored natively."""
    metadata = document.get("metadata")
    item = metadata.get(key) if isinstance(metadata, Mapping) else None
    return item if isinstance(item, Mapping) else {}


def native_size(value: Any) -> int | None:
    """Bytes that a plain scalar takes at most when serialized, None for anything else.

    Spares serializing the scalars of a small agent only to learn that they are small.
    Text in other scripts is counted as the longest it can be.
    """
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return 9
    if kind is int:
        return 9 if -(2**63) <= value < 2**63 else None
    if kind is str:
        return 5 + (len(value) if value.isascii() else 4 * len(value))
    return None


def document_size(document: Mapping[str, Any], payload: bytes = b"") -> int:
    """Bytes that a document takes in the server.

    Args:
        document: The document, without its `_id`.
        payload: Bytes of one binary field that `document` holds empty: a large
            value is measured without being copied.

    Returns:
        The length of the BSON, `_id` included.
    """
    return len(bson.encode(document)) + len(payload) + _OBJECT_ID_BYTES


def estimate_size(*values: Any, enough: int) -> int:
    """Guess how many bytes values take, cheaply, for the choice to leave the event loop.

    Args:
        values: Anything.
        enough: Stop when this many bytes have been seen.

    Returns:
        A rough lower bound in bytes, `enough` for anything with many items.
    """
    size, seen = 0, 0
    stack = list(values)
    while stack and size < enough:
        item = stack.pop()
        seen += 1
        if seen > _ESTIMATE_ITEMS:
            return enough
        if isinstance(item, (str, bytes, bytearray, memoryview)):
            size += len(item)
        elif isinstance(item, (Mapping, list, tuple, set, frozenset, deque)):
            if len(item) > _ESTIMATE_ITEMS:
                return enough
            stack.extend(item.values() if isinstance(item, Mapping) else item)
        elif isinstance(nbytes := getattr(item, "nbytes", None), int):
            size += nbytes
        elif hasattr(item, "__dict__"):
            stack.append(vars(item))
        else:
            size += 8
    return size
