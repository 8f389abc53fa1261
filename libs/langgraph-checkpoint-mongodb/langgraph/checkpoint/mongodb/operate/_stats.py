"""stats: how much there is, how it grows, and what comes near the limit of one document."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Generic, TypeVar

from langgraph.checkpoint.mongodb._database.driver import USUAL_LIMIT
from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb.operate._store import (
    DOCUMENT_BYTES,
    ROLES,
    Progress,
    Store,
    made_at,
)
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = [
    "WHOLE_STATE",
    "Bucket",
    "ChannelSize",
    "CollectionSize",
    "Day",
    "Stats",
    "ThreadSize",
    "stats",
]

T = TypeVar("T")

WHOLE_STATE = "(whole state)"
"""Stands for the channel where the whole layout keeps all values in one document."""

_DAYS = 30

# A thread of up to 1 KiB, 4 KiB, 16 KiB ...
_FIRST_BUCKET, _BUCKET_FACTOR = 1024, 4

# What may be near the limit: a quarter of it, or there within a quarter of a year.
_NEAR_BYTES = USUAL_LIMIT // 4
_NEAR = timedelta(days=90)
_WORTH_A_LOOK = 1024 * 1024
_LEAST_TIME = timedelta(minutes=10)

_FOREVER = timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class CollectionSize:
    """One collection.

    Attributes:
        role: `checkpoints`, `writes` or `values`.
        name: Its name.
        documents: How many there are.
        bytes: Their bytes.
        stored: Bytes on disk, compressed.
        indexes: Bytes of its indexes.
    """

    role: str
    name: str
    documents: int
    bytes: int
    stored: int
    indexes: int


@dataclass(frozen=True, slots=True)
class ThreadSize:
    """A thread: its checkpoints, its bytes in all collections, and its layout."""

    thread_id: str
    checkpoints: int
    bytes: int
    layout: str


@dataclass(frozen=True, slots=True)
class ChannelSize:
    """The newest value of a channel, or a whole state.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        channel: The channel, or `WHOLE_STATE`.
        bytes: Its serialized bytes.
        a_day: Bytes that it grew by a day, from its first to its newest checkpoint.
        full_at: When it reaches the limit of one document if it goes on so; None if never.
    """

    thread_id: str
    checkpoint_ns: str
    channel: str
    bytes: int
    a_day: int = 0
    full_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Day:
    """What was written on a day (UTC) and is still there."""

    day: date
    checkpoints: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many threads have up to so many bytes, and more than the bucket before."""

    up_to: int
    threads: int


@dataclass(slots=True)
class Stats:
    """What there is.

    Attributes:
        collections: The three collections.
        threads: Threads with checkpoints.
        whole_threads: Those of them in the old layout, in part or all.
        checkpoints: Checkpoints.
        whole_checkpoints: Those in the old layout.
        days: The last 30 days on which something was written that is there still, oldest first.
        histogram: Threads by their bytes.
        largest_threads: The threads with the most bytes.
        largest_channels: The largest newest values.
        near_limit: Those that are near the limit of one document, or will be; soonest first.
    """

    collections: list[CollectionSize]
    threads: int = 0
    whole_threads: int = 0
    checkpoints: int = 0
    whole_checkpoints: int = 0
    days: list[Day] = field(default_factory=list)
    histogram: list[Bucket] = field(default_factory=list)
    largest_threads: list[ThreadSize] = field(default_factory=list)
    largest_channels: list[ChannelSize] = field(default_factory=list)
    near_limit: list[ChannelSize] = field(default_factory=list)


def collection_sizes(store: Store) -> list[CollectionSize]:
    """What the server knows of the collections, without reading them."""
    found = []
    for role in ROLES:
        one = store.statistics(role)
        sizes = [one.get(name, 0) for name in ("count", "size", "storageSize", "totalIndexSize")]
        found.append(CollectionSize(role, store.collection(role).name, *sizes))
    return found


def stats(
    saver: MongoDBSaver, *, largest: int = 10, quick: bool = False, progress: Progress | None = None
) -> Stats:
    """Count threads, checkpoints and bytes.

    Reads every document once on the server, in the order of an index; what comes from there
    are sizes. What is held does not grow with the collections.

    Args:
        saver: The saver whose collections are read.
        largest: How many of the largest to name.
        quick: Say only what needs no reading: counts and bytes of the collections.
        progress: Called with the number of documents that were read since.

    Returns:
        What there is.
    """
    store = Store(saver)
    counted = Stats(collection_sizes(store))
    if quick:
        return counted
    counting = _Counting(counted, largest)
    for thread_id, documents in _by_thread(store, progress):
        counting.count(thread_id, documents)
    counting.finish()
    return counted


def _by_thread(
    store: Store, progress: Progress | None
) -> Iterator[tuple[str, Iterator[tuple[Role, Document]]]]:
    """All documents, thread by thread, from three streams at once."""
    fields: dict[Role, Document] = {
        "checkpoints": {"checkpoint_ns": 1, "layout": 1, "channels.channel": 1, "channels.size": 1},
        "writes": {},
        "values": {},
    }

    def rows(role: Role) -> Iterator[tuple[str, int, Role, Document]]:
        wanted = {**fields[role], "thread_id": 1, "size": DOCUMENT_BYTES}
        for count, document in enumerate(store.stream(role, wanted), 1):
            yield str(document["thread_id"]), ROLES.index(role), role, document
            if progress and count % 1000 == 0:
                progress(1000)

    merged = heapq.merge(*(rows(role) for role in ROLES), key=lambda row: row[:2])
    for thread_id, group in itertools.groupby(merged, key=lambda row: row[0]):
        yield thread_id, ((role, document) for _, _, role, document in group)


class _Top(Generic[T]):
    """The largest few of many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[Any, int, T]] = []
        self._count = itertools.count()

    def add(self, size: Any, item: T) -> None:
        heapq.heappush(self._heap, (size, -next(self._count), item))
        if len(self._heap) > self._most:
            heapq.heappop(self._heap)

    def items(self) -> list[T]:
        return [item for _, _, item in sorted(self._heap, reverse=True)]


class _Counting:
    """Counts thread by thread; holds one namespace's channels at a time, and some of the largest.

    Args:
        counted: Where the counts go.
        largest: How many of the largest to keep.
    """

    def __init__(self, counted: Stats, largest: int) -> None:
        self._counted = counted
        self._threads: _Top[ThreadSize] = _Top(largest)
        self._channels: _Top[ChannelSize] = _Top(largest)
        self._near: _Top[ChannelSize] = _Top(largest)
        self._days: dict[date, list[int]] = {}
        self._buckets: Counter[int] = Counter()

    def count(self, thread_id: str, documents: Iterable[tuple[Role, Document]]) -> None:
        total = checkpoints = whole = 0
        namespace = _Namespace(thread_id, "")
        for role, document in documents:
            total += document["size"]
            self._count_day(role, document)
            if role != "checkpoints":
                continue
            checkpoints += 1
            whole += document.get("layout") != SPLIT.number
            if document["checkpoint_ns"] != namespace.name:
                self._end(namespace)
                namespace = _Namespace(thread_id, str(document["checkpoint_ns"]))
            namespace.see(document)
        self._end(namespace)
        if not checkpoints:
            return
        self._counted.threads += 1
        self._counted.whole_threads += whole > 0
        self._counted.checkpoints += checkpoints
        self._counted.whole_checkpoints += whole
        layout = "whole" if whole == checkpoints else "split" if not whole else "both"
        self._threads.add(total, ThreadSize(thread_id, checkpoints, total, layout))
        bucket = _FIRST_BUCKET
        while bucket < total:
            bucket *= _BUCKET_FACTOR
        self._buckets[bucket] += 1

    def _count_day(self, role: Role, document: Document) -> None:
        at = made_at(document)
        if at is None:
            return
        day = self._days.setdefault(at.date(), [0, 0])
        day[0] += role == "checkpoints"
        day[1] += document["size"]
        if len(self._days) > _DAYS:
            del self._days[min(self._days)]

    def _end(self, namespace: _Namespace) -> None:
        for channel in namespace.channels():
            self._channels.add(channel.bytes, channel)
            left = _FOREVER
            if channel.full_at is not None and namespace.newest is not None:
                left = channel.full_at - namespace.newest
            soon = left < _NEAR and channel.bytes >= _WORTH_A_LOOK
            if soon or channel.bytes >= _NEAR_BYTES:
                self._near.add((-left, channel.bytes), channel)

    def finish(self) -> None:
        counted = self._counted
        counted.days = [Day(day, *self._days[day]) for day in sorted(self._days)]
        counted.histogram = [Bucket(up_to, self._buckets[up_to]) for up_to in sorted(self._buckets)]
        counted.largest_threads = self._threads.items()
        counted.largest_channels = self._channels.items()
        counted.near_limit = self._near.items()


class _Namespace:
    """The channels of one namespace, whose checkpoints are seen from the newest to the oldest."""

    def __init__(self, thread_id: str, name: str) -> None:
        self.thread_id, self.name = thread_id, name
        self.newest: datetime | None = None
        self._newest: dict[str, int] = {}
        self._first: dict[str, tuple[int, datetime]] = {}

    def see(self, document: Document) -> None:
        at = made_at(document)
        if document.get("layout") == SPLIT.number:
            sizes = {one["channel"]: one["size"] for one in document.get("channels", ())}
        else:
            sizes = {WHOLE_STATE: document["size"]}
        if self.newest is None:
            self.newest, self._newest = at, sizes
        if at is not None:
            known = self._newest.keys() & sizes.keys()
            self._first |= {channel: (sizes[channel], at) for channel in known}

    def channels(self) -> Iterator[ChannelSize]:
        """The newest values, and how they grow."""
        for channel, size in self._newest.items():
            one = ChannelSize(self.thread_id, self.name, channel, size)
            first, since = self._first.get(channel, (size, self.newest))
            if self.newest is None or since is None or self.newest - since < _LEAST_TIME:
                yield one
                continue
            a_day = (size - first) / ((self.newest - since) / timedelta(days=1))
            full_at = None
            if a_day > 0 and (days := (USUAL_LIMIT - size) / a_day) < _FOREVER.days:
                full_at = self.newest + timedelta(days=max(days, 0))
            yield ChannelSize(self.thread_id, self.name, channel, size, int(a_day), full_at)
