"""Which messages stay: the pruning algorithm, pure and linear.

The list is cut into *units*: an AI message together with the results of all its tool calls, or one
message alone. Only whole units stay or go, so no result is ever without its call. A *weight* is a
tuple with a number for each measure in force: 1 a message, its tokens, or both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from .messages import AI, HUMAN, INSTRUCTIONS, Facts
from .units import Unit, Weight, fits, group, less, plus, total


@dataclass(frozen=True)
class Limits:
    """How much may stay, in each measure.

    Attributes:
        high: Pruning begins above this weight, and no more than this stays.
        low: Pruning goes on down to this weight where the rules allow it; at most `high`.
        pin: Keep a system or developer message at index 0.
        link: Treat an AI message and its results as one unit.
    """

    high: Weight
    low: Weight
    pin: bool = True
    link: bool = True


@dataclass
class Apart:
    """Messages that are not chosen by their age.

    Attributes:
        instructions: Index of the leading instructions, which stay where there is room.
        summaries: Indices of an earlier summary. They are never chosen: the caller replaces them.
        pinned: Indices of messages that stay whatever happens.
    """

    instructions: Collection[int] = ()
    summaries: Collection[int] = ()
    pinned: Collection[int] = ()


def select(
    facts: Sequence[Facts],
    weights: Sequence[Weight],
    limits: Limits,
    apart: Apart,
    reserve: Weight,
) -> set[int]:
    """Choose the messages that stay, given that something must go.

    Args:
        facts: One entry a message, oldest first.
        weights: The weight of each message.
        limits: How much may stay.
        apart: The messages that are not chosen by their age.
        reserve: Weight to leave free for a summary.

    Returns:
        Indices of the messages that stay. Their weight is at most `limits.high` less `reserve`,
        unless what is pinned, or an open tool exchange, is larger alone.
    """
    first = {i for i in apart.instructions if i not in apart.summaries}
    units = group(facts, weights, {*first, *apart.summaries}, link=limits.link)
    needed = _needed(units)
    held = _held(units, apart.pinned)
    room = total((units[i].weight for i in held), like=reserve)
    for i in held:  # wherever the tail begins, they are paid for
        units[i].weight = less(reserve, reserve)
    high = less(limits.high, room)
    need = total((units[i].weight for i in needed), like=reserve)
    taken = total((weights[i] for i in first), like=reserve)
    if not fits(plus(need, taken, reserve), high):
        reserve = less(reserve, reserve)
    # The instructions give way to an unanswered turn that fits only without them. Beside a tool
    # exchange that passes the bound by itself they stay.
    passes = not fits(need, high) and any(units[i].exchange for i in needed)
    if first and not passes and (not fits(taken, high) or (needed and _over(need, taken, high))):
        first, taken = set(), less(taken, taken)
    room = plus(room, taken, reserve)
    window = _Window(units, needed, less(limits.low, room), less(limits.high, room))
    window.nothing_fits = any(mark <= 0 for mark in limits.high)
    kept = {*window.choose(), *held}
    return first.union(*(units[i].indices for i in kept))


def settled(facts: Sequence[Facts], weights: Sequence[Weight], limits: Limits) -> bool:
    """Tell whether the end of a list is all that `select` has to see of it.

    It is when nothing before it can stay: it begins with a question, holds an answer, and is
    heavier than the window by units of its own.

    Args:
        facts: One entry a message of the end, which begins with a human message.
        weights: The weight of each of them.
        limits: How much may stay.
    """
    if not any(fact.role == AI for fact in facts):
        return False
    units = group(facts, weights, (), link=limits.link)
    return not fits(total((unit.weight for unit in units), like=limits.high), limits.high)


def _over(need: Weight, taken: Weight, high: Weight) -> bool:
    return not fits(plus(need, taken), high)


def _needed(units: Sequence[Unit]) -> list[int]:
    """Return the last question and the exchange that answers it, while it is unanswered.

    Claude refuses a turn that is still going on when it had thinking at its beginning and has none
    there now: the last thinking before the exchange is needed too.
    """
    question = _last(units, range(len(units)), HUMAN)
    start = 0 if question is None else question + 1
    answer = _last(units, range(start, len(units)), AI)
    if answer is not None and not units[answer].exchange:
        return []
    thinking = None
    if answer is not None and not units[answer].thinks:
        thinking = next((i for i in range(answer - 1, start - 1, -1) if units[i].thinks), None)
    return [i for i in (question, thinking, answer) if i is not None]


def _held(units: Sequence[Unit], pinned: Collection[int]) -> list[int]:
    """Return the units of pinned messages, with the question and the answer of their turn.

    Without these two a provider would find an answer with no question before it, or two questions
    in a row, which some refuse.
    """
    if not pinned:
        return []
    held: set[int] = set()
    question = answer = None
    waits = False
    for i, unit in enumerate(units):
        if unit.role == HUMAN:
            if waits and answer is not None:
                held.add(answer)
            question, answer, waits = i, None, False
        elif unit.role == AI and not unit.exchange:
            answer = i
        if any(index in pinned for index in unit.indices):
            held.add(i)
            if unit.role not in INSTRUCTIONS:
                waits = True
                held.update(() if question is None else (question,))
    if waits and answer is not None:
        held.add(answer)
    return sorted(held)


def _last(units: Sequence[Unit], where: Iterable[int], role: str) -> int | None:
    return max((i for i in where if units[i].role == role), default=None)


@dataclass
class _Window:
    """The choice of a tail that begins with a human message, if there is one.

    Attributes:
        units: All units.
        needed: Those that must stay.
        low: What the tail should weigh at the most.
        high: What it may weigh at the most.
        nothing_fits: Whether the whole window is empty.
    """

    units: list[Unit]
    needed: list[int]
    low: Weight
    high: Weight
    nothing_fits: bool = False
    suffix: list[Weight] = field(default_factory=list)

    def choose(self) -> Iterable[int]:
        units, count = self.units, len(self.units)
        weight = less(self.high, self.high)
        self.suffix = [weight] * (count + 1)
        for i in range(count - 1, -1, -1):
            self.suffix[i] = weight = plus(weight, units[i].weight)
        question = _last(units, range(count), HUMAN)
        if question is None:
            return self._newest(0, self.needed, self.low, self.high)
        anchor = self._anchor(question)
        longest = next((i for i in range(count) if self._begins(i, self.low)), None)
        if longest is not None and longest <= anchor:
            return range(longest, count)
        if fits(self.suffix[anchor], self.high):
            return range(anchor, count)
        if longest is not None:
            return range(longest, count)
        if fits(self.suffix[question], self.high):
            return range(question, count)
        # One turn is larger than the window: its question stays, and its newest units.
        size = units[question].weight
        alone = len(self.needed) == 1
        if not fits(size, self.high) and (
            question not in self.needed or (self.nothing_fits and alone)
        ):
            return []
        rest = [i for i in self.needed if i != question]
        low, high = less(self.low, size), less(self.high, size)
        return [question, *self._newest(question + 1, rest, low, high)]

    def _begins(self, i: int, mark: Weight) -> bool:
        return self.units[i].role == HUMAN and fits(self.suffix[i], mark)

    def _anchor(self, question: int) -> int:
        """Return where the tail must begin at the latest, if there is room for it.

        That is the last question, or an earlier one whose tool exchange still waits for a result.
        """
        last = _last(self.units, range(len(self.units)), AI)
        if last is None or not self.units[last].waiting or last > question:
            return question
        asked = _last(self.units, range(last), HUMAN)
        return question if asked is None else asked

    def _newest(self, start: int, needed: list[int], low: Weight, high: Weight) -> list[int]:
        """Return the needed units and the newest others: within `low`, or one within `high`."""
        kept = set(needed)
        weight = total((self.units[i].weight for i in needed), like=low)
        for i in range(len(self.units) - 1, start - 1, -1):
            if i in kept:
                continue
            grown = plus(weight, self.units[i].weight)
            if not fits(grown, low if kept else high):
                break
            kept.add(i)
            weight = grown
        return self._with_thinking_first(sorted(kept), start, needed)

    def _with_thinking_first(self, kept: list[int], start: int, needed: list[int]) -> list[int]:
        """Leave out what stands before the first thinking of a turn that began with thinking."""
        answers = (unit for unit in self.units[start:] if unit.role == AI)
        first = next(answers, None)
        if not needed or first is None or not first.thinks:
            return kept
        thinking = next((i for i in kept if self.units[i].thinks), len(self.units))
        return [i for i in kept if i in needed or i >= thinking or self.units[i].role != AI]
