"""Merging an update into a list of messages, as LangGraph's `add_messages` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .messages import (
    HUMAN,
    INSTRUCTIONS,
    REMOVE,
    REMOVE_ALL,
    UnknownMessageShape,
    as_list,
    field,
    read,
)
from .summary import is_summary

_LANGCHAIN = "langchain_core.messages"


def merge(existing: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    """Merge an update into a list of messages, by id.

    Args:
        existing: The messages so far.
        new: Messages to append, to put in the place of one with the same id, or to remove. A client
            may send its whole transcript: what stands in it before a message that is there already
            comes before that one.

    Returns:
        A new list.
    """
    merged: dict[Any, Any] = {}
    sent: list[str] = []
    for index, message in enumerate([*existing, *new]):
        try:
            facts = read(message)
        except UnknownMessageShape:
            merged[index] = message
            continue
        if facts.role == REMOVE and facts.id == REMOVE_ALL:
            merged.clear()
        elif facts.role == REMOVE:
            merged.pop(facts.id, None)
        else:
            merged[index if facts.id is None else facts.id] = message
            if index >= len(existing) and facts.id is not None:
                sent.append(facts.id)
    return as_sent(list(merged.values()), sent)


def as_sent(messages: Sequence[Any], sent: Sequence[str]) -> list[Any]:
    """Return merged messages in the order of a transcript that a client sent whole.

    Merging by id appends what the client has kept and the window has not: the oldest messages come
    last. An update is taken for a whole transcript when it begins with a question and has every
    question that was there before it.

    Args:
        messages: The merged messages.
        sent: The ids of the update's messages, in its order.

    Returns:
        The messages, those in their place that the client has before others.
    """
    place = {str(id_): i for i, id_ in enumerate(map(id_of, messages)) if id_ is not None}
    moved: dict[int, list[int]] = {}
    following: int | None = None
    for key in reversed(list(dict.fromkeys(sent))):
        at = place.get(key)
        if at is None:
            continue
        if following is not None and at > following:
            moved.setdefault(following, []).append(at)
        else:
            following = at
    gone = {i for places in moved.values() for i in places}
    if not gone or not _is_transcript(messages, sent, min(gone)):
        return list(messages)
    return [
        messages[j]
        for i in range(len(messages))
        if i not in gone
        for j in (*reversed(moved.get(i, ())), i)
    ]


def id_of(message: Any) -> Any:
    """Return the id of a message, `None` where it has none or is no message."""
    return field(message, "id")


def _is_transcript(messages: Sequence[Any], sent: Sequence[str], before: int) -> bool:
    known = set(sent)
    roles = {str(id_of(message)): _role(message) for message in messages}
    begins = (role for key in sent if (role := roles.get(key)) not in INSTRUCTIONS)
    questions = [m for m in messages[:before] if _role(m) == HUMAN and not is_summary(read(m))]
    return next(begins, None) == HUMAN and all(str(id_of(m)) in known for m in questions)


def _role(message: Any) -> str | None:
    try:
        return read(message).role
    except UnknownMessageShape:
        return None


def as_update(update: Any, existing: Sequence[Any]) -> list[Any]:
    """Return an update as a list of messages, its shorthand written out.

    Args:
        update: A message, a text, a pair of role and text, or a list of these.
        existing: The messages so far: shorthand becomes a message of their kind.

    Returns:
        A new list. What is no message and no shorthand is left as it is.
    """
    items = [update] if _is_pair(update) else as_list(update)
    return [_written_out(item, existing) if _is_shorthand(item) else item for item in items]


def _is_pair(value: Any) -> bool:
    """Tell whether a value is a pair of role and text; a list of two texts is two messages."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _is_shorthand(item: Any) -> bool:
    if isinstance(item, str) or _is_pair(item):
        return True
    return isinstance(item, list) and len(item) == 2 and all(isinstance(x, str) for x in item)


def _written_out(item: Any, existing: Sequence[Any]) -> Any:
    role, content = ("user", item) if isinstance(item, str) else item
    langchain = sys.modules.get(_LANGCHAIN)
    dicts = bool(existing) and all(isinstance(message, Mapping) for message in existing)
    if langchain is None or dicts:
        return {"role": role, "content": content}
    return langchain.convert_to_messages([(role, content)])[0]
