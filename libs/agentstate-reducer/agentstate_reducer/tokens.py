"""Counting the tokens of a message."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .calls import Call, is_async
from .messages import call_text, content_of, stable_json, tool_calls

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
"""English text has about four characters a token."""

MESSAGE_OVERHEAD = 4
"""Tokens that a chat format spends on a message beside its text."""

MEDIA_TOKENS = 256
"""What an image, a sound or a file is taken to cost: its encoded bytes say nothing of it."""

COUNTS_REMEMBERED = 50_000
"""How many counts a reducer remembers: a few MB at the most, whatever the messages hold."""

_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk"})
_CALL_KEYS = frozenset({"toolUse", "functionCall", "function_call"})
_RESULT_KEYS = frozenset({"toolResult", "functionResponse", "function_response"})
_LISTS = frozenset({"list", "List", "Sequence", "Iterable", "tuple", "Collection"})
_TEXT_FIELDS = ("text", "thinking", "reasoning", "refusal")


class Tally:
    """Counts tokens, and remembers what it counted from one save to the next.

    A count is remembered by everything that is in the message: one that was edited is counted anew.

    Args:
        counter: The counter as the settings have it; `None` for the built-in one.
    """

    def __init__(self, counter: Any = None) -> None:
        self.given = counter
        self.takes_list = counts_lists(counter)
        self._counter = getattr(counter, "get_num_tokens_from_messages", counter)
        self._counts: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()

    async def count(self, groups: Sequence[Sequence[Any]], call: Call) -> list[int]:
        """Count groups of messages, those not counted before only.

        Args:
            groups: One message each, unless the counter takes lists.
            call: Calls the counter, beside the event loop where there is one.

        Returns:
            The tokens of each group.

        Raises:
            TypeError: The counter returned no number.
        """
        if not is_async(self._counter):
            counted: list[int] = await call(self._count, groups)
            return counted
        keys, counts = await call(self._known, groups)
        return [
            self._learn(key, await call(self._counter, self._argument(group)))
            if count is None
            else count
            for key, group, count in zip(keys, groups, counts, strict=True)
        ]

    def _count(self, groups: Sequence[Sequence[Any]]) -> list[int]:
        keys, counts = self._known(groups)
        if None in counts:
            counter = resolve_token_counter(self._counter)
        return [
            self._learn(key, counter(self._argument(group))) if count is None else count
            for key, group, count in zip(keys, groups, counts, strict=True)
        ]

    def _argument(self, group: Sequence[Any]) -> Any:
        return list(group) if self.takes_list else group[0]

    def _known(self, groups: Sequence[Sequence[Any]]) -> tuple[list[int], list[int | None]]:
        keys = [fingerprint(group) for group in groups]
        with self._lock:
            counts = [self._counts.get(key) for key in keys]
            for key, count in zip(keys, counts, strict=True):
                if count is not None:
                    self._counts.move_to_end(key)
        return keys, counts

    def _learn(self, key: int, counted: Any) -> int:
        if isinstance(counted, bool) or not isinstance(counted, (int, float)):
            name = getattr(self._counter, "__name__", type(self._counter).__name__)
            raise TypeError(
                f"token_counter {name} returned a {type(counted).__name__}: expected the number of "
                "tokens of a message"
            )
        count = math.ceil(counted)
        with self._lock:
            self._counts[key] = count
            while len(self._counts) > COUNTS_REMEMBERED:
                self._counts.popitem(last=False)
        return count


def counts_lists(counter: Any) -> bool:
    """Tell whether a token counter takes a list of messages, and not one.

    Args:
        counter: LangChain's `count_tokens_approximately`, a chat model or its
            `get_num_tokens_from_messages`, or a function whose first parameter is annotated as a
            list or, without annotation, called `messages`.
    """
    if counter is None:
        return False
    if hasattr(counter, "get_num_tokens_from_messages"):
        return True
    try:
        parameters = iter(inspect.signature(counter).parameters.values())
    except (TypeError, ValueError):  # some functions written in C do not say
        return False
    first = next(parameters, None)
    if first is None:
        return False
    if first.annotation is inspect.Parameter.empty or first.annotation is Any:
        return first.name == "messages"
    said = first.annotation if isinstance(first.annotation, str) else str(first.annotation)
    return said.split("[")[0].split(".")[-1] in _LISTS


def fingerprint(value: Any) -> int:
    """Return a number that is equal for equal messages, also after they were stored and read.

    Args:
        value: Messages of any shape. It differs from one process to the next.
    """
    return hash(_frozen(value, 0))


def _frozen(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (str, bytes, int, float)):
        return value
    if depth > 40:  # a value that holds itself
        return id(value)
    if isinstance(value, Mapping):
        return tuple(
            sorted(((str(k), _frozen(v, depth + 1)) for k, v in value.items()), key=_first)
        )
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item, depth + 1) for item in value])
    fields = getattr(value, "__dict__", None)
    if isinstance(fields, dict):
        return type(value).__name__, _frozen(fields, depth + 1)
    return repr(value)


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def resolve_token_counter(token_counter: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function that counts tokens.

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
    parts = [text for text, _ in _blocks(content_of(message), skip_calls=bool(calls))]
    parts.extend(call_text(call) for call in calls)
    return "\n".join(part for part in parts if part)


def media_in(message: Any) -> int:
    """Return how many images, sounds and files there are in a message.

    Args:
        message: A message of any supported shape.
    """
    return sum(media for _, media in _blocks(content_of(message), skip_calls=True))


def _fixed(message: Any) -> int:
    return MESSAGE_OVERHEAD + media_in(message) * MEDIA_TOKENS


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
    if not _CALL_KEYS.isdisjoint(block):
        return ("" if skip_calls else stable_json(block)), 0
    return ("", 1) if _RESULT_KEYS.isdisjoint(block) else (stable_json(block), 0)


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
