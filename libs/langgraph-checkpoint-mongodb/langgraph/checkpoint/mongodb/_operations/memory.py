"""What a saver remembers of its threads, so that it need not read them before it writes.

Bounded, shared by the clones of a saver, and never trusted for a value's existence: a
checkpoint that carries values over proves in the same command that its parent is still
there (`_operations.commit`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from bson import ObjectId

from langgraph.checkpoint.mongodb._database.forks import ForkSafeLock
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo, Life
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey
from langgraph.checkpoint.mongodb._layout.layouts import Layout
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry

__all__ = ["InputInFlight", "Memory"]

_NAMESPACES = 1024
_ENTRIES = 65536


class InputInFlight:
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

    def decide(self, digests: Mapping[bytes, ManifestEntry]) -> None:
        """Let the pending writes that wait for this continue."""
        self.digests = digests
        self.done.set()


class Memory:
    """The newest checkpoint of each namespace, and the layout of each thread.

    Attributes:
        failed_copies: The claims of copies that failed here, for the next copy to take over.
    """

    def __init__(self) -> None:
        self.failed_copies: set[ObjectId] = set()
        self._lock = ForkSafeLock()
        self._newest: OrderedDict[tuple[str, str], tuple[str, CheckpointInfo]] = OrderedDict()
        self._entries = 0
        self._layouts: OrderedDict[str, Layout] = OrderedDict()
        self._in_flight: dict[CheckpointKey, InputInFlight] = {}
        self._lives: OrderedDict[CheckpointKey, Life] = OrderedDict()
        self._expected: OrderedDict[CheckpointKey, tuple[CheckpointKey, list[str]]] = OrderedDict()

    @contextmanager
    def input_in_flight(self, key: CheckpointKey) -> Iterator[InputInFlight]:
        """Say that a put of a large input is under way, until it has ended."""
        in_flight = self._in_flight[key] = InputInFlight()
        try:
            yield in_flight
        finally:
            in_flight.done.set()
            self._in_flight.pop(key, None)

    def in_flight(self, key: CheckpointKey) -> InputInFlight | None:
        """The put of this checkpoint that is under way in this process."""
        found = self._in_flight.get(key)
        return found if found and found.process == os.getpid() else None

    def info(self, key: CheckpointKey) -> CheckpointInfo | None:
        """What is known of one checkpoint, None when it is not the newest one seen."""
        with self._lock:
            found = self._newest.get(key[:2])
            if found is None or found[0] != key.checkpoint_id:
                return None
            self._newest.move_to_end(key[:2])
            return found[1]

    def remember(self, key: CheckpointKey, info: CheckpointInfo) -> None:
        """Keep what was just written or read of a namespace's newest checkpoint."""
        with self._lock:
            self._drop(key[:2])
            self._newest[key[:2]] = (key.checkpoint_id, info)
            self._entries += len(info.manifest)
            while len(self._newest) > _NAMESPACES or self._entries > _ENTRIES:
                self._drop(next(iter(self._newest)))
            self._note(key.thread_id, info.layout)

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

    def layout(self, thread_id: str) -> Layout | None:
        """The layout of a thread, None when it is not known."""
        with self._lock:
            return self._layouts.get(thread_id)

    def note_layout(self, thread_id: str, layout: Layout) -> None:
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

    def _note(self, thread_id: str, layout: Layout) -> None:
        self._layouts[thread_id] = layout
        self._layouts.move_to_end(thread_id)
        while len(self._layouts) > _NAMESPACES:
            self._layouts.popitem(last=False)

    def _drop(self, namespace: tuple[str, str]) -> None:
        dropped = self._newest.pop(namespace, None)
        if dropped is not None:
            self._entries -= len(dropped[1].manifest)
