"""Pending writes: their documents, which of them count, and how they are read back. Pure.

LangGraph takes a task that has pending writes for finished. What it wrote is one document
for each write, which may go in several messages, so a crash can leave a part of it. Each
document of several therefore tells which attempt stored it, and the last one how many there
are: only a complete attempt counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bson import ObjectId
from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry

__all__ = [
    "complete_attempts",
    "counting",
    "load_writes",
    "pending_writes",
    "refer",
    "referred",
    "write_documents",
    "write_order",
]

# Those fields of a value's key that a pending write's own key does not have.
_STORED = ("channel", "version", "part")


def write_documents(
    codec: Codec,
    key: CheckpointKey,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    stamp: datetime | None,
) -> list[Document]:
    """The documents of one task's pending writes, the special channels at their own `idx`."""
    documents = []
    for number, (channel, value) in enumerate(writes):
        type_, data = codec.dumps(value)
        document = {
            **key.query(),
            "task_id": task_id,
            "task_path": task_path,
            "idx": WRITES_IDX_MAP.get(channel, number),
            "channel": channel,
            "type": type_,
            "value": data,
        }
        if stamp is not None:
            document["created_at"] = stamp
        documents.append(document)
    ordinary = [document for document in documents if document["idx"] >= 0]
    if len(ordinary) > 1:
        attempt = ObjectId()
        for document in ordinary:
            document["attempt"] = attempt
        ordinary[-1]["count"] = len(ordinary)
    return documents


def refer(document: Document, entry: ManifestEntry) -> None:
    """Let a pending write refer to the stored bytes of its value instead of holding them.

    Args:
        document: The pending write.
        entry: An item of the input that its checkpoint's manifest refers to: it stays as long
            as that checkpoint, and so as long as the write.
    """
    (key,) = entry.keys(CheckpointKey(document["thread_id"], document["checkpoint_ns"], ""))
    document["value"] = b""
    named = {name: getattr(key, name) for name in _STORED}
    document["stored"] = {name: value for name, value in named.items() if value is not None}


def referred(document: Mapping[str, Any]) -> ValueKey | None:
    """The value document that holds a pending write's value, None where it holds it itself."""
    stored = document.get("stored")
    return None if stored is None else ValueKey.of({**document, "part": None, **stored})


def write_order(document: Mapping[str, Any]) -> tuple[str, str, int]:
    """Sort key of pending writes: the order in which a live step applies them."""
    return document.get("task_path", ""), document["task_id"], document["idx"]


def load_writes(codec: Codec, documents: Iterable[Mapping[str, Any]]) -> list[PendingWrite]:
    """Read pending writes back, in the order given."""
    return [
        (found["task_id"], found["channel"], codec.loads((found["type"], found["value"])))
        for found in documents
    ]


def pending_writes(codec: Codec, documents: Iterable[Document]) -> list[PendingWrite]:
    """Read those pending writes of a checkpoint back that count, in their order."""
    return load_writes(codec, counting(documents))


def counting(documents: Iterable[Document], *, filtered: bool = False) -> list[Document]:
    """Those pending writes of one checkpoint that count, each `(task_id, idx)` once.

    Args:
        documents: The documents, in any order.
        filtered: Whether they are those of some channels only. What is read so are the writes
            of a step that has ended, whose tasks had stored all they wrote.

    Returns:
        The documents in `(task_path, task_id, idx)` order: special ones, which replace each
        other, and of each task the writes of one attempt. Where the unique index is missing
        there may be several complete ones; the first counts.
    """
    tasks: defaultdict[tuple[str, str], list[Document]] = defaultdict(list)
    kept: list[Document] = []
    for document in documents:
        if document["idx"] < 0:
            kept.append(document)
        else:
            tasks[write_order(document)[:2]].append(document)
    for of_task in tasks.values():
        complete = [of_task] if filtered else complete_attempts(of_task)
        kept += complete[0] if complete else []
    once = {write_order(document): document for document in reversed(kept)}
    return sorted(once.values(), key=write_order)


def complete_attempts(documents: Iterable[Document]) -> list[list[Document]]:
    """The complete attempts to store what one task wrote, the first one first.

    Args:
        documents: The task's documents that have no negative `idx`.
    """
    attempts: defaultdict[ObjectId | None, list[Document]] = defaultdict(list)
    for document in documents:
        attempts[document.get("attempt")].append(document)
    return [
        found
        for attempt, found in sorted(attempts.items(), key=lambda item: str(item[0] or ""))
        # A single write, or one of an older release, has neither field.
        if attempt is None or len({one["idx"] for one in found}) == _count(found)
    ]


def _count(found: Iterable[Document]) -> int | None:
    """How many documents an attempt has, as its last one tells."""
    return next((one["count"] for one in found if "count" in one), None)
