"""What LangGraph's serialized bytes hold, found without making the objects they stand for."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import ormsgpack

__all__ = ["Reference", "classes_in", "opaque", "packed_again"]

Reference = tuple[str, str]
"""Module and name of a class; for what names none, an empty text and the kind's number."""


class _Extension(NamedTuple):
    """An object of a kind that msgpack does not know: its kind, and what it is made from."""

    code: int
    data: bytes


def opaque(data: bytes) -> Any:
    """Deserialize plain values alone: an object stays what it is made from, and is not made.

    Args:
        data: Bytes of the serializer's type `msgpack`.
    """
    return ormsgpack.unpackb(data, ext_hook=_Extension, option=ormsgpack.OPT_NON_STR_KEYS)


def packed_again(value: Any) -> bytes:
    """Serialize what `opaque` has deserialized, or a part of it."""
    return ormsgpack.packb(
        value, default=lambda one: ormsgpack.Ext(*one), option=ormsgpack.OPT_NON_STR_KEYS
    )


def classes_in(data: bytes) -> Counter[Reference]:
    """How many objects of which classes serialized bytes hold, in one another included."""
    found: Counter[Reference] = Counter()
    waiting = [opaque(data)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Extension):
            made_from = opaque(value.data)
            found[_reference(value.code, made_from)] += 1
            waiting.append(made_from)
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value)
            waiting.extend(value.values())
    return found


def _reference(code: int, made_from: Any) -> Reference:
    if isinstance(made_from, (list, tuple)) and len(made_from) > 1:
        module, name = made_from[:2]
        if isinstance(module, str) and isinstance(name, str):
            return module, name
    return "", str(code)
