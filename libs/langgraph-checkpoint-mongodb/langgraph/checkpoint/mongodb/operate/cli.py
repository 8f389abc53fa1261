"""The command line of the operator's tool; what it says comes from the functions beside it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from langgraph.checkpoint.mongodb.operate import _paint as paint
from langgraph.checkpoint.mongodb.operate._arguments import (
    FAILED,
    FOUND,
    Connection,
    Place,
    time_of,
)
from langgraph.checkpoint.mongodb.operate._indexes import indexes as find_indexes
from langgraph.checkpoint.mongodb.operate._migrate import migrate as do_migrate
from langgraph.checkpoint.mongodb.operate._prune import prune as do_prune
from langgraph.checkpoint.mongodb.operate._show import show as find_thread
from langgraph.checkpoint.mongodb.operate._stats import stats as find_stats
from langgraph.checkpoint.mongodb.operate._store import ROLES, Store
from langgraph.checkpoint.mongodb.operate._verify import Verified
from langgraph.checkpoint.mongodb.operate._verify import verify as find_damage
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["app"]

app = typer.Typer(
    name="langgraph-checkpoint-mongodb",
    help="Look after the threads that LangGraph's checkpointers keep in MongoDB.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON instead of tables.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Threads = Annotated[list[str] | None, typer.Argument(help="Threads; all, if none is given.")]
Picture = Annotated[Path | None, typer.Option(help="Write what is shown into an SVG file, too.")]


@app.callback()
def connect(
    context: typer.Context,
    uri: Annotated[
        str | None,
        typer.Option(
            envvar="MONGODB_URI",
            help="Connection string. With readPreference=secondary what only reads goes there.",
        ),
    ] = None,
    db: Annotated[str, typer.Option(help="Database.")] = "checkpointing_db",
    checkpoints: Annotated[str, typer.Option(help="Collection.")] = "checkpoints",
    writes: Annotated[str, typer.Option(help="Collection.")] = "checkpoint_writes",
    values: Annotated[
        str | None, typer.Option(help="Collection; by default it follows the first.")
    ] = None,
    ttl: Annotated[int | None, typer.Option(help="Seconds, as the savers have it.")] = None,
    serde: Annotated[
        str | None,
        typer.Option(help="The savers' serializer, as module:name, where it is not LangGraph's."),
    ] = None,
) -> None:
    """Names and connection, the same for all commands."""
    arguments = {
        "db_name": db,
        "checkpoint_collection_name": checkpoints,
        "writes_collection_name": writes,
        "channel_values_collection_name": values,
        "ttl": ttl,
    }
    context.obj = Connection(uri, arguments, serde)


@app.command()
def stats(
    context: typer.Context,
    as_json: AsJson = False,
    largest: Annotated[int, typer.Option(min=1, help="How many of the largest.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Read no documents.")] = False,
    picture: Picture = None,
) -> None:
    """How much there is, how it grows, and what comes near the 16 MB of one document."""
    with context.obj.saver() as saver, _progress("documents", as_json, _documents(saver)) as step:
        found = find_stats(saver, largest=largest, quick=quick, progress=step)
    _say(found, as_json, lambda: paint.stats_report(found), picture, "stats")


@app.command()
def show(
    context: typer.Context,
    thread: Annotated[str, typer.Argument(help="The thread.")],
    as_json: AsJson = False,
    values: Annotated[bool, typer.Option("--values", help="Show the newest values, too.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the plot into an SVG file.")] = None,
    picture: Picture = None,
) -> None:
    """One thread: its checkpoints with forks, their sizes, and how its bytes grew."""
    with context.obj.saver() as saver:
        found = find_thread(saver, thread, values=values)
    if found is None:
        typer.secho(f"There is no thread {thread!r}.", fg="red", err=True)
        raise typer.Exit(FAILED)
    if plot:
        plot.write_text(paint.plot_svg(found))
    _say(found, as_json, lambda: paint.thread_report(found), picture, f"show {thread}")


@app.command()
def verify(
    context: typer.Context,
    threads: Threads = None,
    as_json: AsJson = False,
    resume: Annotated[
        Path | None,
        typer.Option(help="Note the place in this file, and go on there if it is there already."),
    ] = None,
) -> None:
    """Look for damage, and for what crashes left. Exit status 1 if there is something.

    With --json a line for each finding, and a last one with the counts.
    """
    place = Place(resume)
    verified = Verified()
    out = paint.console()
    with context.obj.saver() as saver, _progress("checkpoints", as_json, _some(saver)) as step:

        def noted(count: int) -> None:
            step(count)
            place.note(verified)

        damage = find_damage(
            saver, threads or None, after=place.after, verified=verified, progress=noted
        )
        try:
            for finding in damage:
                place.findings += 1
                told = {**dataclasses.asdict(finding), "remedy": finding.remedy}
                if as_json:
                    typer.echo(json.dumps(told))
                else:
                    out.print(_told(told), markup=False)
        finally:
            place.note(verified, now=True)
    place.done()
    counts = {
        "threads": verified.threads,
        "checkpoints": verified.checkpoints,
        "findings": place.findings,
    }
    if as_json:
        typer.echo(json.dumps(counts))
    else:
        out.print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if place.findings:
        raise typer.Exit(FOUND)


def _told(finding: dict[str, str]) -> str:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    where = " ".join(f"{name}={finding[name]!r}" for name in names if finding[name])
    return f"{finding['kind']}: {where}: {finding['what']}\n    {finding['remedy']}"


@app.command()
def prune(
    context: typer.Context,
    threads: Threads = None,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="Keep so many checkpoints of each namespace.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Remove only older checkpoints: 30d, 12h, 2w.")
    ] = None,
    idle: Annotated[
        str | None, typer.Option(help="Delete threads that were idle for as long: 90d.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove old checkpoints, and idle threads; never what a kept checkpoint needs."""
    with context.obj.saver() as saver:

        def run(dry: bool) -> Any:
            with _progress("threads", as_json) as step:
                return do_prune(
                    saver,
                    threads or None,
                    keep_last=keep_last,
                    older_than=time_of(older_than),
                    idle=time_of(idle),
                    dry_run=dry,
                    progress=step,
                )

        found = _asked(run, dry_run, yes, as_json)

    def report() -> str:
        return (
            f"{'Would remove' if found.dry_run else 'Removed'} {found.checkpoints:,} checkpoints "
            f"of {found.threads:,} threads, {paint.size(found.bytes)}; "
            f"{found.deleted_threads:,} threads go whole."
        ) + _failures(found)

    _say(found, as_json, report)
    if found.failed:
        raise typer.Exit(FOUND)


@app.command()
def migrate(
    context: typer.Context,
    threads: Threads = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move threads of releases up to 0.5.1 into the split layout, in place.

    Run it where the application's classes can be imported. Exit status 1 if some could not be.
    """
    with context.obj.saver() as saver:

        def run(dry: bool) -> Any:
            with _progress("threads", as_json) as step:
                return do_migrate(saver, threads or None, dry_run=dry, progress=step)

        found = _asked(run, dry_run, yes, as_json)

    def report() -> str:
        return (
            f"{'Would migrate' if found.dry_run else 'Migrated'} {found.checkpoints:,} checkpoints "
            f"of {found.threads:,} threads, {paint.size(found.bytes)} before."
        ) + _failures(found)

    _say(found, as_json, report)
    if found.failed:
        raise typer.Exit(FOUND)


@app.command()
def indexes(context: typer.Context, as_json: AsJson = False) -> None:
    """Which indexes are there, which are missing, and how to make them."""
    with context.obj.saver() as saver:
        found = find_indexes(saver)
    _say(found, as_json, lambda: paint.index_table(found))


def _failures(found: Any) -> str:
    """The threads that could not be done."""
    return "".join(f"\nNot {thread_id!r}: {reason}" for thread_id, reason in found.failures)


def _asked(run: Callable[[bool], Any], dry_run: bool, yes: bool, as_json: bool) -> Any:
    """Say what would be done, and do it if a person agrees, or has before.

    Raises:
        typer.Exit: Nobody did.
    """
    if dry_run or yes:
        return run(dry_run)
    if as_json or not sys.stdin.isatty():
        typer.secho("Nobody can be asked here: say --dry-run, or --yes.", fg="red", err=True)
        raise typer.Exit(FAILED)
    planned = run(True)
    what = f"{planned.checkpoints:,} checkpoints of {planned.threads:,} threads"
    typer.confirm(f"{what}, {paint.size(planned.bytes)}. Go on?", abort=True)
    return run(False)


def _some(saver: MongoDBSaver) -> int:
    return saver.checkpoint_collection.estimated_document_count()


def _documents(saver: MongoDBSaver) -> int:
    store = Store(saver)
    counts = (store.collection(role).estimated_document_count() for role in ROLES)
    return sum(counts)


@contextmanager
def _progress(
    what: str, as_json: bool, total: int | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if a person looks at it."""
    errors = Console(stderr=True)
    if as_json or not errors.is_terminal:
        yield lambda count: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _say(
    found: Any,
    as_json: bool,
    report: Callable[[], RenderableType],
    picture: Path | None = None,
    title: str = "",
) -> None:
    if as_json:
        typer.echo(json.dumps(_jsonable(found), default=str, indent=2))
        return
    out = paint.console(record=picture is not None)
    told = report()
    # Text of ours alone has markup; what is stored, or an error says, may look like some.
    out.print(told, markup=not isinstance(told, str))
    if picture:
        out.save_svg(str(picture), title=f"{app.info.name} {title}")


def _jsonable(found: Any) -> Any:
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {one.name: _jsonable(getattr(found, one.name)) for one in dataclasses.fields(found)}
    if isinstance(found, (list, tuple)):
        return [_jsonable(one) for one in found]
    if isinstance(found, dict):
        return {str(name): _jsonable(one) for name, one in found.items()}
    return found.isoformat() if hasattr(found, "isoformat") else found
