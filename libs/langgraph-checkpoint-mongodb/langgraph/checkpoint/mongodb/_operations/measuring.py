"""Measuring what a put is about to store: what does not fit fails before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed, document_size, estimate_size
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.parts import describe_part
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan
from langgraph.checkpoint.mongodb._layout.states import UNPROVEN
from langgraph.checkpoint.mongodb._layout.values import payload_size, value_documents
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb.errors import ChannelTooLargeError, CheckpointTooLargeError

__all__ = [
    "OFFLOAD_ENOUGH",
    "check_checkpoint",
    "check_payload",
    "measured",
    "size_of",
]

OFFLOAD_ENOUGH = 1024 * 1024
"""No more of a value's bytes are counted to choose where to serialize it."""

_VALUE_DOCUMENT = "its value document"

# No server's limit is smaller.
_CHECK_FROM = 512 * 1024


def size_of(values: Mapping[str, Any]) -> Callable[[], int]:
    """What tells about how many bytes are to be serialized."""
    return lambda: estimate_size(*values.values(), enough=OFFLOAD_ENOUGH)


async def measured(
    context: Context, key: CheckpointKey, plan: PutPlan, fields: Document, stamp: datetime | None
) -> list[Document]:
    """The value documents of a split checkpoint, all found small enough, as is its own.

    Args:
        context: What the call works with.
        key: The checkpoint's key.
        plan: Where its values go.
        fields: The other fields of its document.
        stamp: The TTL stamp of its values, None without a TTL.

    Raises:
        ChannelTooLargeError: A value is not.
        CheckpointTooLargeError: The checkpoint is not.
    """
    documents: list[Document] = []
    for entry, parts in plan.written:
        of_entry = value_documents(key, entry, parts, stamp)
        for document in of_entry:
            await check_payload(context, document, partial(_where, context.codec, parts, document))
        documents += of_entry
    for channel, size in plan.sizes.items():
        await _check_cut(context, key, plan.manifest()[channel], size, stamp)
    what = "its metadata, or the number of its channels"
    # As it is until its parent has been found.
    await check_checkpoint(context, key, {**fields, UNPROVEN: True}, what)
    return documents


async def _check_cut(
    context: Context, key: CheckpointKey, entry: ManifestEntry, size: int, stamp: datetime | None
) -> None:
    """Make sure that a value in pieces is no larger than one document could hold."""
    if size < _CHECK_FROM:
        return
    undivided = ManifestEntry(entry.channel, entry.holds, size)
    (document,) = value_documents(key, undivided, [("msgpack", b"")], stamp)
    size += payload_size(document)
    limit = await context.io.document_limit(size)
    if size > limit:
        raise ChannelTooLargeError(entry.channel, size, limit, _VALUE_DOCUMENT)


def _where(codec: Codec, parts: Sequence[Typed], document: Document) -> str:
    if "part" not in document:
        return _VALUE_DOCUMENT
    return describe_part(codec, parts, document["part"])


async def check_payload(context: Context, document: Document, where: Callable[[], str]) -> None:
    """Make sure that a channel value or pending write document can be stored.

    Raises:
        ChannelTooLargeError: It cannot.
    """
    size = payload_size(document)
    limit = await context.io.document_limit(size)
    if size > limit:
        raise ChannelTooLargeError(document["channel"], size, limit, where())


async def check_checkpoint(
    context: Context, key: CheckpointKey, fields: Document, what: str
) -> None:
    """Make sure that a checkpoint document can be stored.

    Raises:
        CheckpointTooLargeError: It cannot, mostly because of `what`.
    """
    document = {**key.query(), **fields, "checkpoint": b""}
    size = document_size(document, fields["checkpoint"])
    limit = await context.io.document_limit(size)
    if size > limit:
        raise CheckpointTooLargeError(what, size, limit, key.checkpoint_id)
