"""Tool calls, results and thinking that stand in the content of a message.

Anthropic names them by a block's `type`, Bedrock and Gemini by its only key. A call that the
provider runs itself (`server_tool_use`, say) has its result in the same message and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "tool-call"})
_RESULT_TYPES = frozenset({"tool_result", "tool-result", "function_call_output"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_CALL_KEYS = ("toolUse", "functionCall", "function_call")
_RESULT_KEYS = ("toolResult", "functionResponse", "function_response")
_CALL_IDS = ("call_id", "toolUseId", "toolCallId", "id")
_RESULT_IDS = ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")


class Scanned(NamedTuple):
    """What stands in the content of a message.

    Attributes:
        calls: The blocks that call a tool.
        results: The blocks that answer a call.
        thinks: Whether there is thinking among them.
    """

    calls: list[Any]
    results: list[Any]
    thinks: bool


def scan(content: Any) -> Scanned:
    """Look for calls, results and thinking in a message's content.

    Args:
        content: A text or a list of blocks, each a dict or an object of a provider's library.

    Returns:
        What was found; nothing in a text.
    """
    calls: list[Any] = []
    results: list[Any] = []
    thinks = False
    if not isinstance(content, (list, tuple)):
        return Scanned(calls, results, thinks)
    for block in content:
        if isinstance(block, str):
            continue
        kind = part(block, "type")
        if kind == "non_standard":
            block = part(block, "value")
            kind = part(block, "type")
        if kind in _CALL_TYPES:
            calls.append(block)
        elif kind in _RESULT_TYPES:
            results.append(block)
        elif kind in _THINKING_TYPES or part(block, "reasoningContent"):
            thinks = True
        elif not isinstance(kind, str):
            calls.extend(_under(block, _CALL_KEYS))
            results.extend(_under(block, _RESULT_KEYS))
    return Scanned(calls, results, thinks)


def call_id(call: Any) -> Any:
    """Return the id of a call, `None` where it has none."""
    return _first(call, _CALL_IDS)


def result_id(result: Any) -> Any:
    """Return the id of the call that a block answers, `None` where it names none."""
    return _first(result, _RESULT_IDS)


def part(item: Any, name: str) -> Any:
    """Return a field of a dict or an attribute of an object, `None` where there is none."""
    return item.get(name) if isinstance(item, (dict, Mapping)) else getattr(item, name, None)


def _under(block: Any, keys: tuple[str, ...]) -> list[Any]:
    return [found for key in keys if (found := part(block, key)) is not None]


def _first(item: Any, names: tuple[str, ...]) -> Any:
    return next((found for name in names if (found := part(item, name))), None)
