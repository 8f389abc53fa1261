"""Summaries that stand in a conversation."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .messages import AI, HUMAN, Facts, field, role_of, tool_calls

SUMMARY_ID_PREFIX = "agentstate-summary-"
"""Every message of a summary has an id that begins so: it tells them from what was said."""

HEADING = r"^\[Summary of \d+ earlier messages?[^\]]*\]\n"
"""How a summary of the default factory begins."""

_COUNT = re.compile(rf"^{SUMMARY_ID_PREFIX}.*-n(\d+)-\d+$")
_LANGCHAIN = "langchain_core.messages"
_LANGCHAIN_CLASSES = {HUMAN: "HumanMessage", AI: "AIMessage", "system": "SystemMessage"}
_OPENAI_ROLES = {HUMAN: "user", AI: "assistant"}


def default_summary_messages_factory(text: str, count: int) -> list[Any]:
    """Build a summary that keeps human and AI messages alternating.

    Args:
        text: The summary.
        count: How many messages it covers, those of earlier summaries included.

    Returns:
        A human message with the summary, which says that the user did not say it, and an AI message
        that takes note of it.
    """
    messages = "message" if count == 1 else "messages"
    heading = f"[Summary of {count} earlier {messages}, made by the program: not the user's words]"
    return [
        {"role": HUMAN, "content": f"{heading}\n{text}"},
        {"role": AI, "content": "OK"},
    ]


def is_summary(facts: Facts) -> bool:
    """Tell whether a message is part of a summary that this package put in.

    Args:
        facts: Facts of the message.
    """
    return facts.id is not None and facts.id.startswith(SUMMARY_ID_PREFIX)


def covered(facts: Sequence[Facts]) -> int:
    """Return how many messages a summary covers.

    Args:
        facts: Facts of the summary's messages.
    """
    counts = (_COUNT.match(fact.id or "") for fact in facts)
    return max((int(found.group(1)) for found in counts if found), default=0)


def build_summary(
    text: str,
    count: int,
    factory: Callable[[str, int], list[Any]],
    neighbours: Sequence[Any],
    seed: str,
) -> list[Any]:
    """Build the messages of a summary, of the kind of the messages around it.

    Args:
        text: The summary.
        count: How many messages it covers.
        factory: Builds the messages.
        neighbours: The messages around the summary, the nearest first.
        seed: The same for the same pruned messages; the ids are made from it.

    Returns:
        The messages, each with an id that `is_summary` recognises.
    """
    return [
        _like(message, neighbours, f"{SUMMARY_ID_PREFIX}{seed}-n{count}-{i}")
        for i, message in enumerate(factory(text, count))
    ]


def _like(message: Any, neighbours: Sequence[Any], id_: str) -> Any:
    if not isinstance(message, Mapping):
        copied = copy.copy(message)
        copied.id = id_
        return copied
    nearest = neighbours[0] if neighbours else message
    if isinstance(nearest, Mapping):
        return _dict_like(message, nearest, neighbours, id_)
    return _object_like(message, neighbours, id_)


def _dict_like(
    message: Mapping[str, Any], nearest: Mapping[str, Any], neighbours: Sequence[Any], id_: str
) -> dict[str, Any]:
    role = role_of(message)
    body = {**message, "id": id_}
    if "content" not in nearest and isinstance(nearest.get("kwargs"), Mapping):
        name = _LANGCHAIN_CLASSES.get(role, "HumanMessage")
        body = {"content": message.get("content"), "type": role, "id": id_}
        path = ["langchain", "schema", "messages", name]
        return {"lc": 1, "type": "constructor", "id": path, "kwargs": body}
    if "content" not in nearest and isinstance(nearest.get("data"), Mapping):
        return {"type": role, "data": {"content": message.get("content"), "type": role, "id": id_}}
    speakers = [m for m in neighbours if isinstance(m, Mapping) and m.get("role")]
    if not speakers and "type" in nearest and "role" in body:
        del body["role"]
        return {"type": role, **body}
    says = {m.get("role") for m in neighbours if isinstance(m, Mapping)}
    if "role" in body and says & set(_OPENAI_ROLES.values()):
        body["role"] = _OPENAI_ROLES.get(role, body["role"])
    if speakers and isinstance(body.get("content"), str):
        _say_as(body, speakers)
    return body


def _say_as(body: dict[str, Any], speakers: Sequence[Mapping[str, Any]]) -> None:
    """Write a text as Gemini's parts or Bedrock's blocks where the messages around it have them."""
    text = {"text": body["content"]}
    if all("parts" in m and "content" not in m for m in speakers):
        del body["content"]
        body["parts"] = [text]
        if any(m["role"] == "model" for m in speakers) and role_of(body) == AI:
            body["role"] = "model"
        return
    contents = [m.get("content") for m in speakers]
    if all(isinstance(c, (list, tuple)) for c in contents):
        blocks = [block for c in contents if c for block in c]
        if all(isinstance(block, Mapping) and "type" not in block for block in blocks):
            body["content"] = [text]


def _object_like(message: Mapping[str, Any], neighbours: Sequence[Any], id_: str) -> Any:
    role = role_of(message)
    same_role = [
        m
        for m in neighbours
        if not isinstance(m, Mapping) and role_of(m) == role and not tool_calls(m)
    ]
    make = _langchain_class(neighbours[0], role)
    if make is not None:
        extra = {k: v for k, v in message.items() if k not in ("role", "type", "id")}
        # LangChain's own mark of a summary, by which a user interface leaves it out.
        extra.setdefault("additional_kwargs", {"lc_source": "summarization"})
        return make(**extra, id=id_)
    if not same_role:
        raise TypeError(
            f"cannot make a {role} message like the {type(neighbours[0]).__name__} beside it: "
            "return messages of that class from summary_message_factory"
        )
    copied = copy.copy(same_role[0])
    copied.content, copied.id = field(message, "content"), id_
    return copied


def _langchain_class(neighbour: Any, role: str) -> Callable[..., Any] | None:
    """Return LangChain's class for a role, if the neighbour is a message of LangChain's."""
    ours = any(base.__module__.startswith(_LANGCHAIN) for base in type(neighbour).__mro__)
    module = sys.modules.get(_LANGCHAIN)
    name = _LANGCHAIN_CLASSES.get(role)
    if not ours or module is None or name is None:
        return None
    found: Callable[..., Any] | None = getattr(module, name, None)
    return found
