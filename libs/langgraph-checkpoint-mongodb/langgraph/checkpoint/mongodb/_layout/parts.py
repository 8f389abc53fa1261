"""Values of reserved channels in parts, so that 16 MB is the limit of each value in them.

The graph's input (`__start__`, a mapping from channel to value) and the pending Sends
(`__pregel_tasks`, a list) gather values that people put in one by one. A large one is
split: part 0 says how the others are put together, a large item is a part by itself, in
its own serialization, and small items in between are gathered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.checkpoint.serde.types import TASKS

from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed

__all__ = [
    "LARGE_ITEM_BYTES",
    "RESERVED_IN_PARTS",
    "describe_part",
    "digest",
    "join_parts",
    "split_parts",
]

RESERVED_IN_PARTS = frozenset({"__start__", TASKS})
"""Channels that gather many values, each of which may be as large as a channel."""

LARGE_ITEM_BYTES = 256 * 1024
"""An item whose serialized form is larger is a part by itself."""

# Small items are gathered into parts of at most about this many bytes.
_GATHERED_BYTES = 4 * 1024 * 1024

_SPLIT_FROM_BYTES = 1024 * 1024

_ITEM, _GATHERED = 0, 1


def split_parts(codec: Codec, value: Any, undivided: Typed) -> list[Typed] | None:
    """Serialize the value of a reserved channel in parts.

    Args:
        codec: The serializer.
        value: The value.
        undivided: Its serialization in one.

    Returns:
        The parts in order; None for a value that is small or neither dict nor list.
    """
    if len(undivided[1]) < _SPLIT_FROM_BYTES or type(value) not in (dict, list):
        return None
    kind = type(value)
    pieces: list[tuple[int, Any]] = []
    parts: list[Typed] = []
    for gathered in _gather(codec, value):
        if isinstance(gathered, _Large):
            pieces.append((_ITEM, gathered.key))
            parts.append(gathered.typed)
        else:
            pieces.append((_GATHERED, None))
            items = dict(gathered) if kind is dict else [item for _, item in gathered]
            parts.append(codec.dumps(items))
    return [codec.dumps([kind is dict, pieces]), *parts]


class _Large:
    """An item that is a part by itself."""

    def __init__(self, key: Any, typed: Typed) -> None:
        self.key, self.typed = key, typed


def _gather(codec: Codec, value: Any) -> Iterator[_Large | list[tuple[Any, Any]]]:
    """The items in order, large ones alone, runs of small ones together."""
    gathered: list[tuple[Any, Any]] = []
    room = _GATHERED_BYTES
    for key, item in value.items() if type(value) is dict else enumerate(value):
        typed = codec.dumps(item)
        size = len(typed[1])
        if gathered and (size > LARGE_ITEM_BYTES or size > room):
            yield gathered
            gathered, room = [], _GATHERED_BYTES
        if size > LARGE_ITEM_BYTES:
            yield _Large(key if type(value) is dict else None, typed)
        else:
            gathered.append((key, item))
            room -= size
    if gathered:
        yield gathered


def join_parts(codec: Codec, parts: Sequence[Typed]) -> Any:
    """Put a value together again from its parts in their order."""
    is_dict, pieces = codec.loads(parts[0])
    value: Any = {} if is_dict else []
    for (piece, key), part in zip(pieces, parts[1:], strict=True):
        loaded = codec.loads(part)
        if piece == _ITEM and is_dict:
            value[key] = loaded
        elif piece == _ITEM:
            value.append(loaded)
        elif is_dict:
            value.update(loaded)
        else:
            value.extend(loaded)
    return value


def describe_part(codec: Codec, parts: Sequence[Typed], number: int) -> str:
    """Which part of a value this is, for a message."""
    is_dict, pieces = codec.loads(parts[0])
    kind, key = pieces[number - 1] if number else (_GATHERED, None)
    if kind == _ITEM and is_dict:
        return f"the document of its item {key!r}"
    if kind == _ITEM:
        item = sum(piece == _ITEM for piece, _ in pieces[:number])
        return f"the document of its large item {item}"
    return "a document of its small items"


def digest(typed: Typed) -> bytes:
    """A digest that tells serialized values apart."""
    hashed = hashlib.sha256(typed[0].encode())
    hashed.update(b"\0")
    hashed.update(typed[1])
    return hashed.digest()
