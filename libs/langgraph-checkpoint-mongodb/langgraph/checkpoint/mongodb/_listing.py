"""list: checkpoints page by page, each whole, no more held at a time than a bound allows.

Nothing stays open on the server between two pages. One checkpoint that cannot be read does
not hide the others: what comes before one that lacks a value is listed, and then the error;
those that another release wrote in a form unknown here are left out, and named at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.mongodb._commit import VISIBLE
from langgraph.checkpoint.mongodb._documents import LAYOUT, CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._port import Call
from langgraph.checkpoint.mongodb._queries import (
    ALL_FIELDS,
    KEY_FIELDS,
    ListQuery,
    Resume,
    matches,
    prefilter,
)
from langgraph.checkpoint.mongodb._reading import (
    Found,
    complete,
    fill,
    group_writes,
    key_of,
    query_of,
    read_writes,
)
from langgraph.checkpoint.mongodb.errors import (
    DamagedCheckpointError,
    MissingChannelValueError,
    MongoDBSaverError,
    OldMetadataError,
    UnknownLayoutError,
)

__all__ = ["Listing", "has_old_metadata"]

logger = logging.getLogger(__name__)

_PAGE, _PAGE_MOST = 100, 400
"""Checkpoints that a listing reads at a time, at first and later."""

_PAGE_VALUE_BYTES = 32 * 1024 * 1024
"""Serialized channel values that a listing holds at a time, one checkpoint's at least; and as
much of pending writes."""

_FILTER_PAGE, _FILTER_PAGE_MOST = 64, 1024
"""Checkpoints whose metadata a filtered listing looks at, at first and when few match."""

_WHOLE_PAGE = 8
"""Whole-layout checkpoints, each up to 16 MB, that are fetched by their keys at a time."""

_WRITES_ORDER = [("thread_id", 1), ("checkpoint_ns", 1), ("checkpoint_id", -1)]


class Listing:
    """A listing under way.

    Args:
        call: What the call works with.
        wanted: What is listed.
        most: How many checkpoints at most, None for all.

    Attributes:
        call: What the call works with.
        ended: Whether there is no further page.
    """

    def __init__(self, call: Call, wanted: ListQuery, most: int | None) -> None:
        self.call, self._wanted, self._most = call, wanted, most
        self._size = _PAGE
        self._resume: Resume | None = None
        self._known: Mapping[ValueKey, Document] = {}
        self._damaged: MongoDBSaverError | None = None
        self._unreadable: MongoDBSaverError | None = None
        self.ended = most == 0

    async def page(self) -> list[Found]:
        """Read the next checkpoints, newest first."""
        size = self._size if self._most is None else min(self._size, self._most)
        self._size = min(2 * self._size, _PAGE_MOST)
        if self._wanted.metadata:
            documents, self._resume = await _filtered(self.call, self._wanted, self._resume, size)
        else:
            documents = await self.call.io.find(
                "checkpoints",
                {**self._wanted.page(self._resume), **VISIBLE},
                ALL_FIELDS,
                sort=self._wanted.sort,
                most=size,
            )
            self._resume = _after(documents[-1]) if documents else None
        found = self._readable(documents)
        rows = await self._complete(found) if found else []
        if self._most is not None:
            self._most -= len(rows)
        self.ended = self._resume is None or self._damaged is not None or self._most == 0
        return rows

    def check(self) -> None:
        """Say after the rows of a page what could not be listed.

        Raises:
            MissingChannelValueError: The next checkpoint lacks a value.
            DamagedCheckpointError: Its manifest cannot be.
            UnknownLayoutError: All are listed but for some that a newer release wrote.
            OldMetadataError: The same, of a release before 0.2.2.
        """
        if self._damaged:
            raise self._damaged
        if self._unreadable and self._resume is None:
            raise self._unreadable

    def _readable(self, documents: Sequence[Document]) -> list[Found]:
        """Leave out what another release wrote in a form unknown here."""
        found = []
        for document in documents:
            try:
                if has_old_metadata(document.get("metadata")):
                    raise OldMetadataError
                found.append(Found.of(document))
            except (UnknownLayoutError, OldMetadataError) as error:
                self._unreadable = self._unreadable or error
            except DamagedCheckpointError as error:
                self._damaged = error
                break
        return found

    async def _complete(self, found: list[Found]) -> list[Found]:
        """Read values and writes, of as many as may be held at a time."""
        affordable = _affordable(found)
        writes, affordable = await self._writes(affordable)
        if len(affordable) < len(found):
            self._resume = _after(affordable[-1].document)
        rows: list[Found] = []
        await complete(self.call, affordable, self._known, writes, check=False)
        for one in affordable:
            try:
                whole = await fill(self.call, one)
            except MissingChannelValueError as error:
                self._damaged = error
                break
            if whole:
                rows.append(whole)
        self._known = rows[-1].values if rows else {}
        return rows

    async def _writes(
        self, found: list[Found]
    ) -> tuple[Mapping[CheckpointKey, list[Document]], list[Found]]:
        """The pending writes of the first checkpoints, as many as may be held at a time."""
        query = query_of([one.key for one in found])
        documents, all_of_them = await self.call.io.find_within(
            "writes", query, sort=_WRITES_ORDER, most_bytes=_PAGE_VALUE_BYTES
        )
        if not all_of_them:
            last = _writes_order(key_of(documents[-1]))
            whole = found[: _count_until(found, last)]
            if not whole:
                return await read_writes(self.call, [found[0].key]), found[:1]
            found = whole
        return group_writes(documents), found


class _Descending(str):
    """Text that sorts from the last to the first."""

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def _writes_order(key: CheckpointKey) -> tuple[str, str, _Descending]:
    return key.thread_id, key.checkpoint_ns, _Descending(key.checkpoint_id)


def _count_until(found: Sequence[Found], last: tuple[str, str, _Descending]) -> int:
    """How many checkpoints, from the first on, have all their writes before a place."""
    for count, one in enumerate(found):
        if not _writes_order(one.key) < last:
            return count
    return len(found)


def has_old_metadata(metadata: Any) -> bool:
    """Whether a release before 0.2.2 wrote metadata: its leaves were bytes."""
    return isinstance(metadata, Mapping) and any(
        isinstance(value, bytes) or has_old_metadata(value) for value in metadata.values()
    )


def _after(document: Document) -> Resume:
    key = key_of(document)
    return Resume(key.checkpoint_id, key.thread_id, key.checkpoint_ns)


def _affordable(found: list[Found]) -> list[Found]:
    """The first checkpoints whose values, each counted once, may be held at a time."""
    seen: set[ValueKey] = set()
    room = _PAGE_VALUE_BYTES
    for count, one in enumerate(found):
        for entry in one.parent.manifest.values():
            keys = entry.keys(one.key)
            new = sum(key not in seen for key in keys)
            seen.update(keys)
            room -= entry.size * new // len(keys)
        if room < 0 and count:
            return found[:count]
    return found


async def _filtered(
    call: Call, wanted: ListQuery, resume: Resume | None, size: int
) -> tuple[list[Document], Resume | None]:
    """The next checkpoints whose metadata match, compared here, value by value."""
    first = prefilter(call.codec, wanted.metadata)
    fields = {**KEY_FIELDS, "layout": 1, "type": 1, "metadata": 1}
    matching: list[Document] = []
    most = max(size, _FILTER_PAGE)
    while len(matching) < size:
        query = {**wanted.page(resume), **first, **VISIBLE}
        documents = await call.io.find("checkpoints", query, fields, sort=wanted.sort, most=most)
        most = min(4 * most, _FILTER_PAGE_MOST)
        resume = None
        for document in documents:
            resume = _after(document)
            if _matches(call, document, wanted.metadata):
                matching.append(document)
            if len(matching) == size:
                break
        if not documents:
            break
    if not matching:
        return [], resume
    if any(document.get("layout") != LAYOUT for document in matching[_WHOLE_PAGE:]):
        matching = matching[:_WHOLE_PAGE]
        resume = _after(matching[-1])
    keys = [key_of(document) for document in matching]
    documents = await call.io.find("checkpoints", query_of(keys), ALL_FIELDS)
    by_key = {key_of(document): document for document in documents}
    return [by_key[key] for key in keys if key in by_key], resume


def _matches(call: Call, document: Document, wanted: Mapping[str, Any]) -> bool:
    try:
        return matches(call.codec, document, wanted)
    except OldMetadataError as error:
        logger.warning("A listing passes over a checkpoint of %s: %s", key_of(document), error)
        return False
