"""What a process remembers of the threads it saves.

A *stream* is one thread in one checkpoint namespace. Within a run LangGraph hands the whole list of
messages to every save, pruned ones included, because it does not read back what was stored. So a
stream keeps a *line* for its last few checkpoints: what is gone from the stored messages although
the run still has it. All of it can be found again in storage or is of no use after the run; the
memory is bounded.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from ..delivery import Batch
from ..messages import INSTRUCTIONS, UnknownMessageShape, read
from ..messages import field as field_of
from ..summary import SUMMARY_ID_PREFIX

STREAMS_REMEMBERED = 4096
LINES_REMEMBERED = 8
BATCHES_REMEMBERED = 256

Mark = str | int
"""What tells a message apart within a run: its id, or its identity when it has none."""


class Held(NamedTuple):
    """A message that is remembered.

    Attributes:
        match: Its digest, or nothing when there are no hooks.
        message: The message itself if it has no id, so that its identity stays its own.
        seen: Says whether it is still the object that was digested, where that can be told.
    """

    match: str
    message: Any
    seen: weakref.ref[Any] | None = None

    def match_of(self, message: Any) -> str | None:
        """Return the digest of a message if it is this one and no other object.

        Args:
            message: A message with the same mark.
        """
        same = message is self.message or (self.seen is not None and self.seen() is message)
        return self.match or None if same else None


@dataclass
class Line:
    """A run as of one checkpoint.

    Attributes:
        gone: Messages that the run has and the checkpoint has not.
        kept: Messages that the checkpoint has.
        known: Those among them that were handed over already, from another branch.
        summary: The summary in the checkpoint.
        summary_was_loaded: Whether the run has that summary in its own list.
    """

    gone: dict[Mark, Held] = field(default_factory=dict)
    kept: dict[Mark, Any] = field(default_factory=dict)
    known: dict[Mark, Held] = field(default_factory=dict)
    summary: list[Any] = field(default_factory=list)
    summary_was_loaded: bool = False

    def handed_over(self, window: Sequence[Any]) -> dict[Mark, Held]:
        """Return what is known of messages in the next window that were handed over before.

        Args:
            window: The messages. One that had left may be among them, if it came back: the run
                removed those that stayed, or added it again.
        """
        back = {mark(m) for m in window} & self.gone.keys()
        return {**self.known, **{m: self.gone[m] for m in back}}

    def loaded_anew(self, window: Sequence[Any]) -> Counter[str]:
        """Return digests of known messages without ids that a new run has as other objects.

        Args:
            window: The messages that the run has.
        """
        without_ids = {m for m in self.kept if isinstance(m, int)}
        if not without_ids.isdisjoint(mark(m) for m in window):
            return Counter()  # the same run
        return Counter(known.match for m, known in self.known.items() if isinstance(m, int))

    def has_handed_over(self, message: Any, match: str) -> bool:
        """Tell whether a message went to the outbox before, as it is now.

        Args:
            message: The message.
            match: Its digest.
        """
        for memory in (self.gone, self.known):
            found = memory.get(mark(message))
            if found is not None and found.match == match:
                return True
        return False


@dataclass
class Stream:
    """One thread in one checkpoint namespace.

    Attributes:
        latest: The checkpoint this process saved last.
        fresh: Whether nothing was seen since that this process does not know of.
        pending: Batches that a hook lacks, oldest first.
        outbox: The config of the checkpoint whose outbox was stored last by this process.
        whole: Whether everything that waits is known.
        waiting_for: In a wrapper without hooks, names of the hooks of others that lack something.
        unstored: By batch id, the hooks that have it although no acknowledgement could be stored.
        lines: By checkpoint id, the newest last.
        work: The handing over that began last in async code.
        finished: By batch id, the hooks that have the batches that wait no more, the newest last.
        lock: Held while what waits is changed.
        sent: The ids of the messages that the client sent for the run, in its order.
    """

    latest: str | None = None
    fresh: bool = False
    pending: list[Batch] = field(default_factory=list)
    outbox: RunnableConfig | None = None
    whole: bool = True
    waiting_for: set[str] = field(default_factory=set)
    unstored: dict[str, set[str]] = field(default_factory=dict)
    lines: OrderedDict[str, Line] = field(default_factory=OrderedDict)
    work: asyncio.Future[None] | None = None
    sent: list[str] = field(default_factory=list)
    finished: OrderedDict[str, set[str]] = field(default_factory=OrderedDict)
    lock: Any = field(default_factory=threading.Lock)

    def line(self, checkpoint_id: str | None) -> Line | None:
        """Return the line of a checkpoint, if it is remembered."""
        return None if checkpoint_id is None else self.lines.get(checkpoint_id)

    def saved(self, checkpoint_id: str, line: Line | None) -> None:
        """Note that a checkpoint was stored.

        Args:
            checkpoint_id: Its id.
            line: Its line.
        """
        self.latest = checkpoint_id
        if line is not None:
            self.lines[checkpoint_id] = line
            self.lines.move_to_end(checkpoint_id)
        while len(self.lines) > LINES_REMEMBERED:
            self.lines.popitem(last=False)

    def was_sent(self, values: Any, metadata: Any, messages_key: str) -> None:
        """Note the order of what a client sends with a run.

        Args:
            values: The values of the checkpoint that is saved.
            metadata: Its metadata.
            messages_key: The messages channel.
        """
        if (metadata or {}).get("source") == "loop":
            return
        update = values.get("__start__")
        messages = update.get(messages_key) if isinstance(update, dict) else None
        ids = [field_of(m, "id") for m in messages] if isinstance(messages, list) else []
        self.sent = [str(id_) for id_ in ids if id_ is not None]

    def saw(self, asked: str | None, found: str | None) -> None:
        """Note that a checkpoint was read.

        Args:
            asked: The id that was asked for; `None` for the latest.
            found: The id of what was found.
        """
        if asked is None and found == self.latest:
            return
        self.fresh = False  # the run that follows may be on another branch, or after others

    def found_waiting(self, batches: Sequence[Batch]) -> None:
        """Note what the stored outbox says.

        Args:
            batches: Batches that a hook lacks, oldest first, as far as could be stored.
        """
        with self.lock:
            here = {batch.id: batch for batch in self.pending}
            pending = []
            for found in batches:
                batch = here.get(found.id, found)  # somebody may be handing it over
                batch.at = found.at
                batch.done |= found.done | self.unstored.get(batch.id, set())
                batch.done |= self.finished.get(batch.id, set())
                for name, count in found.attempts.items():
                    batch.attempts[name] = max(count, batch.attempts.get(name, 0))
                pending.append(batch)
            self.pending = pending

    def keep(self, names: Iterable[str], batches: Sequence[Batch] = ()) -> None:
        """Keep what waits; a hook may have saved to the same thread, and added to it.

        Args:
            names: Names of the hooks.
            batches: What waits now too.
        """
        with self.lock:
            kept = {batch.id: batch for batch in (*self.pending, *batches)}
            self.pending = [batch for batch in kept.values() if batch.lacks(names)]
            for batch in kept.values():
                if not batch.lacks(names):  # a save beside this one may have read it before
                    self.finished[batch.id] = set(batch.done)
            while len(self.finished) > BATCHES_REMEMBERED:
                self.finished.popitem(last=False)


class Streams:
    """The streams of a saver, the most recently used ones."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, str], Stream] = OrderedDict()
        self._namespaces: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, config: Any) -> Stream:
        """Return the stream of a config, a new one if need be.

        Args:
            config: With `thread_id` and, perhaps, `checkpoint_ns`.
        """
        conf = config["configurable"]
        key = (str(conf["thread_id"]), conf.get("checkpoint_ns") or "")
        with self._lock:
            if key not in self._streams:
                self._namespaces[key[0]] += 1
            stream = self._streams.setdefault(key, Stream())
            self._streams.move_to_end(key)
            while len(self._streams) > STREAMS_REMEMBERED:
                (thread, _), _ = self._streams.popitem(last=False)
                self._namespaces[thread] -= 1
                if not self._namespaces[thread]:
                    del self._namespaces[thread]
            return stream

    def has_several(self, thread: str) -> bool:
        """Tell whether this process saved to more than one namespace of a thread.

        Args:
            thread: Its id.
        """
        return self._namespaces[thread] > 1

    def waiting(self) -> int:
        """Return how many messages wait for a hook."""
        with self._lock:
            streams = list(self._streams.values())
        return sum(
            batch.count
            for stream in streams
            for batch in list(stream.pending)
            if batch.wanted - batch.done
        )

    def look_again(self, thread: str) -> None:
        """Note that what is stored of a thread has changed.

        Args:
            thread: Its id.
        """
        with self._lock:
            streams = [stream for key, stream in self._streams.items() if key[0] == thread]
        for stream in streams:
            stream.fresh = False

    def known(self, config: Any) -> Stream | None:
        """Return the stream of a config if there is one.

        Args:
            config: With `thread_id` and, perhaps, `checkpoint_ns`.
        """
        conf = config["configurable"]
        return self._streams.get((str(conf["thread_id"]), conf.get("checkpoint_ns") or ""))


class Split(NamedTuple):
    """A run's messages, parted by what the last checkpoint had.

    Attributes:
        inside: What belongs to the window, in order, the stored summary in its place.
        outside: What had left it, in order.
    """

    inside: list[Any]
    outside: list[Any]


def mark(message: Any) -> Mark:
    """Return what tells a message apart within a run.

    Args:
        message: A message of any shape.
    """
    id_ = field_of(message, "id")
    return id(message) if id_ is None else str(id_)


def is_summary_message(message: Any) -> bool:
    """Tell whether a message is part of a summary.

    Args:
        message: A message of any shape.
    """
    return str(field_of(message, "id") or "").startswith(SUMMARY_ID_PREFIX)


def split(messages: Sequence[Any], line: Line | None) -> Split:
    """Part a run's messages into those in the window and those that had left it.

    A message that left comes back when it stands after one that stayed: then it was added anew.

    Args:
        messages: The run's whole list.
        line: The line of the checkpoint before; `None` when there is none.

    Returns:
        The two parts. Together they are the list, but for its summaries: the stored one stands for
        them.
    """
    if line is None or not (line.gone or line.summary):
        return Split(list(messages), [])
    marks = [mark(m) for m in messages]
    last = max((i for i, m in enumerate(marks) if m in line.kept), default=-1)
    if last < 0:
        return Split(list(messages), [])  # the list was replaced by another
    own = [i for i, message in enumerate(messages) if is_summary_message(message)]
    inside: list[Any] = []
    outside: list[Any] = []
    for i, message in enumerate(messages):
        if i in own:
            continue
        (outside if marks[i] in line.gone and i < last else inside).append(message)
    if own or not line.summary_was_loaded:
        at = 1 if inside and _is_instruction(inside[0]) else 0
        inside[at:at] = line.summary
    return Split(inside, outside)


def next_line(
    messages: Sequence[Any],
    stored: Sequence[Any],
    gone: Sequence[Any],
    handed_over: dict[Mark, Held],
    matches: dict[int, str],
    before: Line | None,
) -> Line:
    """Return the line of a checkpoint that is about to be stored.

    Args:
        messages: The run's whole list.
        stored: The messages to be stored.
        gone: The messages of the run that are not.
        handed_over: What is known to be handed over from another branch.
        matches: Digests by identity, for the messages that have been digested.
        before: The line of the checkpoint before.
    """
    were_gone = before.gone if before is not None else {}
    kept = {mark(m): held(m) for m in stored}
    summary = [m for m in stored if is_summary_message(m)]
    in_list = {mark(m) for m in messages}
    return Line(
        gone={
            mark(m): Held(matches[id(m)], held(m), reference(m))
            if id(m) in matches
            else were_gone.get(mark(m), Held("", held(m)))
            for m in gone
        },
        kept=kept,
        known={m: known for m, known in handed_over.items() if m in kept},
        summary=summary,
        summary_was_loaded=bool(summary) and all(mark(m) in in_list for m in summary),
    )


def held(message: Any) -> Any:
    """Return a message if its identity is what tells it apart, to keep it so; else `None`.

    Args:
        message: A message of any shape.
    """
    return message if field_of(message, "id") is None else None


def reference(message: Any) -> weakref.ref[Any] | None:
    """Return a weak reference to a message, if its type allows one.

    Args:
        message: A message of any shape.
    """
    try:
        return weakref.ref(message)
    except TypeError:  # a dict
        return None


def _is_instruction(message: Any) -> bool:
    try:
        return read(message).role in INSTRUCTIONS
    except UnknownMessageShape:
        return False
