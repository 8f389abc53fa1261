"""Put a run's table and plots into `docs/benchmarks.md`: ``python -m bench.docs RESULTS``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bench.environments import LIBRARY
from bench.plan import TITLES, is_point, is_time
from bench.plots import IN_WORDS, draw_all
from bench.report import Report, readable
from bench.run import Contestant, Outcome
from bench.targets import Found, Verdict, verdicts

PAGE = LIBRARY.parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
PEERS = ("ours", "0.5.1", "postgres", "memory")


def main() -> None:
    """Draw the plots and replace the generated parts of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.docs", description=__doc__)
    parser.add_argument("results", type=Path)
    report = Report.read(parser.parse_args().results)
    if report.quick:
        raise SystemExit("These are results of a quick run; the page shows full ones.")
    draw_all(report, PAGE.parent / "benchmarks")
    page = PAGE.read_text()
    for name, lines in {
        "conditions": _conditions(report),
        "plots": _plots(),
        "promises": _promises(verdicts(report.outcomes)),
        "figures": _figures(report.outcomes),
    }.items():
        page = _replace(page, name, "\n".join(lines))
    PAGE.write_text(page)


def _replace(page: str, name: str, text: str) -> str:
    """Replace what stands between the markers of a generated part."""
    begin, end = BEGIN.format(name), END.format(name)
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{PAGE} has no markers {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def _conditions(report: Report) -> Iterator[str]:
    """Say what ran on what."""
    servers = ", ".join(dict.fromkeys(report.servers.values()))
    machine = f"Python {report.python} on {report.cpus} cores"
    yield f"Measured on {report.date} with {machine}: {servers}."
    packages = {f"{k} {v}" for found in report.versions.values() for k, v in found.items()}
    yield f"Packages: {', '.join(sorted(packages))}."
    yield from (f"**{text}**" for text in report.warnings)


def _plots() -> Iterator[str]:
    """Show every plot, the one that fits the reader's ground."""
    for name, words in IN_WORDS.items():
        dark = f'media="(prefers-color-scheme: dark)" srcset="benchmarks/{name}-dark.svg"'
        light = f'alt="{words}" src="benchmarks/{name}-light.svg"'
        yield f"<picture><source {dark}><img {light}></picture>\n"


def _promises(judged: list[Verdict]) -> Iterator[str]:
    yield "| | figure | promise | sync | async |"
    yield "|---|---|---|---|---|"
    by_target: dict[int, dict[str, Verdict]] = {}
    for verdict in judged:
        by_target.setdefault(id(verdict.target), {})[verdict.face] = verdict
    for faces in by_target.values():
        target = next(iter(faces.values())).target
        cells = [_verdict(faces.get(face)) for face in ("sync", "async")]
        name = target.figure.replace("_", " ")
        yield f"| {target.workload} | {name} | {target.promise} | {' | '.join(cells)} |"


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    target = verdict.target
    shown = readable("" if target.ratio_to else target.figure, verdict.measured)
    return shown if verdict.met else f"**{shown}: missed, x {verdict.missed_by:.2f}**"


def _figures(outcomes: list[Outcome]) -> Iterator[str]:
    found = Found(outcomes)
    for workload in dict.fromkeys(outcome.workload for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.workload == workload]
        figures = dict.fromkeys(name for outcome in mine for name in outcome.runs)
        shown = [figure for figure in figures if not is_point(figure)]
        if not shown:  # a plot says it all
            continue
        yield f"\n### {workload}: {TITLES[workload]}\n"
        yield "| sync / async | " + " | ".join(PEERS) + " |"
        yield "|---|" + "---|" * len(PEERS)
        for figure in shown:
            cells = [_both(found, mine, workload, peer, figure) for peer in PEERS]
            if set(cells) != {"-"}:
                yield f"| {figure.replace('_', ' ')} | {' | '.join(cells)} |"


def _both(found: Found, outcomes: list[Outcome], workload: str, peer: str, figure: str) -> str:
    """Write a figure for both faces, once when they agree."""
    shown = []
    for face in ("sync", "async"):
        value = found.value(workload, peer, face, figure)
        text = readable(figure, value)
        base = found.value(workload, "0.5.1", face, figure)
        if value and base and peer != "0.5.1" and is_time(figure):
            by = {o.contestant: o for o in outcomes}
            ratio = by[Contestant(peer, face)].ratio(figure, by[Contestant("0.5.1", face)])
            text += f" (x {ratio:.2f})"
        shown.append(text)
    return shown[0] if shown[0] == shown[1] else " / ".join(shown)


if __name__ == "__main__":
    main()
