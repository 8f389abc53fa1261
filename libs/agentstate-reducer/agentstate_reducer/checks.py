"""Refusing settings that cannot work, when they are made."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import ReducerConfig

_NUMBERS = ("min_messages", "summary_retries", "dedupe_window", "max_batch")
_NUMBERS_OR_NONE = (
    "max_messages",
    "max_tokens",
    "target_tokens",
    "keep_results",
    "max_summary_tokens",
    "max_attempts",
)
_BOOLEANS = ("preserve_first", "cascade_tool_messages", "inject_summary", "dedupe_on_prune")
_FUNCTIONS = ("summarize_fn", "summary_message_factory", "pin", "on_dead_letter", "namespace")
_AT_LEAST_ONE = ("max_batch", "max_attempts")


def check_types(config: ReducerConfig) -> None:
    """Refuse settings of a wrong type.

    Args:
        config: The settings.

    Raises:
        TypeError: One has the wrong type.
        ValueError: A number is negative.
    """
    for name in (*_NUMBERS, *_NUMBERS_OR_NONE):
        value = getattr(config, name)
        if value is None and name in _NUMBERS_OR_NONE:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(name, value, "a whole number")
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    for name in _AT_LEAST_ONE:
        if getattr(config, name) == 0:
            raise ValueError(f"{name} must be at least 1, got 0")
    for name in _BOOLEANS:
        if not isinstance(getattr(config, name), bool):
            raise _wrong(name, getattr(config, name), "True or False")
    for name in _FUNCTIONS:
        value = getattr(config, name)
        if value is not None and not callable(value):
            raise _wrong(name, value, "a function")
    counter = config.token_counter
    if not (counter is None or callable(counter) or hasattr(counter, _COUNTS)):
        raise _wrong("token_counter", counter, "a function or a chat model")
    if not isinstance(config.namespace_key, str):
        raise _wrong("namespace_key", config.namespace_key, "a text")
    if isinstance(config.exclude_tools, str) or not isinstance(config.exclude_tools, Collection):
        raise _wrong("exclude_tools", config.exclude_tools, "a list of names")
    _check_hooks(config.on_prune)


_COUNTS = "get_num_tokens_from_messages"


def check_sense(config: ReducerConfig) -> None:
    """Refuse settings that would do nothing, or contradict each other.

    Args:
        config: The settings.

    Raises:
        TypeError: `summarize` is no model.
        ValueError: A setting does nothing without another.
    """
    model = config.summarize
    if model is not None and not hasattr(model, "invoke"):
        hint = "; a function goes into summarize_fn" if callable(model) else ""
        raise TypeError(
            f"summarize must be a chat model, or have a method invoke, and is a "
            f"{type(model).__name__}{hint}"
        )
    if model is not None and config.summarize_fn is not None:
        raise ValueError("summarize and summarize_fn were both given: one of them makes summaries")
    summarizes = model is not None or config.summarize_fn is not None
    for name in ("inject_summary", "max_summary_tokens", "summary_message_factory"):
        if getattr(config, name) and not summarizes:
            raise ValueError(f"{name} does nothing without summarize or summarize_fn")
    for name in ("target_tokens", "keep_results"):
        if getattr(config, name) is not None and config.max_tokens is None:
            raise ValueError(f"{name} does nothing without max_tokens")
    if config.on_dead_letter is not None and config.max_attempts is None:
        raise ValueError("on_dead_letter does nothing without max_attempts")
    no_limit = config.max_messages is None and config.max_tokens is None
    if no_limit and config.chose_low_mark and config.min_messages:
        raise ValueError(
            f"min_messages={config.min_messages} never prunes without max_messages: it says how "
            "many messages are left when there are more than max_messages"
        )


def _check_hooks(hooks: Any) -> None:
    if isinstance(hooks, (str, bytes)) or not isinstance(hooks, Collection):
        raise _wrong("on_prune", hooks, "a list of functions")
    for hook in hooks:
        if not callable(hook):
            raise _wrong("a hook in on_prune", hook, "a function of messages and namespace")


def _wrong(name: str, value: Any, wanted: str) -> TypeError:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    return TypeError(f"{name} must be {wanted}, and is a {type(value).__name__}: {shown}")
