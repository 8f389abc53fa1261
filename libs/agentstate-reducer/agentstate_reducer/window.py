"""Which messages stay: the pruning algorithm, pure and linear.

The list is cut into *units*: an AI message together with the results of all its tool calls, or one
message alone. Only whole units stay or go, so no result is ever without its call. Weights are 1 a
message when messages are counted and the message's tokens when tokens are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from .messages import AI, HUMAN, INSTRUCTIONS, RESULTS, Facts


@dataclass(frozen=True)
class Limits:
    """How much may stay.

    Attributes:
        high: Pruning begins above this weight, and no more than this stays.
        low: Pruning goes on down to this weight where the rules allow it; at most `high`.
        pin: Keep a system or developer message at index 0.
        link: Treat an AI message and its results as one unit.
    """

    high: int
    low: int
    pin: bool = True
    link: bool = True


@dataclass
class Unit:
    """Messages that stay or go together.

    Attributes:
        role: Role of the first one.
        indices: Their places in the list, ascending.
        weight: The sum of their weights.
        exchange: Whether it is an AI message that called tools.
        waiting: The calls that have no result yet.
    """

    role: str
    indices: list[int]
    weight: int
    exchange: bool = False
    waiting: set[str | None] = field(default_factory=set)


def select(
    facts: Sequence[Facts],
    weights: Sequence[int],
    limits: Limits,
    *,
    summaries: Collection[int] = (),
    reserve: int = 0,
) -> set[int]:
    """Choose the messages that stay, given that something must go.

    Args:
        facts: One entry a message, oldest first.
        weights: The weight of each message.
        limits: How much may stay.
        summaries: Indices of an earlier summary. They are never chosen here: the caller replaces
            them, and `reserve` is their successor's room.
        reserve: Weight to leave free for a summary.

    Returns:
        Indices of the messages that stay. Their weight is at most `limits.high` less `reserve`,
        unless an open tool exchange alone is larger.
    """
    pinned = {0} if limits.pin and is_pinned(facts, summaries) else set()
    skip = pinned | set(summaries)
    units = group(facts, weights, skip, link=limits.link)
    needed = _needed(units)
    needed_weight = sum(units[i].weight for i in needed)
    taken = sum(weights[i] for i in pinned)
    if needed_weight + taken + reserve > limits.high:
        reserve = 0
    # The instructions give way to an unanswered turn that fits only without them. Beside a tool
    # exchange that passes the bound by itself they stay.
    passes = needed_weight > limits.high and any(units[i].exchange for i in needed)
    if taken > limits.high or (needed and needed_weight + taken > limits.high and not passes):
        pinned, taken = set(), 0
    room = taken + reserve
    kept = _choose(units, needed, limits.low - room, limits.high - room)
    return pinned.union(*(unit.indices for unit in kept))


def is_pinned(facts: Sequence[Facts], summaries: Collection[int] = ()) -> bool:
    """Tell whether the list begins with instructions.

    Args:
        facts: One entry a message.
        summaries: Indices of an earlier summary, which is never pinned.

    Returns:
        Whether index 0 is a system or developer message.
    """
    return bool(facts) and facts[0].role in INSTRUCTIONS and 0 not in summaries


def group(
    facts: Sequence[Facts], weights: Sequence[int], skip: Collection[int], *, link: bool
) -> list[Unit]:
    """Cut a list of messages into units.

    Args:
        facts: One entry a message.
        weights: The weight of each message.
        skip: Indices to leave out.
        link: Join results to the AI message that called for them; results without one are left out.

    Returns:
        The units in the order of their first messages, orphan results not among them.
    """
    units: list[Unit] = []
    caller: dict[str | None, Unit] = {}
    for index, message in enumerate(facts):
        if index in skip:
            continue
        if link and message.role in RESULTS:
            # Ids may repeat from turn to turn ("call_0"): the latest caller is meant.
            unit = caller.get(message.answers)
            if unit is not None:
                unit.indices.append(index)
                unit.weight += weights[index]
                unit.waiting.discard(message.answers)
            continue
        unit = Unit(message.role, [index], weights[index], exchange=bool(message.calls))
        units.append(unit)
        if link and message.role == AI:
            caller.pop(None, None)  # a result without an id belongs to the message before it
        for call in message.calls:
            unit.waiting.add(call)
            caller[call] = unit
    return units


def _needed(units: Sequence[Unit]) -> list[int]:
    """Return the last question and the exchange that answers it, while it is unanswered."""
    question = _last(units, range(len(units)))
    start = 0 if question is None else question + 1
    answer = next((i for i in range(len(units) - 1, start - 1, -1) if units[i].role == AI), None)
    if answer is not None and not units[answer].exchange:
        return []
    return [i for i in (question, answer) if i is not None]


def _last(units: Sequence[Unit], where: Iterable[int]) -> int | None:
    return max((i for i in where if units[i].role == HUMAN), default=None)


def _choose(units: Sequence[Unit], needed: list[int], low: int, high: int) -> list[Unit]:
    """Choose the units that stay: a tail that begins with a human message, if there is one."""
    suffix = [0] * (len(units) + 1)
    for i in range(len(units) - 1, -1, -1):
        suffix[i] = suffix[i + 1] + units[i].weight
    question = _last(units, range(len(units)))
    if question is None:
        return [units[i] for i in _newest(units, 0, needed, low, high)]
    anchor = _anchor(units, question)
    longest = next(
        (i for i, unit in enumerate(units) if unit.role == HUMAN and suffix[i] <= low), None
    )
    if longest is not None and longest <= anchor:
        return list(units[longest:])
    if suffix[anchor] <= high:
        return list(units[anchor:])
    if longest is not None:
        return list(units[longest:])
    if suffix[question] <= high:
        return list(units[question:])
    # One turn is larger than the window: its question stays, and its newest units.
    size = units[question].weight
    if size > high and (question not in needed or (high <= 0 and len(needed) == 1)):
        return []
    rest = [i for i in needed if i != question]
    return [
        units[question],
        *(units[i] for i in _newest(units, question + 1, rest, low - size, high - size)),
    ]


def _anchor(units: Sequence[Unit], question: int) -> int:
    """Return where the tail must begin at the latest, if there is room for it.

    That is the last question, or an earlier one whose tool exchange still waits for a result.
    """
    last = next((i for i in range(len(units) - 1, -1, -1) if units[i].role == AI), None)
    if last is None or not units[last].waiting or last > question:
        return question
    asked = _last(units, range(last))
    return question if asked is None else asked


def _newest(units: Sequence[Unit], start: int, needed: list[int], low: int, high: int) -> list[int]:
    """Return the needed units and the newest others: within `low`, or one within `high`."""
    kept = set(needed)
    weight = sum(units[i].weight for i in needed)
    for i in range(len(units) - 1, start - 1, -1):
        if i in kept:
            continue
        room = low if kept else high
        if weight + units[i].weight > room:
            break
        kept.add(i)
        weight += units[i].weight
    return sorted(kept)
