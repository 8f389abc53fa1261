"""Shortening a list of messages: what goes, and the summary that takes its place."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .calls import Call
from .keys import digest, turn_digest
from .messages import Facts, read
from .models import ReducerConfig
from .summary import build_summary, default_summary_messages_factory, is_summary
from .tokens import resolve_token_counter
from .window import Limits, is_pinned, select

logger = logging.getLogger(__name__)

SUMMARIES_REMEMBERED = 256


@dataclass
class Shortened:
    """A list of messages, shortened.

    Attributes:
        surviving: The messages that stay, a summary included.
        pruned: The messages that went, oldest first, an earlier summary not among them.
        summary: The summary's text, if one was made.
    """

    surviving: list[Any]
    pruned: list[Any]
    summary: str | None = None


@dataclass
class _Draft:
    """A list that is being shortened.

    Attributes:
        messages: All of it.
        facts: One entry a message.
        weights: One a message.
        old: Indices of an earlier summary.
        limits: How much may stay.
    """

    messages: list[Any]
    facts: list[Facts]
    weights: list[int]
    old: list[int]
    limits: Limits

    def weight(self, indices: set[int]) -> int:
        return sum(self.weights[i] for i in indices)

    def pick(self, indices: Sequence[int]) -> list[Any]:
        return [self.messages[i] for i in indices]


class Shortener:
    """Applies a configuration to lists of messages.

    Args:
        config: The settings; they are read anew at each call.
    """

    def __init__(self, config: ReducerConfig) -> None:
        self.config = config
        self._summaries: OrderedDict[str, str | None] = OrderedDict()
        self._lock = threading.Lock()

    def limits(self) -> Limits | None:
        """Return the limits in force, or `None` when nothing is ever pruned."""
        config = self.config
        if config.max_tokens is not None:
            high = config.max_tokens
            low = high if config.target_tokens is None else config.target_tokens
        elif config.max_messages is not None:
            high, low = config.max_messages, config.min_messages
        else:
            return None
        return Limits(high, min(low, high), config.preserve_first, config.cascade_tool_messages)

    async def shorten(self, messages: Sequence[Any], call: Call) -> Shortened:
        """Prune a list that is over its limit.

        Args:
            messages: The list, oldest first. It is left as it is.
            call: How to call `summarize_fn`.

        Returns:
            The outcome; the same messages when nothing had to go.

        Raises:
            UnknownMessageShape: One of them cannot be read.
        """
        limits = self.limits()
        if limits is None:
            return Shortened(list(messages), [])
        if self.config.max_tokens is None and len(messages) <= limits.high:
            return Shortened(list(messages), [])
        weigh = self._weigh()
        weights = [weigh(m) for m in messages]
        if sum(weights) <= limits.high:
            return Shortened(list(messages), [])
        facts = [read(m) for m in messages]
        old = [i for i, fact in enumerate(facts) if is_summary(fact)]
        draft = _Draft(list(messages), facts, weights, old, limits)
        return await self._settle(draft, weigh, call)

    async def _settle(self, draft: _Draft, weigh: Callable[[Any], int], call: Call) -> Shortened:
        """Choose what stays together with a summary that fits beside it."""
        reserve = self._reserve(draft, weigh)
        for last_try in (False, True):
            keep = select(
                draft.facts, draft.weights, draft.limits, summaries=draft.old, reserve=reserve
            )
            gone = [i for i in range(len(draft.messages)) if i not in keep and i not in draft.old]
            text, block = await self._summarize(draft, keep, gone, call)
            size = sum(weigh(m) for m in block)
            kept_weight = draft.weight(keep)
            if not block or size + kept_weight <= draft.limits.high:
                break
            if kept_weight > draft.limits.high:
                break  # an open tool exchange passes the bound already: the summary is not lost too
            if last_try:
                logger.warning(
                    "a summary of weight %d does not fit beside %d of %d: it is left out",
                    size,
                    kept_weight,
                    draft.limits.high,
                )
                block = []
            reserve = size
        at = 1 if draft.limits.pin and is_pinned(draft.facts, draft.old) and 0 in keep else 0
        surviving = draft.pick(sorted(keep))
        surviving[at:at] = block
        return Shortened(surviving, draft.pick(gone), text)

    def _weigh(self) -> Callable[[Any], int]:
        if self.config.max_tokens is None:
            return lambda message: 1
        return resolve_token_counter(self.config.token_counter)

    def _reserve(self, draft: _Draft, weigh: Callable[[Any], int]) -> int:
        """Return the room that a summary will need, as far as that can be told beforehand."""
        old = sum(draft.weights[i] for i in draft.old)
        if self.config.summarize_fn is None or not self.config.inject_summary or old:
            return old
        if self.config.summary_message_factory is not None:
            return 1
        return sum(weigh(m) for m in default_summary_messages_factory("", 0))

    async def _summarize(
        self, draft: _Draft, keep: set[int], gone: list[int], call: Call
    ) -> tuple[str | None, list[Any]]:
        """Return the summary and the messages to put in the place of what went."""
        old = draft.pick(draft.old)
        if self.config.summarize_fn is None or not gone:
            return None, old
        seed = digest(*(turn_digest(draft.messages[i], "") for i in (*draft.old, *gone)))
        text = await self._text(seed, old + draft.pick(gone), call)
        if text is None or not self.config.inject_summary:
            return text, old if text is None else []
        body = [i for i in sorted(keep) if not (i == 0 and is_pinned(draft.facts, draft.old))]
        neighbours = draft.pick(body) + draft.pick(gone[::-1]) + draft.pick([*keep])
        factory = self.config.summary_message_factory or default_summary_messages_factory
        try:
            return text, build_summary(text, len(gone), factory, neighbours, seed)
        except Exception:
            logger.warning("the summary's messages could not be made", exc_info=True)
            return text, old

    async def _text(self, seed: str, messages: list[Any], call: Call) -> str | None:
        """Summarize messages, once for the same ones; `None` when that fails."""
        with self._lock:
            if seed in self._summaries:
                self._summaries.move_to_end(seed)
                return self._summaries[seed]
        assert self.config.summarize_fn is not None
        try:
            text: str | None = await call(self.config.summarize_fn, messages) or None
        except Exception:
            logger.warning(
                "summarize_fn failed on %d messages; they are pruned without a summary",
                len(messages),
                exc_info=True,
            )
            return None
        with self._lock:
            self._summaries[seed] = text
            while len(self._summaries) > SUMMARIES_REMEMBERED:
                self._summaries.popitem(last=False)
        return text
