"""Settings and results of the reducer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks import check_sense, check_types

DEFAULT_NAMESPACE_KEY = "memory_namespace"


class PrunedMessages(list[Any]):
    """The messages a hook receives: a list, with a stable key for each message.

    Attributes:
        keys: One text a message, the same whenever that message is handed over again, in another
            process too. Store under it and a repeated delivery overwrites itself.
    """

    def __init__(self, messages: Sequence[Any] = (), keys: Sequence[str] = ()) -> None:
        super().__init__(messages)
        self.keys: tuple[str, ...] = tuple(keys)


RememberFn = Callable[[PrunedMessages, Any], Any]
"""A hook: called with the pruned messages, oldest first, and the namespace. Sync or async."""

DeadLetterFn = Callable[[BaseException, PrunedMessages, Any], Any]
"""Called with the exception, the messages and the namespace. Sync or async."""


class _Default(int):
    """A number that nobody chose, to tell it from the same number that somebody did."""


@dataclass
class ReducerConfig:
    """Settings of a `MessageReducer`.

    Messages are counted unless `max_tokens` is set; then tokens are. Where both `max_messages` and
    `max_tokens` are given, both bounds hold.

    Attributes:
        min_messages: Low mark, in messages: pruning goes on down to it where the rules allow. The
            smaller of this and `max_messages` counts.
        max_messages: High mark, in messages: pruning begins above it, and never leaves more than
            this, a summary and the instructions included. `None`: messages are not counted.
        max_tokens: High mark, in tokens. `None`: tokens are not counted.
        target_tokens: Low mark, in tokens; the smaller of this and `max_tokens` counts. `None`:
            `max_tokens`.
        token_counter: From a message, or from a list of messages, to tokens; sync or async. Which
            of the two it takes is read from its signature: `count_tokens_approximately`, a chat
            model, or its `get_num_tokens_from_messages` take lists, and count an AI message
            together with the results of its calls. Counts are remembered, so each message is
            counted once. `None`: `tiktoken` if installed, else an estimate from characters.
        preserve_first: Keep a system or developer message that stands first. It gives way only to
            an unanswered question, with its tool exchange, in a window too small for both.
        pin: From a message to whether it must stay. It stays even where that passes the bound, its
            tool exchange with it, and the question and the answer of its turn.
        keep_results: With `max_tokens`: before any turn goes, results of tools and images older
            than the newest so many are shortened. `None`: none is.
        exclude_tools: Names of tools whose results are never shortened.
        cascade_tool_messages: An AI message and the results of its tool calls stay or go together.
            `False` treats results as messages of their own; a model provider may refuse what is
            left.
        summarize: A chat model, or anything else with an `invoke` method that takes a text: it is
            asked to extend the last summary by what was pruned, and its answer is put in the
            place of that. Instead of `summarize_fn`.
        summarize_fn: From an earlier summary and the pruned messages to a summary: a text or a
            message. Sync or async. When it fails, or answers nothing, its messages stay for the
            next call.
        summary_retries: How many times to ask again, at once, when a summary fails.
        max_summary_tokens: What is longer is cut; a model in `summarize` is told so, and asked
            once to shorten. `None`: any length.
        inject_summary: Put the summary in the place of what was pruned.
        summary_message_factory: From the summary and the number of messages it covers to the
            messages to put in. `None`: `default_summary_messages_factory`.
        on_prune: Hooks, each called with the pruned messages and the namespace. One function is
            taken as a list of one.
        namespace_key: Where integrations look for the namespace in their configuration.
        dedupe_on_prune: Hand each turn to each hook once. `False`: at every prune, whatever went
            before.
        dedupe_window: How many turns of a namespace to remember as handed over; never fewer than
            the list at hand has.
        max_batch: How many messages a hook gets in one call at the most.
        max_attempts: How many saves try to hand messages to a hook that fails on them. After that
            it gets them one by one, and those it fails on again are given to `on_dead_letter`, so
            that they hold up nothing behind them. `None`: they are tried for ever.
        on_dead_letter: With `max_attempts`: called with the exception, the messages and the
            namespace. Sync or async. When it raises, the messages are kept. `None`: the keys of
            the messages are logged.
        namespace: From the config of a run, and its runtime context if it has one, to the
            namespace: instead of `namespace_key`.

    Raises:
        TypeError: A setting has the wrong type.
        ValueError: A number is negative, or a setting does nothing without another.
    """

    min_messages: int = _Default(10)
    max_messages: int | None = _Default(20)
    max_tokens: int | None = None
    target_tokens: int | None = None
    token_counter: Any = None
    preserve_first: bool = True
    cascade_tool_messages: bool = True
    summarize_fn: Callable[[list[Any]], Any] | None = None
    inject_summary: bool = False
    summary_message_factory: Callable[[str, int], list[Any]] | None = None
    on_prune: list[RememberFn] = field(default_factory=list)
    namespace_key: str = DEFAULT_NAMESPACE_KEY
    dedupe_on_prune: bool = True
    dedupe_window: int = 10_000
    pin: Callable[[Any], bool] | None = None
    keep_results: int | None = None
    exclude_tools: Collection[str] = ()
    summarize: Any = None
    summary_retries: int = 1
    max_summary_tokens: int | None = None
    max_batch: int = 500
    max_attempts: int | None = None
    on_dead_letter: DeadLetterFn | None = None
    namespace: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work; take `None` for no hooks and a function for one."""
        if self.on_prune is None:
            # Not by its type, but callers without a type checker say so.
            self.on_prune = []  # type: ignore[unreachable]
        elif callable(self.on_prune):
            self.on_prune = [self.on_prune]
        if self.summarize is not None:
            self.inject_summary = True
        check_types(self)
        check_sense(self)

    @property
    def counts_messages(self) -> bool:
        """Whether `max_messages` holds: it does not beside `max_tokens` unless it was chosen."""
        if self.max_messages is None:
            return False
        return self.max_tokens is None or not isinstance(self.max_messages, _Default)

    @property
    def chose_low_mark(self) -> bool:
        """Whether somebody chose `min_messages`."""
        return not isinstance(self.min_messages, _Default)

    def __deepcopy__(self, memo: Any) -> ReducerConfig:
        """Return a copy with the same hooks, models and functions: they are not data."""
        return dataclasses.replace(self, on_prune=list(self.on_prune))


@dataclass
class ReducerResult:
    """What `MessageReducer.reduce` did.

    Attributes:
        surviving: The messages that stay, a summary included.
        pruned: The messages that went, oldest first. An earlier summary is not among them.
        summary: The summary of what was pruned, if there is one.
        shortened: The messages that stay with less in them, as they were. Hooks get them, too.
    """

    surviving: list[Any] = field(default_factory=list)
    pruned: list[Any] = field(default_factory=list)
    summary: str | None = None
    shortened: list[Any] = field(default_factory=list)
