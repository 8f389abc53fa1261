"""Shortening a list of messages: what goes, and the summary that takes its place."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .calls import Call
from .keys import digest, turn_digest
from .messages import HUMAN, INSTRUCTIONS, Facts, read
from .models import ReducerConfig
from .results import is_shortened, shorten_old
from .summarizing import Summarizer, SummaryFailed
from .summary import build_summary, covered, default_summary_messages_factory, is_summary
from .tokens import Tally
from .units import Weight, fits, group, plus, total
from .window import Apart, Limits, select, settled

logger = logging.getLogger(__name__)

LEAST_READ = 16
"""How many messages of the end to read at first, beside as many as may stay."""


@dataclass
class Shortened:
    """A list of messages, shortened.

    Attributes:
        surviving: The messages that stay, a summary included.
        pruned: The messages that went, oldest first, an earlier summary not among them.
        summary: The summary's text, if one was made.
        edited: The messages that stay with less in them, as they were.
    """

    surviving: list[Any]
    pruned: list[Any]
    summary: str | None = None
    edited: list[Any] = field(default_factory=list)


@dataclass
class _Draft:
    """A list that is being shortened.

    Attributes:
        messages: All of it.
        limits: How much may stay.
        start: From where on it was read.
        facts: One entry a message from there on.
        weights: One a message from there on.
        head: What was read of its beginning, by index: instructions, and an earlier summary.
        pinned: Indices of messages that stay whatever happens.
        originals: The messages that were shortened, by the identity of what they are now.
    """

    messages: list[Any]
    limits: Limits
    start: int
    facts: list[Facts] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    head: dict[int, tuple[Facts, Weight]] = field(default_factory=dict)
    pinned: list[int] = field(default_factory=list)
    originals: dict[int, Any] = field(default_factory=dict)

    @property
    def instructions(self) -> list[int]:
        """The index of leading instructions that are to be kept."""
        fact = self.fact(0)
        leads = self.limits.pin and fact is not None and fact.role in INSTRUCTIONS
        return [0] if leads and fact is not None and not is_summary(fact) else []

    @property
    def old(self) -> list[int]:
        """Indices of an earlier summary."""
        head = [i for i, (fact, _) in self.head.items() if is_summary(fact)]
        tail = [i for i, fact in enumerate(self.facts, self.start) if is_summary(fact)]
        return head + tail

    def fact(self, index: int) -> Facts | None:
        """Return the facts of a message that was read, else `None`."""
        if index >= self.start:
            return self.facts[index - self.start] if index < len(self.messages) else None
        return self.head[index][0] if index in self.head else None

    def keep(self, reserve: Weight) -> set[int]:
        """Choose what stays."""
        places = [*self.head, *range(self.start, len(self.messages))]
        facts = [fact for fact, _ in self.head.values()] + self.facts
        weights = [weight for _, weight in self.head.values()] + self.weights
        at = {place: i for i, place in enumerate(places)}
        apart = Apart(
            [at[i] for i in self.instructions],
            [at[i] for i in self.old],
            [at[i] for i in self.pinned],
        )
        return {places[i] for i in select(facts, weights, self.limits, apart, reserve)}

    def weight(self, indices: Iterable[int]) -> Weight:
        return total(
            (self.weights[i - self.start] if i >= self.start else self.head[i][1] for i in indices),
            like=self.limits.high,
        )

    def pick(self, indices: Iterable[int]) -> list[Any]:
        return [self.messages[i] for i in indices]

    def without(self, indices: Iterable[int]) -> list[Any]:
        """Return the messages at all other places, in time that the few given ones take."""
        rest: list[Any] = []
        start = 0
        for i in sorted(indices):
            rest += self.messages[start:i]
            start = i + 1
        return rest + self.messages[start:]


class Shortener:
    """Applies a configuration to lists of messages.

    Args:
        config: The settings; they are read anew at each call.
    """

    def __init__(self, config: ReducerConfig) -> None:
        self.config = config
        self._summarizer = Summarizer(config)
        self._tally = Tally(config.token_counter)

    def limits(self) -> Limits | None:
        """Return the limits in force, or `None` when nothing is ever pruned."""
        config = self.config
        marks: list[tuple[int, int]] = []
        if config.counts_messages and config.max_messages is not None:
            marks.append((config.max_messages, config.min_messages))
        if config.max_tokens is not None:
            target = config.target_tokens
            marks.append((config.max_tokens, config.max_tokens if target is None else target))
        if not marks:
            return None
        high = tuple(high for high, _ in marks)
        low = tuple(min(low, high) for high, low in marks)
        return Limits(high, low, config.preserve_first, config.cascade_tool_messages)

    async def shorten(self, messages: Sequence[Any], call: Call) -> Shortened:
        """Prune a list that is over its limit.

        Only as much of its end is read as has to be, and its very beginning. All of it is read
        where a message is pinned or a result shortened, or where the token counter takes lists.

        Args:
            messages: The list, oldest first. It is left as it is.
            call: How to call the functions of the application.

        Returns:
            The outcome; the same messages when nothing had to go.

        Raises:
            UnknownMessageShape: One of those that were read cannot be.
        """
        limits = self.limits()
        if limits is None:
            return Shortened(list(messages), [])
        if self.config.max_tokens is None and len(messages) <= limits.high[0]:
            return Shortened(list(messages), [])
        if self._tally.given is not self.config.token_counter:
            self._tally = Tally(self.config.token_counter)
        draft = await self._read(list(messages), limits, call)
        if draft is not None and self.config.keep_results is not None:
            draft = await self._shorten_results(draft, call)
        if draft is None:
            return Shortened(list(messages), [])
        if draft.originals and fits(total(draft.weights, like=limits.high), limits.high):
            return self._outcome(draft, draft.messages, [], None)
        return await self._settle(draft, call)

    async def _read(self, messages: list[Any], limits: Limits, call: Call) -> _Draft | None:
        """Read what decides about a list; `None` when it is within its limits."""
        config = self.config
        whole = config.pin is not None or config.keep_results is not None
        if whole or (config.max_tokens is not None and self._tally.takes_list):
            size = len(messages)
        else:
            size = LEAST_READ + (limits.high[0] if config.counts_messages else 0)
        draft = _Draft(messages, limits, len(messages))
        while True:
            start = max(0, len(messages) - size)
            facts = [read(message) for message in messages[start : draft.start]]
            weights = await self._weigh(messages[start : draft.start], facts, call)
            draft.start = start
            draft.facts, draft.weights = facts + draft.facts, weights + draft.weights
            if start == 0:
                break
            if await self._enough(draft, call):
                return draft
            size *= 2
        if fits(total(draft.weights, like=limits.high), limits.high):
            return None
        if config.pin is not None:
            flags = await call(_each, config.pin, messages)
            draft.pinned = [i for i, flag in enumerate(flags) if flag]
        return draft

    async def _enough(self, draft: _Draft, call: Call) -> bool:
        """Tell whether the end that was read decides; then cut it to that and read the head."""
        first = next((i for i, fact in enumerate(draft.facts) if fact.role == HUMAN), None)
        if first is None or not settled(draft.facts[first:], draft.weights[first:], draft.limits):
            return False
        head: list[Any] = []
        facts: list[Facts] = []
        for i in range(draft.start + first):
            fact = read(draft.messages[i])
            leads = i == 0 and draft.limits.pin and fact.role in INSTRUCTIONS
            if not (leads or is_summary(fact)):
                break
            head.append(draft.messages[i])
            facts.append(fact)
        draft.start += first
        draft.facts, draft.weights = draft.facts[first:], draft.weights[first:]
        weights = await self._weigh(head, facts, call)
        draft.head = dict(enumerate(zip(facts, weights, strict=True)))
        return True

    async def _weigh(
        self, messages: Sequence[Any], facts: Sequence[Facts], call: Call
    ) -> list[Weight]:
        """Return the weight of each message, in each measure."""
        ones = [(1,) if self.config.counts_messages else ()] * len(messages)
        if self.config.max_tokens is None or not messages:
            return list(ones)
        tally = self._tally
        if not tally.takes_list:
            counts = await tally.count([[message] for message in messages], call)
        else:
            # Providers refuse to count a result without its call.
            nothing: Weight = ()
            units = group(facts, [nothing] * len(facts), (), link=True)
            counts = [0] * len(messages)
            groups = [[messages[i] for i in unit.indices] for unit in units]
            for unit, count in zip(units, await tally.count(groups, call), strict=True):
                counts[unit.indices[0]] = count
        return [(*one, count) for one, count in zip(ones, counts, strict=True)]

    async def _shorten_results(self, draft: _Draft, call: Call) -> _Draft:
        keep = self.config.keep_results or 0
        copies = shorten_old(draft.messages, draft.facts, keep, self.config.exclude_tools)
        for i in draft.pinned:
            copies.pop(i, None)
        if self.config.on_prune:
            # Without an id there is no telling, later in a run, that it was handed over already.
            copies = {i: copy for i, copy in copies.items() if draft.facts[i].id is not None}
        draft.originals = {id(copy): draft.messages[i] for i, copy in copies.items()}
        draft.messages = [copies.get(i, m) for i, m in enumerate(draft.messages)]
        if copies:
            draft.weights = await self._weigh(draft.messages, draft.facts, call)
        return draft

    async def _settle(self, draft: _Draft, call: Call) -> Shortened:
        """Choose what stays together with a summary that fits beside it."""
        high = draft.limits.high
        reserve = await self._reserve(draft, call)
        for last_try in (False, True):
            keep = draft.keep(reserve)
            gone = draft.without([*keep, *draft.old])
            try:
                text, block = await self._summarize(draft, keep, gone, call)
            except SummaryFailed:
                if await self._may_wait(draft, call):
                    return self._outcome(draft, draft.messages, [], None)
                text, block = None, draft.pick(draft.old)
            kept = draft.weight(keep)
            facts = [read(message) for message in block]
            size = total(await self._weigh(block, facts, call), like=high)
            if not block or fits(plus(size, kept), high):
                break
            if not fits(kept, high):
                break  # an open tool exchange passes the bound already: the summary is not lost too
            if last_try:
                logger.warning(
                    "a summary of weight %s does not fit beside %s of %s: it is left out",
                    *(sum(weight) for weight in (size, kept, high)),
                )
                block = []
            reserve = size
        at = 1 if draft.instructions and 0 in keep else 0
        surviving = draft.pick(sorted(keep))
        surviving[at:at] = block
        return self._outcome(draft, surviving, gone, text)

    def _outcome(
        self, draft: _Draft, surviving: list[Any], gone: list[Any], text: str | None
    ) -> Shortened:
        """Report each message once, as it was before it was shortened."""
        if self.config.keep_results is None:
            return Shortened(surviving, gone, text)
        pruned = [
            draft.originals.get(id(message), message)
            for message in gone
            if id(message) in draft.originals or not is_shortened(message)  # reported before
        ]
        stay = [draft.originals[id(m)] for m in surviving if id(m) in draft.originals]
        return Shortened(surviving, pruned, text, stay)

    async def _may_wait(self, draft: _Draft, call: Call) -> bool:
        """Tell whether messages may stay beyond the bound until there is a summary of them.

        They may until there is twice as much as the window holds: a model that never answers must
        not make the list grow for ever.
        """
        unread = draft.messages[: draft.start]
        weights = await self._weigh(unread, [read(message) for message in unread], call)
        high = draft.limits.high
        if fits(plus(total(weights, like=high), total(draft.weights, like=high)), plus(high, high)):
            return True
        logger.error(
            "there is still no summary, and more than twice as much as the window holds: messages "
            "are pruned without one"
        )
        return False

    async def _reserve(self, draft: _Draft, call: Call) -> Weight:
        """Return the room that a summary will need, as far as that can be told beforehand."""
        old = draft.weight(draft.old)
        if not (self._summarizer.active and self.config.inject_summary):
            return old
        most = self.config.max_summary_tokens
        if draft.old and (most is None or self.config.max_tokens is None):
            return old
        if self.config.summary_message_factory is not None:
            empty = tuple(1 for _ in old)
        else:
            messages = default_summary_messages_factory("", 0)
            facts = [read(message) for message in messages]
            empty = total(await self._weigh(messages, facts, call), like=old)
        if most is not None and self.config.max_tokens is not None:
            empty = (*empty[:-1], empty[-1] + most)
        return tuple(map(max, old, empty))

    async def _summarize(
        self, draft: _Draft, keep: set[int], gone: list[Any], call: Call
    ) -> tuple[str | None, list[Any]]:
        """Return the summary and the messages to put in the place of what went."""
        old = draft.pick(draft.old)
        if not self._summarizer.active or not gone:
            return None, old
        seed = digest(*(turn_digest(message, "") for message in (*old, *gone)))
        text = await self._summarizer.summarize(seed, old, gone, call)
        if not self.config.inject_summary:
            return text, []
        body = [i for i in sorted(keep) if i not in draft.instructions]
        neighbours = draft.pick(body) + gone[::-1] + draft.pick(keep)
        factory = self.config.summary_message_factory or default_summary_messages_factory
        count = covered([read(message) for message in old]) + len(gone)
        try:
            return text, build_summary(text, count, factory, neighbours, seed)
        except Exception as error:
            logger.warning("the summary's messages could not be made", exc_info=True)
            raise SummaryFailed from error


def _each(function: Any, messages: Sequence[Any]) -> list[Any]:
    return [function(message) for message in messages]


def in_order(messages: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
    """Return some messages in the order of the list they are from.

    Args:
        messages: The list.
        chosen: Messages of it.
    """
    wanted = {id(message) for message in chosen}
    return [message for message in messages if id(message) in wanted]
