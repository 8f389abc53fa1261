"""How a listing's filter is compared with stored metadata: by value, or by the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import Document

__all__ = ["matches", "prefilter"]


def matches(codec: Codec, stored: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether stored metadata equals what a filter asks for, value by value."""
    return all(codec.loads_metadata_item(stored, key) == value for key, value in wanted.items())


def prefilter(codec: Codec, wanted: Mapping[str, Any]) -> Document:
    """A query that the server can decide and that passes every match.

    Only text, and only where both sides are plain msgpack, has one serialized form;
    everything else passes and is compared by value afterwards.
    """
    query: list[Document] = []
    for key, value in wanted.items():
        if type(value) is not str or not key or "." in key or "\0" in key:
            continue
        type_, data = codec.dumps(value)
        if type_ == "msgpack":
            path = f"metadata.{key}"
            query.append({"$or": [{f"{path}.0": {"$ne": type_}}, {f"{path}.1": data}]})
    return {"$and": query} if query else {}
