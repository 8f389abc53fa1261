"""Shortening old results of tools and old images, before whole turns have to go."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .blocks import call_id, part, scan
from .messages import AI, RESULTS, Facts, content_of, field, stable_json, tool_calls
from .tokens import media_in

CHARACTERS_KEPT = 200
"""How much of a result's beginning stays."""

REMOVED = "[an image or file was removed here]"

_CUT_TEXT = re.compile(rf".{{{CHARACTERS_KEPT}}}\n\[\d+ characters were removed here\]", re.DOTALL)


def shorten_old(
    messages: Sequence[Any], facts: Sequence[Facts], keep: int, exclude: Collection[str]
) -> dict[int, Any]:
    """Return shortened copies of the messages that may be shortened.

    Args:
        messages: All messages, oldest first.
        facts: One entry a message.
        keep: How many results and messages with images, the newest, stay as they are. What the
            model has not answered yet does so, too.
        exclude: Names of tools whose results stay.

    Returns:
        The copies by index. A message in which there is nothing to shorten is not among them.
    """
    seen = max((i for i, fact in enumerate(facts) if fact.role == AI), default=0)
    names: dict[Any, Any] = {}
    found: list[tuple[int, Collection[Any]]] = []
    for i, fact in enumerate(facts):
        if fact.role == AI:
            for call in tool_calls(messages[i]):
                name = part(part(call, "function"), "name") or part(call, "name")
                names[call_id(call)] = name
        elif fact.role in RESULTS:
            own = field(messages[i], "name")
            tools: Collection[Any] = [own, *(names.get(answer) for answer in fact.answers)]
            found.append((i, tools))
        elif media_in(messages[i]):
            found.append((i, ()))
    old = found[: max(0, len(found) - keep)]
    copies: dict[int, Any] = {}
    for i, called in old:
        if i < seen and not set(called) & set(exclude):
            shortened = _shorter(messages[i], whole=facts[i].role in RESULTS)
            if shortened is not None:
                copies[i] = shortened
    return copies


def is_shortened(message: Any) -> bool:
    """Tell whether a message was shortened here: what it said was handed over then.

    Args:
        message: A message of any supported shape.
    """
    return _has_note(content_of(message), depth=0)


def _has_note(content: Any, depth: int) -> bool:
    if isinstance(content, str):
        return content == REMOVED or bool(_CUT_TEXT.fullmatch(content))
    if depth > 6:  # no deeper than a text in a block in a result in a message
        return False
    if isinstance(content, Mapping):
        content = list(content.values())
    if not isinstance(content, (list, tuple)):
        return False
    return any(_has_note(item, depth + 1) for item in content)


def _shorter(message: Any, *, whole: bool) -> Any:
    """Return a copy with less in it, or `None` when nothing would be less."""
    content = content_of(message)
    less = _less_content(content, whole=whole)
    if less is None:
        return None
    if not isinstance(message, Mapping):
        if hasattr(message, "model_copy"):
            return message.model_copy(update={"content": less})
        copied = copy.copy(message)
        copied.content = less
        return copied
    if "content" not in message:
        for key in ("data", "kwargs"):
            if isinstance(message.get(key), Mapping):
                return {**message, key: {**message[key], "content": less}}
    name = next(n for n in ("content", "parts", "output") if message.get(n) is not None)
    return {**message, name: less}


def _less_content(content: Any, *, whole: bool) -> Any:
    """Return content with media replaced and, in a result, the text cut; `None` if unchanged."""
    if isinstance(content, str):
        return _less_text(content) if whole else None
    if not isinstance(content, (list, tuple)):
        return None
    blocks = [_less_block(block, whole=whole) for block in content]
    if all(new is None for new in blocks):
        return None
    return [old if new is None else new for old, new in zip(content, blocks, strict=True)]


def _less_block(block: Any, *, whole: bool) -> Any:
    if isinstance(block, str):
        return _less_text(block) if whole else None
    if not isinstance(block, Mapping):
        return None
    results = scan([block]).results
    if results:
        return _less_result(block)
    if whole and isinstance(block.get("text"), str):
        less = _less_text(block["text"])
        return None if less is None else {**block, "text": less}
    if media_in({"role": "user", "content": [block]}):
        return {"type": "text", "text": REMOVED} if "type" in block else {"text": REMOVED}
    return None


def _less_result(block: Mapping[str, Any]) -> Any:
    """Return a content block that is a tool's result with less in it."""
    for key in ("toolResult", "functionResponse", "function_response"):
        inner = block.get(key)
        if not isinstance(inner, Mapping):
            continue
        name = "content" if key == "toolResult" else "response"
        if name == "content":
            less = _less_content(inner.get(name), whole=True)
        else:
            text = _less_text(stable_json(inner.get(name)))
            less = None if text is None else {"output": text}
        return None if less is None else {**block, key: {**inner, name: less}}
    name = "output" if "output" in block else "content"
    less = _less_content(block.get(name), whole=True)
    return None if less is None else {**block, name: less}


def _less_text(text: str) -> str | None:
    removed = len(text) - CHARACTERS_KEPT
    if removed < CHARACTERS_KEPT:
        return None
    return f"{text[:CHARACTERS_KEPT]}\n[{removed} characters were removed here]"
