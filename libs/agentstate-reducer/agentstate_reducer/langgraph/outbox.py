"""The outbox: pruned turns that wait for their hooks, as pending writes of a checkpoint.

The outbox of a checkpoint is written before the checkpoint. It has a *head*, which lists the
batches that wait and the turns still in the window that were handed over from another branch; a
write for each turn, so that no document grows beyond one message; and, later, a write for each hook
that took a batch. The newest outbox of a thread is the whole truth about what still waits.
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
        carried: Whether the checkpoint wrote no messages, and only carries on what waits.
    """

    batches: list[Batch] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    carried: bool = False

    def waiting(self) -> list[Batch]:
        """Return the batches that a hook still lacks."""
        return [batch for batch in self.batches if batch.wanted - batch.done]

    def turns(self) -> dict[str, str]:
        """Map the key of every turn listed to its digest."""
        return {turn.key: turn.match for batch in self.batches for turn in batch.turns}


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
        outbox: What it says.

    Returns:
        Writes for `put_writes`, and a task id that is the same for the same content: an outbox that
        is written again is the same outbox.
    """
    writes = [_head(outbox)]
    parts = list(outbox.known)
    for batch in outbox.batches:
        writes.extend(_turn(batch, turn) for turn in batch.turns)
        parts += [batch.id, *sorted(batch.done), *(turn.key for turn in batch.turns)]
    return [(channel, write) for write in writes], _task(channel, "outbox", digest(*parts))


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


def read_outbox(pending_writes: Iterable[Sequence[Any]] | None, channel: str) -> Outbox | None:
    """Read the outbox of a checkpoint.

    Args:
        pending_writes: The pending writes of the checkpoint, as the inner saver returns them.
        channel: The reserved channel.

    Returns:
        The outbox, or `None` when the checkpoint has none.
    """
    writes = [write[2] for write in pending_writes or () if write[1] == channel]
    writes = [write for write in writes if _readable(write)]
    heads = [write for write in writes if write["kind"] == "head"]
    if not heads:
        return None
    batches: dict[str, Batch] = {}
    for head in heads:
        for listed in head["batches"]:
            batch = batches.setdefault(
                listed["id"], Batch(listed["id"], _unpack(listed["namespace"]), [])
            )
            batch.wanted.update(listed["wanted"])
            batch.done.update(listed["done"])
    seen = set()
    for write in writes:
        if write["kind"] == "turn" and write["batch"] in batches and write["key"] not in seen:
            seen.add(write["key"])
            turn = Turn(write["key"], write["match"], write["message"])
            batches[write["batch"]].turns.append(turn)
        elif write["kind"] == "ack" and write["batch"] in batches:
            batches[write["batch"]].done.add(write["hook"])
    carried = all(head["carried"] for head in heads)
    return Outbox(list(batches.values()), list(heads[-1]["known"]), carried)


def _head(outbox: Outbox) -> dict[str, Any]:
    return {
        "v": VERSION,
        "kind": "head",
        "known": list(outbox.known),
        "carried": outbox.carried,
        "batches": [
            {
                "id": batch.id,
                "namespace": _pack(batch.namespace),
                "wanted": sorted(batch.wanted),
                "done": sorted(batch.done),
            }
            for batch in outbox.batches
        ],
    }


def _turn(batch: Batch, turn: Turn) -> dict[str, Any]:
    return {
        "v": VERSION,
        "kind": "turn",
        "batch": batch.id,
        "key": turn.key,
        "match": turn.match,
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
