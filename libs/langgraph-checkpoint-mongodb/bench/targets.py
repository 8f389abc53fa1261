"""What this release promises, held against what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.run import Contestant, Outcome

FACES = ("sync", "async")


class Found:
    """The outcomes of one run, by workload, peer and face."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes = {(o.workload, o.contestant): o for o in outcomes}

    def value(self, workload: str, peer: str, face: str, figure: str) -> float | None:
        """Return a figure, None when it was not measured."""
        outcome = self._outcomes.get((workload, Contestant(peer, face)))
        return outcome.value(figure) if outcome else None

    def ratio(self, workload: str, peer: str, face: str, figure: str) -> float | None:
        """Return the ratio of our figure to a peer's."""
        ours = self._outcomes.get((workload, Contestant("ours", face)))
        theirs = self._outcomes.get((workload, Contestant(peer, face)))
        return ours.ratio(figure, theirs) if ours and theirs else None


Number = float | None


@dataclass(frozen=True)
class Target:
    """One promise.

    Attributes:
        workload: Where it is measured.
        figure: What of ours is measured.
        promise: The limit in words.
        limit: Finds the limit for a face; None when what it depends on was not measured.
        ratio_to: The peer that our figure is divided by, if the promise is about a ratio.
        at_least: Whether more is better.
    """

    workload: str
    figure: str
    promise: str
    limit: Callable[[Found, str], Number]
    ratio_to: str | None = None
    at_least: bool = False

    def measured(self, found: Found, face: str) -> Number:
        """Return what the promise is about: our figure, or its ratio to the peer's."""
        if self.ratio_to:
            return found.ratio(self.workload, self.ratio_to, face, self.figure)
        return found.value(self.workload, "ours", face, self.figure)


@dataclass(frozen=True)
class Verdict:
    """A promise and what became of it on one face."""

    target: Target
    face: str
    measured: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the promise was kept."""
        if self.target.at_least:
            return self.measured >= self.limit
        return self.measured <= self.limit

    @property
    def missed_by(self) -> float:
        """By what factor it was missed; 1 or less when it was kept."""
        if self.target.at_least:
            return self.limit / self.measured if self.measured else float("inf")
        return self.measured / self.limit if self.limit else float("inf")


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Hold every promise that can be judged against the outcomes."""
    found = Found(outcomes)
    judged = []
    for target in TARGETS:
        for face in FACES:
            measured, limit = target.measured(found, face), target.limit(found, face)
            if measured is not None and limit is not None:
                judged.append(Verdict(target, face, measured, limit))
    return judged


def _fixed(limit: float) -> Callable[[Found, str], Number]:
    return lambda found, face: limit


def _as(peer: str, workload: str, figure: str) -> Callable[[Found, str], Number]:
    """Allow what a peer needs; counts are compared as they are printed, to three digits."""

    def limit(found: Found, face: str) -> Number:
        value = found.value(workload, peer, face, figure)
        return None if value is None else float(f"{value:.3g}")

    return limit


def _most(workload: str, figure: str, promise: str, limit: float) -> Target:
    return Target(workload, figure, promise, _fixed(limit))


def _no_more(workload: str, figure: str, peer: str) -> Target:
    return Target(workload, figure, f"no more than {peer}", _as(peer, workload, figure))


def _ratio(workload: str, figure: str, peer: str, limit: float) -> Target:
    promise = f"at most {limit:.2g} of {peer}" if limit < 1 else f"at most {limit:g} of {peer}"
    return Target(workload, figure, promise, _fixed(limit), ratio_to=peer)


def _times(workload: str, figure: str, other: str, most: float) -> Target:
    """Promise a figure against another one of ours."""

    def limit(found: Found, face: str) -> Number:
        value = found.value(workload, "ours", face, other)
        return None if value is None else most * value

    than = other.replace("_", " ")
    promise = f"at most {most:g} times {than}" if most != 1 else f"no more than {than}"
    return Target(workload, figure, promise, limit)


def _faster(peer: str) -> Target:
    promise = f"at least 1.1 of {peer}"
    return Target("W6", "node_steps_per_s", promise, _fixed(1.1), ratio_to=peer, at_least=True)


def _late(figure: str) -> Target:
    def limit(found: Found, face: str) -> Number:
        idle = found.value("W9", "ours", face, "idle_late_ms")
        return None if idle is None else idle + 10

    return Target("W9", figure, "at most 10 ms later than idle", limit)


# Bytes: the state of W7 as the serializer writes it, and 1 % for the documents around it.
TWICE_THE_STATE = 2 * 17_052_000 * 1.01
TARGETS = [
    _most("W1", "sent_per_step", "under 5 kB", 5_000),
    _most("W1s", "sent_per_step", "under 5 kB", 5_000),
    _most("W2", "sent_per_turn", "12 kB", 12_000),
    _most("W2", "stored_per_turn", "10 kB", 10_000),
    _most("W2", "commands_per_turn", "7.5", 7.5),
    _ratio("W2", "ms_per_turn", "0.5.1", 0.9),
    _ratio("W2", "ms_per_turn", "postgres", 1),
    _most("W2L", "sent_per_turn", "16 kB", 16_000),
    _ratio("W2L", "ms_per_turn", "0.5.1", 1 / 3),
    _no_more("W3", "commands_per_step", "0.5.1"),
    _no_more("W3", "sent_per_step", "0.5.1"),
    _no_more("W3", "stored_per_step", "0.5.1"),
    _ratio("W3", "ms_per_step", "0.5.1", 1.05),
    _ratio("W3", "ms_per_step_at_5ms", "0.5.1", 1.05),
    *(_ratio("W4", f"{n}_channels_ms", "0.5.1", 1.25) for n in (1, 10, 100, 1000)),
    _ratio("W4", "15MB_ms", "0.5.1", 1.25),
    _ratio("W4b", "get_ms", "0.5.1", 1.25),
    _most("W4b", "get_sent", "under 1 kB", 1_000),
    _no_more("W4b", "step_sent", "0.5.1"),
    _most("W5", "stored", "12 MB", 12e6),
    _most("W5", "list10_received", "11 MB", 11e6),
    _most("W5", "list10_commands", "4", 4),
    _most("W5", "list_received", "12 MB", 12e6),
    _most("W5", "list_peak_memory", "under 200 MB", 200e6),
    _faster("0.5.1"),
    _faster("postgres"),
    _ratio("W6b", "cpu_ms_per_step", "0.5.1", 1.1),
    _most("W7", "input_sent", "twice the state", TWICE_THE_STATE),
    _most("W7", "nodes_sent", "twice the state", TWICE_THE_STATE),
    _most("W8", "commands", "4", 4),
    _ratio("W8", "ms", "postgres", 2),
    _late("put_writes_late_ms"),
    _late("put_late_ms"),
    _late("get_tuple_late_ms"),
    _most("W11", "received", "2 MB", 2e6),
    _most("W11", "commands", "12", 12),
    _most("W12", "multiple_of_own", "3 times the turn's own bytes", 3),
    _times("W13", "list_sent_per_turn", "delta_sent_per_turn", 2),
    _times("W13", "list_stored_per_turn", "delta_stored_per_turn", 2),
    _times("W13", "list_read_ms", "delta_read_ms", 1),
]
