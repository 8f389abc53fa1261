"""The layouts that a thread may be stored in, one row each.

A further layout is a module beside `whole` and `packing` that reads and makes its documents,
and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.packing import Unpacked, split_fields, unpack_checkpoint
from langgraph.checkpoint.mongodb._layout.whole import read_whole, whole_fields
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError

__all__ = ["LAYOUTS", "SPLIT", "WHOLE", "Layout", "layout_of", "page_size"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the checkpoints of a thread are stored.

    Attributes:
        number: The documents' `layout`; 1 for those without the field.
        divides: Whether large values are documents of their own, and how a put cuts its
            values stands in the packed checkpoint.
        read: Deserializes a checkpoint with those values that its own document holds.
        fields: Makes the fields of a document that depend on the channel values: from the
            serializer, the checkpoint, and, where the layout divides, its plan.
        page_size: How many documents may be fetched at a time by their keys.
        first_fetch: How many are fetched at first in a search along parents.
    """

    number: int
    divides: bool
    read: Callable[[Codec, Mapping[str, Any]], Unpacked] = field(compare=False)
    fields: Callable[..., Document] = field(compare=False)
    page_size: int = field(compare=False)
    first_fetch: int = field(compare=False)


# One document holds all of the state, up to 16 MB.
WHOLE = Layout(1, divides=False, read=read_whole, fields=whole_fields, page_size=8, first_fetch=1)
SPLIT = Layout(
    2, divides=True, read=unpack_checkpoint, fields=split_fields, page_size=1024, first_fetch=8
)

LAYOUTS = {layout.number: layout for layout in (WHOLE, SPLIT)}


def layout_of(document: Mapping[str, Any]) -> Layout:
    """The layout of a checkpoint document.

    Raises:
        UnknownLayoutError: A newer release wrote it.
    """
    number = document.get("layout", 1)
    if number not in LAYOUTS:
        raise UnknownLayoutError(
            number, document.get("thread_id", "?"), document.get("checkpoint_id", "?")
        )
    return LAYOUTS[number]


def page_size(document: Mapping[str, Any]) -> int:
    """How many documents like this one may be fetched at a time, whoever wrote it."""
    return LAYOUTS.get(document.get("layout", 1), WHOLE).page_size
