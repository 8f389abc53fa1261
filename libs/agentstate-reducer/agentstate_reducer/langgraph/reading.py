"""What the wrapper shows of a stored checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from ..messages import REMOVE, REMOVE_ALL, UnknownMessageShape, read
from .delta import is_snapshot


def visible(stored: CheckpointTuple, messages_key: str, channel: str) -> CheckpointTuple:
    """Return a checkpoint without its outbox, and without removals of what is no longer there.

    A node may have removed a message that was pruned when the checkpoint was stored. LangGraph
    applies that write when the run is resumed, and `add_messages` refuses an id it cannot find.

    Args:
        stored: As the inner saver returns it.
        messages_key: The messages channel.
        channel: The outbox's reserved channel.

    Returns:
        The same tuple when there is nothing to leave out.
    """
    writes = stored.pending_writes
    if not writes:
        return stored
    kept = [write for write in writes if write[1] != channel]
    if any(write[1] == messages_key and _removed(write[2]) for write in kept):
        kept = _without_stale_removals(kept, stored, messages_key)
    if len(kept) == len(writes) and all(a is b for a, b in zip(kept, writes, strict=True)):
        return stored
    return stored._replace(pending_writes=kept)


def without_stale_writes(history: Any, messages_key: str) -> Any:
    """Return what a delta channel is rebuilt from, without removals of what is no longer there.

    Args:
        history: By channel, as the inner saver's `get_delta_channel_history` returns it.
        messages_key: The messages channel.
    """
    entry = history.get(messages_key)
    if entry is None:
        return history
    seed = entry.get("seed", [])
    there = _ids(seed.value if is_snapshot(seed) else seed)
    writes: list[Any] = []
    for write in entry["writes"]:
        added = _ids(write[2])
        if there is None or added is None:
            there = None  # something else than messages
            writes.append(write)
            continue
        stale = _removed(write[2]) - there - added
        writes.append((write[0], write[1], _drop(write[2], stale)) if stale else write)
        there |= added
    return {**history, messages_key: {**entry, "writes": writes}}


def _without_stale_removals(
    writes: Sequence[Any], stored: CheckpointTuple, messages_key: str
) -> list[Any]:
    there = _ids(stored.checkpoint["channel_values"].get(messages_key))
    if there is None:
        return list(writes)  # a channel that is rebuilt from its writes, say
    for write in writes:
        if write[1] == messages_key:
            there |= _ids(write[2]) or set()
    shown = []
    for write in writes:
        stale = _removed(write[2]) - there if write[1] == messages_key else set()
        shown.append((write[0], write[1], _drop(write[2], stale)) if stale else write)
    return shown


def _ids(messages: Any) -> set[str] | None:
    """Return the ids of messages that are no removals; `None` for what is no list or message."""
    items = messages if isinstance(messages, list) else [messages]
    ids = set()
    for item in items:
        try:
            facts = read(item)
        except UnknownMessageShape:
            if item is messages:
                return None
            continue
        if facts.role != REMOVE and facts.id is not None:
            ids.add(facts.id)
    return ids


def _removed(value: Any) -> set[str]:
    """Return the ids that a write to the messages removes one by one."""
    ids = set()
    for item in value if isinstance(value, list) else [value]:
        try:
            facts = read(item)
        except UnknownMessageShape:
            continue
        if facts.role == REMOVE and facts.id is not None and facts.id != REMOVE_ALL:
            ids.add(facts.id)
    return ids


def _drop(value: Any, stale: set[str]) -> list[Any]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if not _removed(item) & stale]
