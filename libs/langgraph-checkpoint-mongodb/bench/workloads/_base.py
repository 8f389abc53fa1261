"""What every workload is given and returns."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from langgraph.graph import END, START, StateGraph

from bench.faces import Config, Face
from bench.meter import Meter

MB = 1_000_000
LINE = 1000  # characters: a large list channel is made of strings of this length


@dataclass(frozen=True)
class Stage:
    """Where a workload runs.

    Attributes:
        face: Calls the peer's saver.
        meter: Measures stretches of work.
        stored: Bytes the peer's server holds now.
        multiply: Gives a thread so many more checkpoints, older ones; None: put them.
        quick: Whether to run the small size.
    """

    face: Face
    meter: Meter
    stored: Callable[[], int]
    multiply: Callable[[str, int], None] | None
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Choose between the full and the small size."""
        return quick if self.quick else full


class Workload(Protocol):
    """One row of the comparison."""

    async def run(self, stage: Stage) -> dict[str, float]:
        """Run on an empty database and return figures by name (units are in the names)."""
        ...


class WrongAnswerError(RuntimeError):
    """A saver answered something else than what was stored."""


def expect(condition: bool, what: str) -> None:
    """Make sure that a saver did what the workload asks for, before its figures count."""
    if not condition:
        raise WrongAnswerError(what)


def text(length: int, seed: int = 0) -> str:
    """Return text of so many characters that no server's compression makes much smaller."""
    raw = random.Random(seed).randbytes(length * 3 // 4 + 3)
    return base64.b64encode(raw)[:length].decode()


def lines(size: int, seed: int = 0) -> list[str]:
    """Return text of so many bytes as a list of lines."""
    whole = text(size, seed)
    return [whole[at : at + LINE] for at in range(0, size, LINE)]


def thread(name: str) -> Config:
    """Return a config for a thread, with room for long runs."""
    return {"configurable": {"thread_id": name}, "recursion_limit": 10_000}


def looping(state: type, face: Face, saver: Any, step: Callable[[Any], Any], stop: int) -> Any:
    """Compile a graph of one node that runs until its counter ``n`` reaches ``stop``."""
    graph: Any = StateGraph(state)
    graph.add_node("step", face.node(step))
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda s: END if s["n"] >= stop else "step")
    return graph.compile(checkpointer=saver)
