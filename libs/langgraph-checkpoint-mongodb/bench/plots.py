"""The plots of `docs/benchmarks.md`, each in a light and a dark form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report import Report, readable
from bench.targets import Found
from bench.workloads.channels import COUNTS, SIZES
from bench.workloads.growing import POINTS

PEERS = {"0.5.1": "0.5.1", "postgres": "PostgreSQL saver", "ours": "this release"}
# Told apart by people who see few colours, and legible on either ground.
COLOURS = {"0.5.1": "#d08770", "postgres": "#5e81ac", "ours": "#3a9a6b"}
GROUNDS = {"light": ("#ffffff", "#24292f", "#d0d7de"), "dark": ("#0d1117", "#e6edf3", "#30363d")}

Draw = Callable[[Figure, Found, str], None]


def draw_all(report: Report, folder: Path) -> list[Path]:
    """Draw every plot as SVG, light and dark.

    Args:
        report: A full run.
        folder: Where to write; made when it is missing.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = Found(report.outcomes)
    files = []
    for name, draw in PLOTS.items():
        for ground, (paper, ink, grid) in GROUNDS.items():
            style: Any = {
                "figure.facecolor": paper,
                "axes.facecolor": paper,
                "axes.edgecolor": grid,
                "grid.color": grid,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "font.size": 10,
                "svg.hashsalt": name,  # the same figures give the same file
                **dict.fromkeys(["text.color", "axes.labelcolor"], ink),
                **dict.fromkeys(["xtick.color", "ytick.color"], ink),
            }
            with mpl.rc_context(style):
                figure = Figure(figsize=(8, 4), layout="constrained")
                draw(figure, found, ink)
                files.append(folder / f"{name}-{ground}.svg")
                figure.savefig(files[-1], metadata={"Date": None})
    return files


def _bars(axes: Axes, rows: dict[str, tuple[str, str]], found: Found, ink: str) -> None:
    """Draw horizontal bars of sync figures, a group for each (workload, figure)."""
    height = 0.8 / len(PEERS)
    for place, (peer, label) in enumerate(PEERS.items()):
        for row, (workload, figure) in enumerate(rows.values()):
            value = found.value(workload, peer, "sync", figure)
            at = row + (place - 1) * height
            if value is None:
                axes.text(0, at, "  fails", va="center", transform=axes.get_yaxis_transform())
                continue
            shown = axes.barh(at, value, height, color=COLOURS[peer], label=None if row else label)
            axes.bar_label(shown, [readable(figure, value)], padding=3, fontsize=8, color=ink)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _bytes_sent(figure: Figure, found: Found, ink: str) -> None:
    axes = figure.subplots()
    rows = {
        "15 MB in lists,\na step": ("W1", "sent_per_step"),
        "15 MB in strings,\na step": ("W1s", "sent_per_step"),
        "chat, a turn": ("W2", "sent_per_turn"),
        "small agent, a step": ("W3", "sent_per_step"),
    }
    _bars(axes, rows, found, ink)
    axes.set_title("Bytes sent to the server (logarithmic; less is better)", loc="left")
    figure.legend(loc="outside lower left", ncols=3, frameon=False)


def _unchanging(figure: Figure, found: Found, ink: str) -> None:
    axes = figure.subplots()
    rows = {
        "stored": ("W5", "stored"),
        "received by\nlist(limit=10)": ("W5", "list10_received"),
        "received by\nlist of all": ("W5", "list_received"),
        "peak memory of\nlist of all": ("W5", "list_peak_memory"),
    }
    _bars(axes, rows, found, ink)
    axes.set_title(
        "202 checkpoints, 10 MB that never changes (logarithmic; less is better)", loc="left"
    )
    figure.legend(loc="outside lower left", ncols=3, frameon=False)


def _line(axes: Axes, points: list[tuple[int, float | None]], style: str, **look: Any) -> None:
    """Draw a line through the points that were measured."""
    if measured := [point for point in points if point[1]]:
        axes.plot(*zip(*measured, strict=True), style, **look)


def _lines(
    axes: Axes, found: Found, workload: str, pattern: str, sizes: Sequence[int], style: str = "o-"
) -> None:
    """Draw a line for each peer over sizes; ``{}`` in the pattern is the size."""
    for peer, label in PEERS.items():
        points = [(n, found.value(workload, peer, "sync", pattern.format(n))) for n in sizes]
        _line(axes, points, style, color=COLOURS[peer], label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.grid(axis="y")


def _growth(figure: Figure, found: Found, ink: str) -> None:
    panels = figure.subplots(1, 4, sharey=True)
    sizes = [10**2, 10**3, 10**4, 10**5]
    calls = {
        "put": "put",
        "get_tuple": "get_tuple",
        "list10": "list(limit=10)",
        "list10_any_namespace": "any namespace",
    }
    for axes, (name, title) in zip(panels, calls.items(), strict=True):
        _lines(axes, found, "W10", name + "_{}_ms", sizes)
        axes.set_title(title, fontsize=10)
        axes.tick_params(axis="x", labelsize=8, labelrotation=45)
    panels[0].set_ylabel("milliseconds")
    figure.suptitle("Time as the checkpoints in a thread grow (less is better)", x=0, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False)


def _channels(figure: Figure, found: Found, ink: str) -> None:
    axes = figure.subplots()
    _lines(axes, found, "W4", "{}_channels_ms", [1, 10, 100, 1000])
    axes.set_yscale("linear")
    axes.set_ylim(bottom=0)
    axes.set_title("get_tuple (less is better)", loc="left")
    axes.set_xlabel("channels")
    axes.set_ylabel("milliseconds")
    axes.legend(frameon=False)


def _turns(figure: Figure, found: Found, ink: str) -> None:
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (workload, turns) in zip(panels, {"W2": 200, "W2L": 1000}.items(), strict=True):
        at = range(turns // POINTS, turns + 1, turns // POINTS)
        _lines(axes, found, workload, "point_sent_{}", at)
        if workload == "W2":
            for peer in ("postgres", "ours"):
                name = "point_delta_sent_{}"
                points = [(n, found.value("W13", peer, "sync", name.format(n))) for n in at]
                label = f"{PEERS[peer]}, delta channel"
                _line(axes, points, "s:", color=COLOURS[peer], label=label)
        axes.set_xscale("linear")
        axes.set_title(f"a chat of {turns:,} turns", fontsize=10)
        axes.set_xlabel("turn")
        axes.yaxis.set_major_formatter(lambda value, _: readable("sent", value))
    figure.suptitle("Bytes sent a turn, 1 kB of them new (less is better)", x=0, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False)


def _sweep(figure: Figure, found: Found, ink: str) -> None:
    figure.set_size_inches(8, 6)
    rows = {"get_ms": "get_tuple, ms", "step_sent": "sent by a step"}
    grid = figure.subplots(len(rows), len(SIZES), sharex=True, sharey="row")
    for panels, (name, title) in zip(grid, rows.items(), strict=True):
        for axes, size in zip(panels, SIZES, strict=True):
            _lines(axes, found, "W4c", f"point_{name}_{size}_{{}}", COUNTS, ".-")
            if name == "step_sent":
                axes.yaxis.set_major_formatter(lambda value, _: readable("sent", value))
                axes.set_xlabel("channels", fontsize=9)
            else:
                axes.set_title(f"{size:,} bytes each", fontsize=10)
            axes.tick_params(axis="x", labelsize=8, labelrotation=45)
        panels[0].set_ylabel(title)
    figure.suptitle("Many channels, one of which changes a step (less is better)", x=0, ha="left")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False)


PLOTS: dict[str, Draw] = {
    "bytes-sent": _bytes_sent,
    "turns": _turns,
    "unchanging-channel": _unchanging,
    "growth": _growth,
    "channels": _channels,
    "many-channels": _sweep,
}
IN_WORDS = {
    "bytes-sent": "Bytes sent to the server a step or turn, by workload and saver",
    "turns": "Bytes sent to the server by each turn of a chat as it grows, by saver",
    "unchanging-channel": (
        "Bytes stored and read and memory used with a channel of 10 MB that never changes"
    ),
    "growth": "Time of put, get_tuple and list as a thread grows to 100,000 checkpoints",
    "channels": "Time of get_tuple with 1 to 1000 channels",
    "many-channels": (
        "Time of get_tuple and bytes sent by a step with 1 to 5,000 channels of 20 bytes to 4 kB"
    ),
}
