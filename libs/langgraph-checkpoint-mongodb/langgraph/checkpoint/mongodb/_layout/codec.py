"""Calls of the serializer, and the sizes that decide where a value is stored."""

from __future__ import annotations

import hashlib
from collections import UserDict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import bson
from langgraph.checkpoint.base import CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._layout.compression import compress, decompress
from langgraph.checkpoint.mongodb._layout.metadata import dumps_metadata, loads_metadata
from langgraph.checkpoint.mongodb._layout.serialized import classes_in

__all__ = ["Codec", "Typed", "document_size", "estimate_size", "explained", "native_size"]

Typed = tuple[str, bytes]
"""A serialized value: the serializer's type and its bytes."""

# Types of LangGraph's serializer whose values come out of a container's serialization as
# they come out of their own. Others (a pickle, a bytearray) do not.
_NATIVE_TYPES = frozenset({"msgpack", "null", "bytes"})

# The type of a piece that is compressed: none of LangGraph's own.
_COMPRESSED = "zlib"

# `_id`, which the driver or the server adds: type, name, ObjectId.
_OBJECT_ID_BYTES = 1 + 4 + 12

# How many items a size estimate looks at, and how many of one container.
_ESTIMATE_ITEMS = 64
_SAMPLE = 8


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

    def may_be_cut(self) -> bool:
        """Whether bytes of this serializer may be cut, and joined again.

        Those of LangGraph's own may, also within its encryption: they tell by themselves what
        they are, and those of a list that has grown begin with those from before.
        """
        serde = self._in_clear()
        kind = type(serde)
        return (
            isinstance(serde, JsonPlusSerializer)
            and kind.dumps_typed is JsonPlusSerializer.dumps_typed
            and kind.loads_typed is JsonPlusSerializer.loads_typed
        )

    def encrypts(self) -> bool:
        """Whether bytes that were cut are encrypted when they are sealed."""
        return type(self._serde) is EncryptedSerializer

    def _in_clear(self) -> SerializerProtocol:
        serde = self._serde
        return serde.serde if type(serde) is EncryptedSerializer else serde

    def dumps_in_clear(self, value: Any) -> bytes:
        """Serialize a list or dict into bytes that may be cut."""
        type_, data = self._in_clear().dumps_typed(value)
        return bytes(data) if type_ == "msgpack" else b""

    def loads_in_clear(self, data: bytes) -> Any:
        """Deserialize bytes that were joined."""
        return self._in_clear().loads_typed(("msgpack", data))

    def in_clear(self, typed: Typed) -> Typed:
        """A serialized value without its encryption."""
        type_, data = typed
        if type(self._serde) is EncryptedSerializer and "+" in type_:
            type_, _, cipher = type_.partition("+")
            data = self._serde.cipher.decrypt(cipher, data)
        return type_, data

    def fingerprint(self, value: Any) -> bytes:
        """What is the same for equal values, also where their encryption differs each time."""
        type_, data = self._in_clear().dumps_typed(value)
        hashed = hashlib.sha256(type_.encode() + b"\0")
        hashed.update(data)
        return hashed.digest()

    def lost_in_loading(self, stored: Typed, loaded: Any) -> list[str]:
        """The classes whose objects a value does not hold as it was deserialized.

        LangGraph's serializer makes something else of what it cannot import, or may not.

        Args:
            stored: The serialized value.
            loaded: What it was deserialized into.

        Returns:
            The classes' names, none if all is there, or if the bytes do not tell.
        """
        type_, data = self.in_clear(stored)
        if type_ != "msgpack" or not self.may_be_cut():
            return []
        again = self.dumps_in_clear(loaded)
        if again == data:
            return []
        lost = classes_in(data) - classes_in(again)
        return sorted(f"{module}.{name}" for module, name in lost)

    def seal(self, data: bytes) -> Typed:
        """Make bytes that were cut ready to be stored: encrypted where values are, or shorter."""
        if not self.encrypts() and (compressed := compress(data)):
            return _COMPRESSED, compressed
        return self.dumps(data)

    def unseal(self, typed: Typed) -> bytes:
        """The bytes that were sealed.

        Raises:
            ValueError: They were compressed, and are damaged.
        """
        type_, data = typed
        return decompress(data) if type_ == _COMPRESSED else cast(bytes, self.loads(typed))

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
        """Deserialize one item of a document's metadata, None when it is absent.

        Args:
            document: The checkpoint document.
            key: The item's key, or keys of dicts in one another with dots between.
        """
        stored = document["metadata"]
        if not isinstance(stored, Mapping):
            return self.loads_metadata(document).get(key)
        while key not in stored:
            outer, dot, key = key.partition(".")
            stored = stored.get(outer)
            if not dot or not isinstance(stored, Mapping):
                return None
        return loads_metadata(self._serde, stored[key])


@contextmanager
def explained(codec: Codec, values: Iterable[tuple[str, Any]], thread_id: str) -> Iterator[None]:
    """Note on an error of the serializer for which channel's value, of which thread, it came."""
    try:
        yield
    except Exception as error:
        for channel, value in values:
            try:
                codec.dumps(value)
            except Exception:
                error.add_note(
                    f"This is about the value of channel {channel!r} of thread {thread_id!r}, a "
                    f"{type(value).__module__}.{type(value).__qualname__}. Nothing was written."
                )
        raise


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

    Looks at a few dozen items, the outermost first, and takes the first few of a container
    for the others. A wrong guess costs a thread, or a few milliseconds of the event loop.

    Args:
        values: Anything.
        enough: Stop when this many bytes have been counted.

    Returns:
        A rough number of bytes.
    """
    size = 0.0
    queue = deque((value, 1.0) for value in values)
    for _ in range(_ESTIMATE_ITEMS + len(values)):
        if not queue or size >= enough:
            break
        item, weight = queue.popleft()
        if isinstance(item, (str, bytes, bytearray, memoryview)):
            size += weight * len(item)
        elif isinstance(item, (dict, list, tuple, set, frozenset, deque, UserDict)):
            items = item.values() if isinstance(item, (dict, UserDict)) else item
            some = list(islice(items, _SAMPLE))
            queue.extend((one, weight * len(item) / len(some)) for one in some)
        elif attributes := getattr(item, "__dict__", None):
            queue.append((dict(attributes), weight))
        elif isinstance(nbytes := getattr(item, "nbytes", None), int):
            size += weight * nbytes
        else:
            size += weight * 8
    return int(size)
