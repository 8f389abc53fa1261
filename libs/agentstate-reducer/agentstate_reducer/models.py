"""Settings and results of the reducer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

RememberFn = Callable[[list[Any], Any], Any]
"""A hook: called with the pruned messages, oldest first, and the namespace. Sync or async."""

DEFAULT_NAMESPACE_KEY = "memory_namespace"

_NOT_NEGATIVE = ("min_messages", "max_messages", "max_tokens", "target_tokens", "dedupe_window")


class PrunedMessages(list[Any]):
    """The messages a hook receives: a list, with a stable key for each message.

    Attributes:
        keys: One text a message, the same whenever that message is handed over again, in another
            process too. Store under it and a repeated delivery overwrites itself.
    """

    def __init__(self, messages: Sequence[Any] = (), keys: Sequence[str] = ()) -> None:
        super().__init__(messages)
        self.keys: tuple[str, ...] = tuple(keys)


@dataclass
class ReducerConfig:
    """Settings of a `MessageReducer`.

    Messages are counted unless `max_tokens` is set; then tokens are, and `min_messages` and
    `max_messages` say nothing.

    Attributes:
        min_messages: Low mark, in messages: pruning goes on down to it where the rules allow. The
            smaller of this and `max_messages` counts.
        max_messages: High mark, in messages: pruning begins above it, and never leaves more than
            this, a summary and the instructions included. `None`: messages are not counted.
        max_tokens: High mark, in tokens. `None`: tokens are not counted.
        target_tokens: Low mark, in tokens; the smaller of this and `max_tokens` counts. `None`:
            `max_tokens`.
        token_counter: From a message to its tokens, called once a message. `None`: `tiktoken` if
            installed, else an estimate from characters.
        preserve_first: Keep a system or developer message that stands first. It gives way only to
            an unanswered question, with its tool exchange, in a window too small for both.
        cascade_tool_messages: An AI message and the results of its tool calls stay or go together.
            `False` treats results as messages of their own; a model provider may refuse what is
            left.
        summarize_fn: From an earlier summary and the pruned messages to a summary. Sync or async.
        inject_summary: Put the summary in the place of what was pruned.
        summary_message_factory: From the summary and the number of messages pruned to the messages
            to put in. `None`: `default_summary_messages_factory`.
        on_prune: Hooks, each called with the pruned messages and the namespace.
        namespace_key: Where integrations look for the namespace in their configuration.
        dedupe_on_prune: Hand each turn to each hook once. `False`: at every prune, whatever went
            before.
        dedupe_window: How many turns of a namespace to remember as handed over; never fewer than
            the list at hand has.

    Raises:
        ValueError: A number is negative.
    """

    min_messages: int = 10
    max_messages: int | None = 20
    max_tokens: int | None = None
    target_tokens: int | None = None
    token_counter: Callable[[Any], int] | None = None
    preserve_first: bool = True
    cascade_tool_messages: bool = True
    summarize_fn: Callable[[list[Any]], str | Awaitable[str | None] | None] | None = None
    inject_summary: bool = False
    summary_message_factory: Callable[[str, int], list[Any]] | None = None
    on_prune: list[RememberFn] = field(default_factory=list)
    namespace_key: str = DEFAULT_NAMESPACE_KEY
    dedupe_on_prune: bool = True
    dedupe_window: int = 10_000

    def __post_init__(self) -> None:
        """Refuse negative numbers; take `None` for no hooks."""
        if self.on_prune is None:
            # Not by its type, but callers without a type checker say so.
            self.on_prune = []  # type: ignore[unreachable]
        for name in _NOT_NEGATIVE:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative, got {value}")


@dataclass
class ReducerResult:
    """What `MessageReducer.reduce` did.

    Attributes:
        surviving: The messages that stay, a summary included.
        pruned: The messages that went, oldest first. An earlier summary is not among them.
        summary: The summary of what was pruned, if there is one.
    """

    surviving: list[Any] = field(default_factory=list)
    pruned: list[Any] = field(default_factory=list)
    summary: str | None = None
