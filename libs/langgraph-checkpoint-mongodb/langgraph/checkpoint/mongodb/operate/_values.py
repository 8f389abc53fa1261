"""verify: a thread's channel value documents, each looked at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bson import ObjectId

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.found import piece_body
from langgraph.checkpoint.mongodb._layout.keys import (
    CheckpointKey,
    Document,
    ValueKey,
    value_queries,
)
from langgraph.checkpoint.mongodb._layout.parts import RESERVED_IN_PARTS
from langgraph.checkpoint.mongodb._layout.states import DOOMED
from langgraph.checkpoint.mongodb._layout.ttl import aware
from langgraph.checkpoint.mongodb._layout.values import COPY_CHANNEL
from langgraph.checkpoint.mongodb.operate._findings import Finding
from langgraph.checkpoint.mongodb.operate._store import Store

__all__ = ["KnownValue", "Values", "bodies_of", "is_old_mark"]

# Bytes of pieces that are read at a time.
_READ_PIECES = 64


@dataclass(frozen=True, slots=True)
class KnownValue:
    """What was seen of a value document.

    Attributes:
        id: Its `_id`.
        size: Bytes of its value.
        parts: How many parts follow, as it says; None unless it is a first part.
        stamp: Its stamp.
    """

    id: Any
    size: int
    parts: int | None
    stamp: datetime | None


@dataclass(slots=True)
class Values:
    """The value documents of one thread.

    Attributes:
        known: What was seen of each.
        copying: Whether a copy to the thread is under way, or was ended by a crash.
    """

    known: dict[ValueKey, KnownValue] = field(default_factory=dict)
    copying: bool = False

    def read(self, store: Store, thread_id: str, long_ago: ObjectId) -> Iterator[Finding]:
        """Look at each document of a thread."""
        cursor = store.collection("values").find({"thread_id": thread_id})
        with cursor:
            for document in cursor:
                if document.get("channel") == COPY_CHANNEL:
                    self.copying = True
                    if document.get("claim", long_ago) < long_ago:
                        what = f"a copy of {document.get('source')!r} to it was not finished"
                        yield Finding("copy-unfinished", what, thread_id)
                    continue
                yield from self._see(store.context.codec, thread_id, document, long_ago)

    def _see(
        self, codec: Codec, thread_id: str, document: Document, long_ago: ObjectId
    ) -> Iterator[Finding]:
        key = ValueKey.of(document)
        where = (thread_id, str(key.checkpoint_ns))
        if not all(isinstance(one, str) for one in key[:4]):
            yield Finding("key", f"value document {document['_id']!r} has no whole key", *where)
            return
        if key in self.known:
            yield Finding("duplicate-value", f"{named(key)} is stored twice", *where)
        if is_old_mark(document.get(DOOMED), long_ago):
            yield Finding("doomed", f"{named(key)} was to be removed, and is there", *where)
        try:
            known = _known(codec, document, key)
        except Exception as error:
            # Whatever the serializer raises for bytes that are not its own.
            reason = f"{type(error).__name__}: {error}"
            yield Finding("value", f"{named(key)} cannot be read: {reason[:200]}", *where)
            data = document.get("value")
            size = len(data) if isinstance(data, bytes) else 0
            known = KnownValue(document["_id"], size, None, aware(document.get("created_at")))
        self.known[key] = known

    def unnamed(
        self, thread_id: str, referenced_values: set[ValueKey], long_ago: ObjectId
    ) -> Iterator[Finding]:
        """What nothing names, and has not for a while."""
        if self.copying:
            return
        for key in self.known.keys() - referenced_values:
            id_ = self.known[key].id
            if isinstance(id_, ObjectId) and id_ < long_ago:
                what = f"nothing names {named(key)}, {self.known[key].size:,} bytes"
                yield Finding("value-unnamed", what, thread_id, key.checkpoint_ns)


def _known(codec: Codec, document: Document, key: ValueKey) -> KnownValue:
    data: bytes = document["value"]
    loaded: Any = codec.unseal((document["type"], data))
    parts = None
    if key.part == 0 and key.channel in RESERVED_IN_PARTS:
        parts = len(loaded[1])
    return KnownValue(document["_id"], len(data), parts, aware(document.get("created_at")))


def bodies_of(store: Store, key: CheckpointKey, keys: Sequence[ValueKey]) -> list[bytes]:
    """The bodies of pieces, in their order; none of those that are gone meanwhile."""
    found: dict[ValueKey, Document] = {}
    for at in range(0, len(keys), _READ_PIECES):
        for query in value_queries(keys[at : at + _READ_PIECES]):
            for document in store.collection("values").find(query):
                found[ValueKey.of(document)] = document
    codec = store.context.codec
    return [piece_body(codec, key, found[one]) for one in keys if one in found]


def named(key: ValueKey) -> str:
    """A value document in words."""
    part = "" if key.part is None else f", part {key.part}"
    return f"the value of channel {key.channel!r} (version {key.version!r}{part})"


def is_old_mark(tokens: Any, long_ago: ObjectId) -> bool:
    """Whether all who marked a document began long ago."""
    if not isinstance(tokens, list) or not tokens:
        return False
    return all(isinstance(one, ObjectId) and one < long_ago for one in tokens)
