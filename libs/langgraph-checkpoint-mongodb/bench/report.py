"""What a run found, as tables and as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plan import TITLES
from bench.run import Outcome


class Report:
    """Collects outcomes.

    Args:
        quick: Whether sizes were small.
        servers: What each peer stores in.
    """

    def __init__(self, quick: bool, servers: dict[str, str]) -> None:
        self.quick = quick
        self.servers = servers
        self.outcomes: list[Outcome] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Keep something that the reader must know."""
        self.warnings.append(text)

    def add(self, outcomes: list[Outcome], versions: dict[str, dict[str, str]]) -> None:
        """Add what one workload gave."""
        self.outcomes += outcomes
        self.versions |= versions

    def show(self, console: Console) -> None:
        """Print a table for each workload."""
        for workload in dict.fromkeys(outcome.workload for outcome in self.outcomes):
            console.print(self._table(workload))
        for text in self.warnings:
            console.print(f"[bold red]{text}[/]", highlight=False)

    def _table(self, workload: str) -> Table:
        outcomes = [outcome for outcome in self.outcomes if outcome.workload == workload]
        table = Table(title=f"{workload}: {TITLES[workload]}", title_justify="left")
        table.add_column("")
        for outcome in outcomes:
            table.add_column(str(outcome.contestant), justify="right")
        for figure in dict.fromkeys(name for outcome in outcomes for name in outcome.runs):
            table.add_row(figure, *(readable(figure, o.value(figure)) for o in outcomes))
        for outcome in outcomes:
            for error in dict.fromkeys(outcome.errors):
                table.caption = f"{table.caption or ''}{outcome.contestant}: {error}\n"
        return table

    def write(self, path: Path) -> Path:
        """Write the JSON file."""
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        return path

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "quick": self.quick,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "servers": self.servers,
            "versions": self.versions,
            "warnings": self.warnings,
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


def readable(figure: str, value: float | None) -> str:
    """Write a figure with its unit."""
    words = figure.split("_")
    if value is None:
        return "-"
    if {"sent", "received", "stored", "memory"} & set(words):
        for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.0f} B"
    if "works" in words:
        return "works" if value else "fails"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
