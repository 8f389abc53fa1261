"""What a saver remembers of its threads, to spare the read before a write, or a second one.

Bounded, shared by the clones of a saver, and never trusted for a value's existence: a
checkpoint that carries values over proves in the same command that its parent is still
there (`_operations.commit`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from bson import ObjectId

from langgraph.checkpoint.mongodb._database.forks import ForkSafeLock
from langgraph.checkpoint.mongodb._layout.bundle import Bundle
from langgraph.checkpoint.mongodb._layout.documents import (
    CheckpointKey,
    Document,
    ManifestEntry,
    delta_channels,
    layout_of,
)
from langgraph.checkpoint.mongodb._layout.growing import Growth
from langgraph.checkpoint.mongodb._layout.ttl import aware
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError

__all__ = ["Life", "Memory", "Parent", "Planning"]

_NAMESPACES = 1024
_ENTRIES = 65536


@dataclass(frozen=True, slots=True)
class Parent:
    """What is worth knowing of a checkpoint: for a put that follows it, and for its history.

    Attributes:
        layout: The layout that the thread goes on in.
        manifest: Its channel values documents, by channel.
        stamped: No stamped value that it names is stamped earlier; None when it was
            written without a TTL.
        stored: Whether the checkpoint exists.
        digests: Large items of the graph's input that it holds, by digest.
        rekeyed: Which put gave its values other keys, None when none did.
        steps: How many steps back the last snapshots of its delta channels lie, by channel,
            as it says itself: a hint.
        growths: How its values that grow are cut, by channel.
        bundle: What its bundle of small values holds.
        wrote: The channels that its step wrote.
        recent: The values that are inline although they are not small.
        inline: The channels whose values are inline, with their versions as text.
        kept: Those inline values that were read for a graph that does not know their channels.
        rebuilt: The delta channels that only its ancestors hold.
    """

    layout: int
    manifest: Mapping[str, ManifestEntry]
    stamped: datetime | None = None
    stored: bool = True
    digests: Mapping[bytes, ManifestEntry] = field(default_factory=dict)
    rekeyed: ObjectId | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    growths: Mapping[str, Growth] = field(default_factory=dict)
    bundle: Bundle | None = None
    wrote: frozenset[str] = frozenset()
    recent: frozenset[str] = frozenset()
    inline: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    rebuilt: frozenset[str] = frozenset()

    def holds(self, channel: str, version: str) -> bool:
        """Whether it holds the value of a channel at a version, so that it is carried over."""
        entry = self.manifest.get(channel)
        live = self.bundle.live if self.bundle else {}
        held = entry.holds if entry else self.inline.get(channel, live.get(channel))
        return held == version

    def steps_for(self, channels: Sequence[str]) -> int | None:
        """How many steps back the snapshots of channels lie; None if one is not known."""
        known = [self.steps[channel] for channel in channels if channel in self.steps]
        return max(known) if known and len(known) == len(channels) else None

    @classmethod
    def of(cls, document: Document) -> Parent:
        """What a checkpoint's document says.

        Raises:
            UnknownLayoutError: A newer release wrote it.
            DamagedCheckpointError: Its manifest is not one that this library has written.
        """
        try:
            entries = [ManifestEntry.from_document(entry) for entry in document.get("channels", ())]
        except DamagedCheckpointError as error:
            raise DamagedCheckpointError(document.get("checkpoint_id", ""), error.what) from None
        manifest = {entry.channel: entry for entry in entries}
        return cls(
            layout_of(document),
            manifest,
            aware(document.get("created_at")),
            rekeyed=document.get("rekeyed"),
            rebuilt=frozenset(delta_channels(document)),
        )


class Life(NamedTuple):
    """How long a checkpoint lives, and those that it relies on.

    Attributes:
        created_at: Its stamp; None for one that never expires.
        callers: The checkpoints, one in each namespace above, that called its graph.
    """

    created_at: datetime | None
    callers: tuple[CheckpointKey, ...] = ()

    @classmethod
    def of(cls, document: Document, callers: Iterable[CheckpointKey] = ()) -> Life:
        """What a checkpoint's document tells."""
        return cls(aware(document.get("created_at")), tuple(callers))


class Planning:
    """A put of a large input that is deciding what to write.

    LangGraph stores what the input's task wrote, the same values again, meanwhile.

    Attributes:
        done: Set when it has decided, or failed.
        digests: Large items of the input, by digest, that it is going to store.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.process = os.getpid()
        self.digests: Mapping[bytes, ManifestEntry] = {}


class Memory:
    """The newest checkpoint of each namespace, and the layout of each thread.

    Attributes:
        failed_copies: The claims of copies that failed here, for the next copy to take over.
    """

    def __init__(self) -> None:
        self.failed_copies: set[ObjectId] = set()
        self._lock = ForkSafeLock()
        self._newest: OrderedDict[tuple[str, str], tuple[str, Parent]] = OrderedDict()
        self._entries = 0
        self._layouts: OrderedDict[str, int] = OrderedDict()
        self._planning: dict[CheckpointKey, Planning] = {}
        self._lives: OrderedDict[CheckpointKey, Life] = OrderedDict()
        self._expected: OrderedDict[CheckpointKey, tuple[CheckpointKey, list[str]]] = OrderedDict()

    @contextmanager
    def planning(self, key: CheckpointKey) -> Iterator[Planning]:
        """Say that a put of a large input is under way, until it has ended."""
        planning = self._planning[key] = Planning()
        try:
            yield planning
        finally:
            planning.done.set()
            self._planning.pop(key, None)

    def planned(self, key: CheckpointKey) -> Planning | None:
        """The put of this checkpoint that is under way in this process."""
        planning = self._planning.get(key)
        return planning if planning and planning.process == os.getpid() else None

    def parent(self, key: CheckpointKey) -> Parent | None:
        """What is known of one checkpoint, None when it is not the newest one seen."""
        with self._lock:
            found = self._newest.get(key[:2])
            if found is None or found[0] != key.checkpoint_id:
                return None
            self._newest.move_to_end(key[:2])
            return found[1]

    def remember(self, key: CheckpointKey, parent: Parent) -> None:
        """Keep what was just written or read of a namespace's newest checkpoint."""
        with self._lock:
            self._drop(key[:2])
            self._newest[key[:2]] = (key.checkpoint_id, parent)
            self._entries += len(parent.manifest)
            while len(self._newest) > _NAMESPACES or self._entries > _ENTRIES:
                self._drop(next(iter(self._newest)))
            self._note(key.thread_id, parent.layout)

    def life(self, key: CheckpointKey) -> Life | None:
        """How long a checkpoint lives; None when that is not known."""
        with self._lock:
            return self._lives.get(key)

    def note_life(self, key: CheckpointKey, life: Life) -> None:
        """Keep what was just written or read of a checkpoint's stamp."""
        with self._lock:
            self._lives[key] = life
            self._lives.move_to_end(key)
            while len(self._lives) > _NAMESPACES:
                self._lives.popitem(last=False)

    def expect(self, parent: CheckpointKey, child: CheckpointKey, channels: list[str]) -> None:
        """Note that delta channels of a checkpoint that was read are rebuilt from its parent."""
        with self._lock:
            self._expected[parent] = (child, channels)
            self._expected.move_to_end(parent)
            while len(self._expected) > _NAMESPACES:
                self._expected.popitem(last=False)

    def expected(self, key: CheckpointKey) -> tuple[CheckpointKey, list[str]] | None:
        """Which checkpoint that was read is rebuilt from another, and what of it."""
        with self._lock:
            return self._expected.get(key)

    def met(self, key: CheckpointKey) -> None:
        """Note that a checkpoint was found, or that nobody walks to it."""
        with self._lock:
            self._expected.pop(key, None)

    def layout(self, thread_id: str) -> int | None:
        """The layout of a thread, None when it is not known."""
        with self._lock:
            return self._layouts.get(thread_id)

    def note_layout(self, thread_id: str, layout: int) -> None:
        """Keep the layout of a thread."""
        with self._lock:
            self._note(thread_id, layout)

    def forget(self, thread_id: str) -> None:
        """Drop what is known of a thread that was deleted."""
        with self._lock:
            self._layouts.pop(thread_id, None)
            for key in [known for known in self._lives if known.thread_id == thread_id]:
                del self._lives[key]
            for key in [known for known in self._expected if known.thread_id == thread_id]:
                del self._expected[key]
            for namespace in [known for known in self._newest if known[0] == thread_id]:
                self._drop(namespace)

    def _note(self, thread_id: str, layout: int) -> None:
        self._layouts[thread_id] = layout
        self._layouts.move_to_end(thread_id)
        while len(self._layouts) > _NAMESPACES:
            self._layouts.popitem(last=False)

    def _drop(self, namespace: tuple[str, str]) -> None:
        dropped = self._newest.pop(namespace, None)
        if dropped is not None:
            self._entries -= len(dropped[1].manifest)
