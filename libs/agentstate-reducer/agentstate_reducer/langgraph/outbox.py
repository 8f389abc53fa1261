"""The outbox: pruned turns that wait for their hooks, as pending writes of a checkpoint.

The outbox of a checkpoint is written before the checkpoint. It has a *head*, which lists the
batches that wait and the turns still in the window that were handed over from another branch; a
write for each turn, so that no document grows beyond one message; and, later, a write for each hook
that took a batch, or failed on it. The newest outbox of a thread is the whole truth about what
still waits. The turns of a batch are stored once, where they were pruned: a later head names that
place. A checkpoint that changes nothing of this has a *pointer*, which names the hooks and that
outbox.
`backlog.py` says when they are moved.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..delivery import Batch, Turn
from ..keys import digest, namespace_text

logger = logging.getLogger(__name__)

VERSION = 1
_TASKS = uuid.UUID("5f0c1d1e-7d0a-5d1b-9f83-3b1f6c2f6a50")
_PLAIN = (str, int, float, bool, bytes, type(None))


@dataclass
class Outbox:
    """What the outbox of one checkpoint says.

    Attributes:
        batches: Batches it lists, oldest first, with the hooks that have them.
        known: Digests of turns in the checkpoint's messages that were handed over from another
            branch of the thread, in the order of the messages.
        thread: The thread it was written for: a copy of the thread has a copy of it.
        whole: Whether nothing waits beside older checkpoints that it does not list. It may be
            `False` where one of them could not be read.
        pruned: By key, the digests of the turns that this checkpoint pruned.
        waiting_for: If this is only a pointer, the names of the hooks that lack something.
    """

    batches: list[Batch] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    thread: str = ""
    whole: bool = True
    pruned: dict[str, str] = field(default_factory=dict)
    waiting_for: frozenset[str] = frozenset()

    def lacking(self) -> set[str]:
        """Return the names of the hooks that lack something."""
        names = (batch.wanted - batch.done for batch in self.batches)
        return set(self.waiting_for).union(*names)

    def waiting(self) -> list[Batch]:
        """Return the batches that a hook still lacks."""
        return [batch for batch in self.batches if batch.wanted - batch.done]


def channel_name(messages_key: str) -> str:
    """Return the reserved channel of a messages channel's outbox.

    Args:
        messages_key: The messages channel.
    """
    return f"__agentstate_reducer__:{messages_key}"


def write_outbox(channel: str, outbox: Outbox) -> tuple[list[tuple[str, Any]], str]:
    """Return the writes of an outbox and the task id to put them under.

    Args:
        channel: The reserved channel.
        outbox: What it says. The turns of the batches that are stored nowhere yet are stored here.

    Returns:
        Writes for `put_writes`, and a task id that is the same for the same content: an outbox that
        is written again is the same outbox.
    """
    writes = [_head(outbox)]
    parts = list(outbox.known)
    for batch in outbox.batches:
        here = batch.turns if batch.at is None else []
        writes.extend(_turn(batch, turn, turn.key in outbox.pruned) for turn in here)
        parts += [batch.id, *sorted(batch.done), *(turn.key for turn in here)]
    return [(channel, write) for write in writes], _task(channel, "outbox", digest(*parts))


def write_pointer(
    channel: str, batches: Sequence[Batch], at: str
) -> tuple[list[tuple[str, Any]], str]:
    """Return the write that says where the outbox is, and its task id.

    Args:
        channel: The reserved channel.
        batches: What waits.
        at: The id of the checkpoint that has the outbox.
    """
    names = sorted(Outbox(list(batches)).lacking())
    write = {"v": VERSION, "kind": "pointer", "at": at, "hooks": names}
    return [(channel, write)], _task(channel, "pointer", at)


def write_acknowledgement(
    channel: str, batch: Batch, hook: str
) -> tuple[list[tuple[str, Any]], str]:
    """Return the write that says a hook has a batch, and the task id to put it under.

    Args:
        channel: The reserved channel.
        batch: The batch.
        hook: The hook's name.
    """
    write = {"v": VERSION, "kind": "ack", "batch": batch.id, "hook": hook}
    return [(channel, write)], _task(channel, "ack", batch.id, hook)


def write_failure(channel: str, batch: Batch, hook: str) -> tuple[list[tuple[str, Any]], str]:
    """Return the write that says how often a hook failed on a batch, and its task id.

    Args:
        channel: The reserved channel.
        batch: The batch.
        hook: The hook's name.
    """
    count = batch.attempts[hook]
    write = {"v": VERSION, "kind": "failed", "batch": batch.id, "hook": hook, "count": count}
    return [(channel, write)], _task(channel, "failed", batch.id, hook, str(count))


def read_outbox(
    pending_writes: Iterable[Sequence[Any]] | None, channel: str, at: str
) -> Outbox | None:
    """Read the outbox of a checkpoint.

    Args:
        pending_writes: The pending writes of the checkpoint, as the inner saver returns them.
        channel: The reserved channel.
        at: The checkpoint's id.

    Returns:
        The outbox, or a pointer, or `None` when the checkpoint has none.
    """
    writes = [write[2] for write in pending_writes or () if write[1] == channel]
    writes = [write for write in writes if _readable(write)]
    heads = [write for write in writes if write["kind"] == "head"]
    if not heads:
        pointers = [write for write in writes if write["kind"] == "pointer"]
        names = frozenset(name for write in pointers for name in write["hooks"])
        return Outbox(waiting_for=names) if pointers else None
    batches: dict[str, Batch] = {}
    for head in heads:
        for listed in head["batches"]:
            batch = batches.setdefault(
                listed["id"], Batch(listed["id"], _unpack(listed["namespace"]), [])
            )
            batch.wanted.update(listed["wanted"])
            batch.done.update(listed["done"])
            batch.at = listed["at"] or at
            batch.count = listed["count"]
            _count_attempts(batch, listed["attempts"])
    pruned: dict[str, str] = {}
    seen = set()
    for write in writes:
        if write.get("batch") not in batches:
            continue
        batch = batches[write["batch"]]
        if write["kind"] == "turn" and (batch.id, write["key"]) not in seen:
            seen.add((batch.id, write["key"]))
            batch.at = at  # whatever an earlier head of this checkpoint says
            batch.turns.append(Turn(write["key"], write["match"], write["message"]))
            if write["pruned"]:
                pruned[write["key"]] = write["match"]
        elif write["kind"] == "ack":
            batch.done.add(write["hook"])
        elif write["kind"] == "failed":
            _count_attempts(batch, {write["hook"]: write["count"]})
    whole = any(head["whole"] for head in heads)
    return Outbox(
        list(batches.values()), list(heads[0]["known"]), heads[0]["thread"], whole, pruned
    )


def _count_attempts(batch: Batch, counts: dict[str, int]) -> None:
    for hook, count in counts.items():
        batch.attempts[hook] = max(count, batch.attempts.get(hook, 0))


def _head(outbox: Outbox) -> dict[str, Any]:
    return {
        "v": VERSION,
        "kind": "head",
        "known": list(outbox.known),
        "thread": outbox.thread,
        "whole": outbox.whole,
        "batches": [
            {
                "id": batch.id,
                "namespace": _pack(batch.namespace),
                "wanted": sorted(batch.wanted),
                "done": sorted(batch.done),
                "at": batch.at or "",
                "count": batch.count,
                "attempts": dict(batch.attempts),
            }
            for batch in outbox.batches
        ],
    }


def _turn(batch: Batch, turn: Turn, pruned: bool) -> dict[str, Any]:
    return {
        "v": VERSION,
        "kind": "turn",
        "batch": batch.id,
        "key": turn.key,
        "match": turn.match,
        "pruned": pruned,
        "message": turn.message,
    }


def _readable(write: Any) -> bool:
    if isinstance(write, dict) and write.get("v") == VERSION:
        return True
    logger.warning("an outbox write of another release is left alone: %.200r", write)
    return False


def _task(*parts: str) -> str:
    return str(uuid.uuid5(_TASKS, "\x1f".join(parts)))


def _pack(namespace: Any) -> Any:
    """Return a namespace in types that every serializer keeps; a tuple says that it is one."""
    if isinstance(namespace, _PLAIN):
        return namespace
    if isinstance(namespace, tuple):
        return {"tuple": [_pack(part) for part in namespace]}
    if isinstance(namespace, list):
        return {"list": [_pack(part) for part in namespace]}
    if isinstance(namespace, dict) and all(isinstance(key, str) for key in namespace):
        return {"dict": {key: _pack(value) for key, value in namespace.items()}}
    logger.warning(
        "a namespace of type %s cannot be stored: a follow-up would get %r",
        type(namespace).__name__,
        namespace_text(namespace),
    )
    return namespace_text(namespace)


def _unpack(packed: Any) -> Any:
    if not isinstance(packed, dict):
        return packed
    ((kind, parts),) = packed.items()
    if kind == "dict":
        return {key: _unpack(value) for key, value in parts.items()}
    unpacked = [_unpack(part) for part in parts]
    return tuple(unpacked) if kind == "tuple" else unpacked
