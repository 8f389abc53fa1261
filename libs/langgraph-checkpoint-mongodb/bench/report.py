"""What a run found, as tables and as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from bench.plan import TITLES, is_point, is_time
from bench.run import Contestant, Outcome
from bench.targets import Verdict, verdicts

BASE = "0.5.1"  # whom times are compared with


class Report:
    """Collects outcomes.

    Args:
        quick: Whether sizes were small.
        servers: What each peer stores in.
    """

    def __init__(self, quick: bool, servers: dict[str, str]) -> None:
        self.quick = quick
        self.servers = servers
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        self.python = platform.python_version()
        self.cpus = os.cpu_count()
        self.outcomes: list[Outcome] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.warnings: list[str] = []

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read a JSON file that `write` made."""
        data = json.loads(path.read_text())
        report = cls(data["quick"], data["servers"])
        for name in ("date", "python", "cpus", "versions", "warnings"):
            setattr(report, name, data[name])
        for row in data["results"]:
            contestant = Contestant(row["peer"], row["face"])
            report.outcomes.append(Outcome(row["workload"], contestant, row["runs"], row["errors"]))
        return report

    def warn(self, text: str) -> None:
        """Keep something that the reader must know."""
        self.warnings.append(text)

    def add(self, outcomes: list[Outcome]) -> None:
        """Add what one workload gave."""
        self.outcomes += outcomes

    def ran_with(self, versions: dict[str, dict[str, str]]) -> None:
        """Add the versions that each peer ran with, and warn when they differ."""
        self.versions |= versions
        for name in ("langgraph", "langgraph-checkpoint", "pymongo"):
            if len({found[name] for found in versions.values() if name in found}) > 1:
                self.warn(f"Peers ran with different versions of {name}; run with --fresh.")

    def show(self, console: Console) -> None:
        """Print a table for each workload, the promises, and what the reader must know."""
        for workload in dict.fromkeys(outcome.workload for outcome in self.outcomes):
            for table in self._tables(workload, console):
                if table.row_count or table.caption:  # else a plot says it all
                    console.print(table)
        judged = [] if self.quick else verdicts(self.outcomes)
        if judged:
            console.print(_promises(judged))
        console.print(
            f"Times are the best of the turns that the peers took, and prove nothing alone; "
            f"(x0.97) is the ratio to {BASE}."
        )
        for text in dict.fromkeys(self.warnings):
            console.print(f"[bold red]{text}[/]", highlight=False)

    def _tables(self, workload: str, console: Console) -> list[Table]:
        """One table, or one for each face where the terminal is too narrow for all columns."""
        outcomes = [outcome for outcome in self.outcomes if outcome.workload == workload]
        title = f"{workload}: {TITLES[workload]}"
        table = _table(title, {str(outcome.contestant): outcome for outcome in outcomes})
        unlimited = console.options.update(max_width=1000)
        if Measurement.get(console, unlimited, table).maximum <= console.width:
            return [table]
        by_face: dict[str, dict[str, Outcome]] = {}
        for outcome in outcomes:
            by_face.setdefault(outcome.contestant.face, {})[outcome.contestant.peer] = outcome
        return [_table(f"{title}, {face}", of_face) for face, of_face in by_face.items()]

    def write(self, path: Path) -> Path:
        """Write the JSON file."""
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "date": self.date,
            "quick": self.quick,
            "python": self.python,
            "cpus": self.cpus,
            "servers": self.servers,
            "versions": self.versions,
            "warnings": list(dict.fromkeys(self.warnings)),
            "results": [
                {
                    "workload": outcome.workload,
                    "peer": outcome.contestant.peer,
                    "face": outcome.contestant.face,
                    "runs": outcome.runs,
                    "errors": outcome.errors,
                }
                for outcome in self.outcomes
            ],
        }


def _table(title: str, columns: dict[str, Outcome]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    outcomes = [*columns.values()]
    bases = {o.contestant.face: o for o in outcomes if o.contestant.peer == BASE}
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.runs)
    for figure in (name for name in names if not is_point(name)):
        cells = [cell(figure, o, bases.get(o.contestant.face)) for o in outcomes]
        table.add_row(figure, *cells)
    for outcome in outcomes:
        for error in dict.fromkeys(outcome.errors):
            table.caption = f"{table.caption or ''}{outcome.contestant}: {error}\n"
    return table


def cell(figure: str, outcome: Outcome, base: Outcome | None) -> str:
    """Write one figure of one contestant, a time with its ratio to the base's."""
    shown = readable(figure, outcome.value(figure))
    if base is None or base is outcome or not is_time(figure):
        return shown
    ratio = outcome.ratio(figure, base)
    return shown if ratio is None else f"{shown} (x{ratio:.2f})"


def readable(figure: str, value: float | None) -> str:
    """Write a value with its unit."""
    words = set(figure.split("_"))
    if value is None or ("commands" in words and not value):  # the driver does not tell
        return "-"
    if {"sent", "received", "stored", "memory", "size"} & words:
        for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.0f} B"
    if "works" in words:
        return "works" if value else "fails"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _promises(judged: list[Verdict]) -> Table:
    table = Table(title="What this release promises", title_justify="left")
    for name in ("", "figure", "promise", "face", "measured", ""):
        table.add_column(name)
    for verdict in judged:
        target = verdict.target
        shown = readable("" if target.ratio_to else target.figure, verdict.measured)
        met = "[green]met[/]" if verdict.met else f"[red]missed x {verdict.missed_by:.2f}[/]"
        table.add_row(target.workload, target.figure, target.promise, verdict.face, shown, met)
    return table
