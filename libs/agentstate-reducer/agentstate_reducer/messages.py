"""Reading messages without importing the library that made them.

One function, `read`, turns a message of any supported shape into `Facts`. Supported are plain
dicts in the OpenAI form (`{"role": "assistant", "tool_calls": [...]}`), in the three LangChain
forms (`{"type": "ai", ...}`, `{"type": "ai", "data": {...}}` and the `lc`/`kwargs` form of
`dumpd`), and objects with the attributes of a LangChain message, chunks included.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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
    "function_call_output": TOOL,
    "function_call": AI,
}
_SUFFIXES = ("messagechunk", "message")
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
            or whatever else the message says, in lower case.
        id: The message's id, or `None`.
        calls: The ids of the tool calls it makes; `None` for a call without an id.
        answers: The id of the tool call that it answers, or `None`.
    """

    role: str
    id: str | None
    calls: tuple[str | None, ...]
    answers: str | None


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
    calls: tuple[str | None, ...] = ()
    answers = None
    if role == AI:
        calls = tuple(_text_or_none(_call_id(call)) for call in tool_calls(message))
    elif role in RESULTS:
        answers = _text_or_none(answered_call(message))
    return Facts(role, _text_or_none(field(message, "id")), calls, answers)


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
        if message.get("call_id"):  # an item of OpenAI's Responses API
            return [message]
    return calls


def answered_call(message: Any) -> Any:
    """Return the id of the tool call that a result answers.

    Args:
        message: A result, of any supported shape.

    Returns:
        The id, or `None`.
    """
    answers = field(message, "tool_call_id")
    if answers is None and isinstance(message, _DICTS):
        answers = message.get("call_id")
    return answers


def call_text(call: Any) -> str:
    """Return the name and arguments of a tool call as text.

    Args:
        call: A tool call as `tool_calls` returns it.

    Returns:
        Name and arguments, the latter as they stand when they are text and as JSON otherwise.
    """
    function = _get(call, "function")
    source = function if function is not None else call
    arguments = _get(source, "arguments")
    if arguments is None:
        arguments = _get(source, "args")
    name = _get(source, "name") or ""
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


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, _DICTS) else getattr(item, name, None)


def _call_id(call: Any) -> Any:
    return _get(call, "call_id") or _get(call, "id")


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
