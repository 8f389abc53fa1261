"""Running workloads: one process for each peer and face, the peers taking turns."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

from bench.environments import interpreter
from bench.job import Job
from bench.plan import Pass, is_rate, is_time
from bench.servers import Server

ENTRY = Path(__file__).with_name("_worker_entry.py")


@dataclass(frozen=True, order=True)
class Contestant:
    """A peer called through one face."""

    peer: str
    face: str

    def __str__(self) -> str:
        return f"{self.peer} {self.face}"


@dataclass
class Outcome:
    """All that was measured of one contestant in one workload.

    Attributes:
        runs: The values of each figure, one a run, in the order of the runs.
        errors: What it raised instead.
    """

    workload: str
    contestant: Contestant
    runs: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def value(self, figure: str) -> float | None:
        """Return a figure: the best turn of a time, as load only ever adds to it; else the median.

        None when it was not measured.
        """
        runs = self.runs.get(figure)
        if not runs:
            return None
        if is_time(figure):
            return max(runs) if is_rate(figure) else min(runs)
        return median(runs)

    def ratio(self, figure: str, other: Outcome) -> float | None:
        """Return the ratio of a figure to another contestant's, None when one is missing."""
        mine, theirs = self.value(figure), other.value(figure)
        return mine / theirs if mine is not None and theirs else None


class Worker:
    """The process that runs workloads for one contestant."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        python = str(interpreter(contestant.peer))
        self._process = subprocess.Popen(
            [python, "-P", "-W", "ignore", str(ENTRY), contestant.peer, contestant.face],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=tempfile.gettempdir(),
        )
        self._orders = cast(IO[str], self._process.stdin)
        self._answers = cast(IO[str], self._process.stdout)
        self.versions: dict[str, str] = self._read()["versions"]

    def perform(self, job: Job) -> dict[str, Any]:
        """Run one job and return its figures or its error."""
        print(json.dumps(asdict(job)), file=self._orders, flush=True)
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._orders.close()
        self._process.wait(60)
        self._answers.close()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        if line := self._answers.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")
        raise RuntimeError(f"the process of {self.contestant} ended:\n{said[-3000:]}")


class Crew:
    """The workers of a run.

    Args:
        contestants: Whom to have workers for, in the order of their turns.
        fresh: Whether each workload gets new processes, so that none inherits another's memory.
    """

    def __init__(self, contestants: Sequence[Contestant], fresh: bool) -> None:
        self._contestants, self._fresh = contestants, fresh
        self._workers: list[Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self._dismiss()

    def assemble(self) -> list[Worker]:
        """Return a worker for each contestant, ready for the next workload."""
        if self._fresh:
            self._dismiss()
        if not self._workers:
            self._workers = [Worker(contestant) for contestant in self._contestants]
        return self._workers

    def _dismiss(self) -> None:
        while self._workers:
            self._workers.pop().close()


def run_workload(
    workload: str,
    plan: Sequence[Pass],
    workers: Sequence[Worker],
    servers: Mapping[str, Server],
    quick: bool,
    tick: Callable[[Contestant], None],
) -> list[Outcome]:
    """Run one workload for all contestants, turn by turn.

    Args:
        workload: Its id.
        plan: How often and over which path.
        workers: Who takes part.
        servers: Where each peer stores; a peer without one stores nothing.
        quick: Whether to run the small size.
        tick: Called after each run.

    Returns:
        What was measured of each worker's contestant.
    """
    outcomes = [Outcome(workload, worker.contestant) for worker in workers]
    for one in plan:
        for _ in range(one.repeat):
            for outcome, worker in zip(outcomes, workers, strict=True):
                server = servers.get(outcome.contestant.peer)
                if server or one.both or not one.relayed:
                    _perform(outcome, worker, one, server, quick)
                tick(outcome.contestant)
    return outcomes


def _perform(
    outcome: Outcome, worker: Worker, one: Pass, server: Server | None, quick: bool
) -> None:
    uri, control = "", 0
    if server:
        uri = server.relayed if one.relayed else server.uri
        control = server.control if one.relayed else 0
        server.latency(one.latency_ms)
    answer = worker.perform(Job(outcome.workload, uri, control, quick))
    if "error" in answer:
        outcome.errors.append(answer["error"])
        return
    for name, value in answer["figures"].items():
        if one.keeps(name):
            outcome.runs.setdefault(one.rename(name), []).append(value)
