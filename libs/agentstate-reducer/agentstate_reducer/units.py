"""Units: messages that stay or go together, and the arithmetic of weights."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from .messages import AI, RESULTS, Facts

Weight = tuple[int, ...]
"""One number for each measure in force."""


@dataclass
class Unit:
    """Messages that stay or go together.

    Attributes:
        role: Role of the first one.
        indices: Their places in the list, ascending.
        weight: The sum of their weights.
        exchange: Whether an answer of the model is still to come after it: it called tools, or is
            reasoning without what was reasoned.
        thinks: Whether it begins with thinking.
        calls: The calls it makes.
        waiting: The calls that have no result yet.
    """

    role: str
    indices: list[int]
    weight: Weight
    exchange: bool = False
    thinks: bool = False
    calls: list[str | None] = field(default_factory=list)
    waiting: set[str | None] = field(default_factory=set)


def plus(*weights: Weight) -> Weight:
    """Add weights, measure by measure."""
    return tuple(map(sum, zip(*weights, strict=True)))


def less(weight: Weight, other: Weight) -> Weight:
    """Subtract a weight from another, measure by measure."""
    return tuple(map(operator.sub, weight, other))


def total(weights: Iterable[Weight], like: Weight) -> Weight:
    """Add up weights; without any the result is zero in as many measures as `like` has."""
    sums = [0] * len(like)
    for weight in weights:
        for measure, value in enumerate(weight):
            sums[measure] += value
    return tuple(sums)


def fits(weight: Weight, marks: Weight) -> bool:
    """Tell whether a weight is within marks, in every measure."""
    return all(map(operator.le, weight, marks))


def group(
    facts: Sequence[Facts], weights: Sequence[Weight], skip: Collection[int], *, link: bool
) -> list[Unit]:
    """Cut a list of messages into units.

    Args:
        facts: One entry a message.
        weights: The weight of each message.
        skip: Indices to leave out.
        link: Join results to the AI message that called for them; results without one are left out.
            Items of one answer of OpenAI's Responses API, its reasoning and what follows it, are
            joined as well.

    Returns:
        The units in the order of their first messages, orphan results not among them.
    """
    cutter = _Cutter()
    for index, message in enumerate(facts):
        if index in skip:
            continue
        if link and message.role in RESULTS:
            cutter.answer(index, message, weights[index])
        else:
            cutter.say(index, message, weights[index], link=link)
    units = [unit for unit in cutter.units if unit.indices]
    if cutter.joined:
        for unit in units:
            unit.indices.sort()
        units.sort(key=lambda unit: unit.indices[0])
    return units


class _Cutter:
    """The units so far, and who is waiting for what."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.joined = False
        self._caller: dict[str | None, Unit] = {}
        self._going_on: Unit | None = None  # the unit that an item of an answer may be added to
        self._bare = False  # whether there is nothing but reasoning in it

    def say(self, index: int, message: Facts, weight: Weight, *, link: bool) -> None:
        answers = link and message.role == AI
        if answers and self._going_on is not None and (self._bare or not message.reasoning):
            unit = self._going_on
            _add(unit, index, weight)
            self._bare = self._bare and message.reasoning
        else:
            unit = Unit(message.role, [index], weight, thinks=message.thinks)
            self.units.append(unit)
            self._bare = message.reasoning
        if answers:
            self._caller.pop(None, None)  # a result without an id belongs to the message before it
        for call in message.calls:
            unit.calls.append(call)
            unit.waiting.add(call)
            self._caller[call] = unit
        unit.exchange = bool(unit.calls) or self._bare
        self._going_on = unit if message.item else None

    def answer(self, index: int, message: Facts, weight: Weight) -> None:
        self._going_on = None
        unit: Unit | None = None
        for call in message.answers:
            # Ids may repeat from turn to turn ("call_0"): the latest caller is meant.
            caller = self._caller.get(call)
            if caller is None:
                continue
            if unit is None:
                unit = caller
            elif caller is not unit:
                unit = self._join(unit, caller)
            unit.waiting.discard(call)
        if unit is not None:
            _add(unit, index, weight)

    def _join(self, one: Unit, other: Unit) -> Unit:
        """Join two units whose results stand in one message; the larger one takes the other in."""
        if len(one.indices) < len(other.indices):
            one, other = other, one
        one.thinks = one.thinks or other.thinks
        one.indices += other.indices
        one.weight = plus(one.weight, other.weight)
        one.calls += other.calls
        one.waiting |= other.waiting
        for call in other.calls:
            if self._caller.get(call) is other:
                self._caller[call] = one
        other.indices = []
        self.joined = True
        return one


def _add(unit: Unit, index: int, weight: Weight) -> None:
    unit.indices.append(index)
    unit.weight = plus(unit.weight, weight)
