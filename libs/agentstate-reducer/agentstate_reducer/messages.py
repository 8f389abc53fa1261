"""Reading messages without importing the library that made them.

One function, `read`, turns a message of any supported shape into `Facts`. Supported are plain
dicts in the OpenAI form (`{"role": "assistant", "tool_calls": [...]}`), items of OpenAI's Responses
API, dicts with calls and results in their content as Anthropic, Bedrock and Gemini write them, the
three LangChain forms (`{"type": "ai", ...}`, `{"type": "ai", "data": {...}}` and the `lc`/`kwargs`
form of `dumpd`), and objects with the attributes of a LangChain message, chunks included.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .blocks import call_id, part, result_id, scan

HUMAN = "human"
AI = "ai"
TOOL = "tool"
FUNCTION = "function"
REMOVE = "remove"
INSTRUCTIONS = frozenset({"system", "developer"})
RESULTS = frozenset({TOOL, FUNCTION})

REMOVE_ALL = "__remove_all__"

_ALIASES = {
    "user": HUMAN,
    "assistant": AI,
    "agent": AI,
    "model": AI,
    "bot": AI,
    "mcp_approval_response": TOOL,
}
# Items of OpenAI's Responses API that are named otherwise than `..._call`.
_ITEMS = frozenset({"reasoning", "compaction", "mcp_list_tools", "mcp_approval_request"})
_SUFFIXES = ("messagechunk", "message")
_ARGUMENTS = ("arguments", "args", "input", "action")
_DICTS = (dict, Mapping)  # a plain dict is recognised without the slow way of an abstract class


class UnknownMessageShape(TypeError):
    """A message that is neither a dict nor an object with a role.

    Attributes:
        message: The value that could not be read.
    """

    def __init__(self, message: Any) -> None:
        super().__init__(
            f"cannot read a {type(message).__name__} as a message: expected a dict with 'role' or "
            "'type', or an object with 'role' or 'type' (a LangChain message, say)"
        )
        self.message = message


class Facts(NamedTuple):
    """What the reducer needs to know of one message.

    Attributes:
        role: Normalised role: `human`, `ai`, `tool`, `function`, `system`, `developer`, `remove`
            or whatever else the message says, in lower case. A user's message that holds results
            is a `tool` message.
        id: The message's id, or `None`.
        calls: The ids of the tool calls it makes; `None` for a call without an id.
        answers: The ids of the tool calls that it answers; `None` for one it does not name.
        thinks: Whether there is thinking in it.
        item: Whether it is a part of a model's answer that goes with the parts beside it: an item
            of OpenAI's Responses API.
    """

    role: str
    id: str | None
    calls: tuple[str | None, ...] = ()
    answers: tuple[str | None, ...] = ()
    thinks: bool = False
    item: bool = False

    @property
    def reasoning(self) -> bool:
        """Whether it is reasoning alone, which is refused without the item after it."""
        return self.item and self.thinks


def read(message: Any) -> Facts:
    """Read one message.

    Args:
        message: A message of any supported shape.

    Returns:
        Its facts.

    Raises:
        UnknownMessageShape: The value has no role.
    """
    role = role_of(message)
    id_ = _text_or_none(field(message, "id"))
    content = content_of(message)
    if role == AI:
        found = scan(content)
        calls = [_text_or_none(call_id(call)) for call in tool_calls(message)]
        item = _is_item(message)
        thinks = found.thinks or (item and message.get("type") == "reasoning")
        return Facts(role, id_, tuple(dict.fromkeys(calls)), (), thinks, item)
    if role in INSTRUCTIONS or role == REMOVE:
        return Facts(role, id_)
    answers = tuple(_text_or_none(result_id(result)) for result in scan(content).results)
    if role in RESULTS:
        named = _text_or_none(answered_call(message))
        return Facts(role, id_, (), answers if answers and named is None else (named,))
    return Facts(TOOL if answers else role, id_, (), answers)


def role_of(message: Any) -> str:
    """Return the normalised role of a message.

    Args:
        message: A message of any supported shape.

    Returns:
        The role in lower case, aliases resolved.

    Raises:
        UnknownMessageShape: The value has no role.
    """
    raw = _raw_role(message)
    if not isinstance(raw, str) or not raw:
        raise UnknownMessageShape(message)
    role = _normal(raw)
    if role == "chat":  # a ChatMessage says who speaks in another field
        said = field(message, "role")
        role = _normal(said) if isinstance(said, str) and said else role
    return role


@functools.lru_cache(maxsize=256)
def _normal(raw: str) -> str:
    role = raw.lower()
    for suffix in _SUFFIXES:
        if role.endswith(suffix) and role != suffix:
            role = role[: -len(suffix)]
            break
    if role.endswith("_call_output"):
        return TOOL
    if role.endswith("_call") or role in _ITEMS:
        return AI
    return _ALIASES.get(role, role)


def field(message: Any, name: str) -> Any:
    """Return a field of a message, wherever its shape keeps it.

    Args:
        message: A message of any supported shape.
        name: The field's name, `content` say.

    Returns:
        The value, or `None` when the message has no such field.
    """
    if isinstance(message, _DICTS):
        return _body(message).get(name)
    return getattr(message, name, None)


def content_of(message: Any) -> Any:
    """Return what a message says, under whatever name its shape keeps it.

    Args:
        message: A message of any supported shape.

    Returns:
        Its `content`; else Gemini's `parts`, or the `output` or `summary` of a Responses item.
    """
    content = field(message, "content")
    if content is not None:
        return content
    for name in ("parts", "output", "summary"):
        found = field(message, name)
        if found is not None and not callable(found):
            return found
    return None


def tool_calls(message: Any) -> list[Any]:
    """Return the tool calls of an AI message, in whatever form they have.

    Args:
        message: A message of any supported shape.

    Returns:
        The calls, malformed ones included: they have ids and are answered too.
    """
    calls = _listed(field(message, "tool_calls")) + _listed(field(message, "invalid_tool_calls"))
    if calls:
        return calls
    extra = field(message, "additional_kwargs")
    if extra and isinstance(extra, _DICTS):
        calls = _listed(extra.get("tool_calls"))
        if not calls and extra.get("function_call"):
            calls = [extra["function_call"]]
    if not calls and isinstance(message, _DICTS):  # forms that only dicts have
        if message.get("function_call"):
            return [message["function_call"]]
        if message.get("call_id") or message.get("type") == "mcp_approval_request":
            return [message]  # an item of OpenAI's Responses API
    return calls or scan(content_of(message)).calls


def answered_call(message: Any) -> Any:
    """Return the id of the tool call that a result answers.

    Args:
        message: A result, of any supported shape.

    Returns:
        The id, or `None`.
    """
    answers = field(message, "tool_call_id")
    if answers is None and isinstance(message, _DICTS):
        answers = message.get("call_id") or message.get("approval_request_id")
        if answers is None and message.get("type") == "local_shell_call_output":
            answers = message.get("id")
    return answers


def call_text(call: Any) -> str:
    """Return the name and arguments of a tool call as text.

    Args:
        call: A tool call as `tool_calls` returns it.

    Returns:
        Name and arguments, the latter as they stand when they are text and as JSON otherwise.
    """
    function = part(call, "function")
    source = function if function is not None else call
    arguments = next(
        (found for key in _ARGUMENTS if (found := part(source, key)) is not None), None
    )
    name = part(source, "name") or ""
    if arguments is None:
        return str(name)
    return f"{name} {arguments if isinstance(arguments, str) else stable_json(arguments)}"


def stable_json(value: Any) -> str:
    """Return a text that is equal for equal values, before and after they were stored.

    Args:
        value: Anything. What JSON cannot say is written with `repr`.

    Returns:
        JSON with sorted keys; tuples and lists look the same.
    """
    try:
        return json.dumps(value, sort_keys=True, default=repr, ensure_ascii=False)
    except (TypeError, ValueError):  # keys of mixed types, or a value that contains itself
        return repr(value)


def as_list(messages: Any) -> list[Any]:
    """Return messages as a list: a single message becomes a list of one.

    Args:
        messages: `None`, one message, or any iterable of messages.

    Returns:
        A new list.
    """
    if messages is None:
        return []
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        return [messages]
    if hasattr(messages, "content"):  # a pydantic message iterates over its fields
        return [messages]
    return list(messages)


def _raw_role(message: Any) -> Any:
    if isinstance(message, _DICTS):
        raw = message.get("role") or message.get("type")
        if raw == "constructor" and isinstance(message.get("id"), (list, tuple)):
            return message["id"][-1] if message["id"] else None
        return raw
    return getattr(message, "type", None) or getattr(message, "role", None)


def _body(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if "content" in message:
        return message
    for key in ("data", "kwargs"):
        inner = message.get(key)
        if isinstance(inner, _DICTS):
            return inner
    return message


def _listed(value: Any) -> list[Any]:
    return list(value) if value and isinstance(value, (list, tuple)) else []


def _is_item(message: Any) -> bool:
    """Tell whether an AI message is an item of the Responses API that has no role of its own."""
    if not isinstance(message, _DICTS) or message.get("role"):
        return False
    kind = message.get("type")
    return isinstance(kind, str) and (kind in _ITEMS or kind.endswith("_call"))


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
