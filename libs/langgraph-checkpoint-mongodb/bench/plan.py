"""How often each workload runs, and which figures each kind of run gives."""

from __future__ import annotations

from dataclasses import dataclass

TITLES = {
    "W1": "15 MB in three list channels, one counter changing, 20 steps",
    "W1s": "15 MB in three str channels, one counter changing, 20 steps",
    "W2": "chat of 200 turns of 500 characters",
    "W2L": "chat of 1,000 turns of 500 characters",
    "W3": "small agent, 8 channels under 1 KB, 3 change, 100 steps",
    "W4": "get_tuple with 1 / 10 / 100 / 1000 channels, and with 15 MB",
    "W4b": "get_tuple of 1,000 channels of 200 bytes, and a step that changes one",
    "W4c": "the same with 1 to 5,000 channels of 20 bytes to 4 kB",
    "W5": "202 checkpoints, one 10 MB channel that never changes",
    "W6": "8 threads or tasks, 3-node graph, 20 turns",
    "W6b": "100 tasks, an 8 kB channel that changes in each step",
    "W7": "7 + 10 MB, as input and from nodes",
    "W8": "delta channel, 500 steps: history",
    "W9": "10 MB saved and loaded while a task ticks every millisecond",
    "W10": "growth: put, get_tuple, list(limit=10), prune",
    "W11": "history of a chat of 200 turns, all checkpoints",
    "W12": "agent of 100 turns, three tools of 5 kB and a file of 5 kB each turn",
    "W13": "chat of 200 turns, its messages a plain list or a delta channel",
}


def is_point(figure: str) -> bool:
    """Tell whether a figure is one of many that make up a plot, and stands in no table."""
    return figure.startswith("point_")


def is_time(figure: str) -> bool:
    """Tell whether a figure varies with the machine's speed."""
    return bool({"ms", "us", "s"} & set(figure.split("_")))


def is_rate(figure: str) -> bool:
    """Tell whether a figure is a speed, the higher the better."""
    return "_per_s_" in f"{figure}_"


def is_measured(figure: str) -> bool:
    """Tell whether a figure varies from run to run; the others are counts."""
    return is_time(figure) or "memory" in figure


@dataclass(frozen=True)
class Pass:
    """A kind of run.

    Attributes:
        relayed: Through the relay, so that bytes and requests are counted.
        repeat: How many turns each contestant gets.
        latency_ms: What the relay adds to each request.
        both: Whether times are taken here too, though the relay is in the way.
    """

    relayed: bool
    repeat: int
    latency_ms: float = 0
    both: bool = False

    def keeps(self, figure: str) -> bool:
        """Tell whether this kind of run is where a figure comes from."""
        return self.both or is_measured(figure) == (not self.relayed or bool(self.latency_ms))

    def rename(self, figure: str) -> str:
        """Return a figure's name in the result."""
        return f"{figure}_at_{self.latency_ms:g}ms" if self.latency_ms else figure


def passes(workload: str, quick: bool, turns: int) -> list[Pass]:
    """Return the runs of a workload.

    Args:
        workload: A key of `TITLES`.
        quick: Whether to run the small size, once.
        turns: How often each contestant is timed otherwise.
    """
    if workload in ("W1", "W1s", "W5", "W7"):  # too large to run twice; bytes are what counts
        return [Pass(relayed=True, repeat=1, both=True)]
    if workload in ("W9", "W10"):  # they repeat what they time
        return [Pass(relayed=False, repeat=1)]
    if workload in ("W2L", "W4c", "W12"):  # long, and far from their limits in time
        turns = min(turns, 2)
    turns = 1 if quick else turns
    plan = [Pass(relayed=True, repeat=1), Pass(relayed=False, repeat=turns)]
    if workload in ("W3", "W6") and not quick:
        plan.append(Pass(relayed=True, repeat=turns, latency_ms=5))
    return plan
