"""Counting the tokens of a message."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from .messages import call_text, field, stable_json, tool_calls

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
"""English text has about four characters a token."""

MESSAGE_OVERHEAD = 4
"""Tokens that a chat format spends on a message beside its text."""

MEDIA_TOKENS = 256
"""What an image, a sound or a file is taken to cost: its encoded bytes say nothing of it."""

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk"})
_TEXT_FIELDS = ("text", "thinking", "reasoning", "refusal")


def resolve_token_counter(
    token_counter: Callable[[Any], int] | None = None,
) -> Callable[[Any], int]:
    """Return a function that counts the tokens of one message.

    Args:
        token_counter: Used as it is when given. Otherwise `tiktoken` counts when it is installed
            and has its encoding at hand, and else a quarter of the characters.

    Returns:
        A function from a message to its tokens. The built-in ones count text, reasoning, and the
        name and arguments of tool calls, a flat number for media, and a few tokens of overhead.
    """
    if token_counter is not None:
        return token_counter
    encode = _encoder()
    if encode is None:
        return lambda message: _heuristic(message_text(message)) + _fixed(message)
    return lambda message: encode(message_text(message)) + _fixed(message)


def message_text(message: Any) -> str:
    """Return all text of a message that a model reads.

    Args:
        message: A message of any supported shape.

    Returns:
        Content, then tool calls. A call that stands in both is taken once.
    """
    calls = tool_calls(message)
    parts = [text for text, _ in _blocks(field(message, "content"), skip_calls=bool(calls))]
    parts.extend(call_text(call) for call in calls)
    return "\n".join(part for part in parts if part)


def _fixed(message: Any) -> int:
    media = sum(media for _, media in _blocks(field(message, "content"), skip_calls=True))
    return MESSAGE_OVERHEAD + media * MEDIA_TOKENS


def _blocks(content: Any, *, skip_calls: bool) -> list[tuple[str, int]]:
    """Return the text of each content block, with 1 for a block that is media and 0 otherwise."""
    if content is None or isinstance(content, str):
        return [(content or "", 0)]
    if not isinstance(content, (list, tuple)):
        return [(stable_json(content), 0)]
    return [_block(block, skip_calls=skip_calls) for block in content]


def _block(block: Any, *, skip_calls: bool) -> tuple[str, int]:
    if isinstance(block, str):
        return block, 0
    if not isinstance(block, Mapping):
        return stable_json(block), 0
    for name in _TEXT_FIELDS:
        if isinstance(block.get(name), str):
            return block[name], 0
    if block.get("type") in _CALL_BLOCKS:
        return ("" if skip_calls else stable_json(block)), 0
    if block.get("type") in ("json", "tool_result", "non_standard"):
        return stable_json(block), 0
    return "", 1


def _heuristic(text: str) -> int:
    return max(1, len(text) // CHARACTERS_PER_TOKEN) if text else 0


@functools.cache
def _encoder() -> Callable[[str], int] | None:
    """Return tiktoken's counter, or `None` where it is missing or cannot load its encoding."""
    try:
        import tiktoken
    except ImportError:
        return None
    try:
        encoding = tiktoken.get_encoding("cl100k_base")
    except Exception as error:  # it downloads the encoding on first use
        logger.warning(
            "tiktoken cannot load cl100k_base (%s): tokens are estimated from characters", error
        )
        return None
    # Text that looks like a special token ("<|endoftext|>") is text here, not an error.
    return lambda text: len(encoding.encode(text, disallowed_special=()))
