"""Run the benchmark: ``python -m bench [--quick] [--only W3,W4] [--peers ours,0.5.1]``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.environments import REQUIREMENTS, MissingToolError, prepare
from bench.plan import TITLES, passes
from bench.report import Report
from bench.run import Contestant, Crew, run_workload
from bench.servers import Server, mongodb, postgres

FACES = ("sync", "async")


def main() -> int:
    """Parse the command line, run, report; return the exit status."""
    given = _arguments()
    # Servers and environments are put away also when the run is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console()
    try:
        with ExitStack() as stack:
            report = _run(given, console, stack)
    except MissingToolError as error:
        console.print(f"[bold red]The benchmark cannot run.[/] {error}", highlight=False)
        return 2
    report.show(console)
    path = report.write(given.output)
    console.print(f"\nWritten to {path}", highlight=False)
    return 0


def _run(given: argparse.Namespace, console: Console, stack: ExitStack) -> Report:
    contestants = [Contestant(peer, face) for peer in given.peers for face in given.faces]
    servers = _servers(given.peers, stack)
    report = Report(given.quick, {peer: server.name for peer, server in servers.items()})
    for server in set(servers.values()):
        if not server.comparable:
            report.warn(f"{server.name} is no MongoDB server: its figures are NOT comparable.")
    columns = [TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        making = progress.add_task("environments", total=len(given.peers))
        for peer in given.peers:
            prepare(peer, fresh=given.fresh)
            progress.advance(making)
        plans = {workload: passes(workload, given.quick, given.turns) for workload in given.only}
        runs = {name: sum(p.repeat for p in plan) for name, plan in plans.items()}
        task = progress.add_task("", total=sum(runs.values()) * len(contestants))
        crew = stack.enter_context(Crew(contestants, fresh=not given.quick))
        for workload, plan in plans.items():

            def tick(contestant: Contestant, workload: str = workload) -> None:
                progress.update(task, advance=1, description=f"{workload} {contestant}")

            workers = crew.assemble()
            report.add(run_workload(workload, plan, workers, servers, given.quick, tick))
            report.ran_with({worker.contestant.peer: worker.versions for worker in workers})
            report.write(given.output)
            if not console.is_terminal:  # where no bar is drawn
                progress.console.print(f"{workload} done")
    return report


def _servers(peers: Sequence[str], stack: ExitStack) -> dict[str, Server]:
    servers: dict[str, Server] = {}
    ours = [peer for peer in peers if peer in ("ours", "0.5.1")]
    if ours:
        servers |= dict.fromkeys(ours, stack.enter_context(mongodb()))
    if "postgres" in peers:
        servers["postgres"] = stack.enter_context(postgres())
    return servers


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--only", type=_choice(TITLES), default=list(TITLES))
    parser.add_argument("--peers", type=_choice(REQUIREMENTS), default=list(REQUIREMENTS))
    parser.add_argument("--faces", type=_choice(FACES), default=list(FACES))
    parser.add_argument("--fresh", action="store_true", help="make the environments anew")
    parser.add_argument("--turns", type=int, default=5, help="how often each peer is timed")
    parser.add_argument("--output", type=Path, default=Path("bench-results.json"))
    return parser.parse_args()


def _choice(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(given: str) -> list[str]:
        names = given.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"{sorted(unknown)}; known: {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
