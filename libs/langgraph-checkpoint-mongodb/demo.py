"""17 MB of state in MongoDB: saved, resumed in a fresh process, measured step by step.

`python demo.py` uses the server of MONGODB_URI, or else an embedded one. It works in a
database of its own, which it drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypedDict

import bson
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from pymongo import AsyncMongoClient, MongoClient
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, ChannelTooLargeError, MongoDBSaver
from tests.embedded import embedded_server

MIB = 1024 * 1024
COLLECTIONS = ("checkpoint_writes", "checkpoint_channel_values", "checkpoints")
TURNS = 3

# Seen with nodes that return 7 and 10 MiB on MongoDB 6.0 and 7.0: release 0.5.1,
# langgraph 1.2.24, pymongo 4.20.1.
ERROR_OF_0_5_1 = "pymongo.errors.DocumentTooLarge: update command document too large"


class State(TypedDict, total=False):
    """The demo's channels."""

    docs: str
    tool_result: str
    turn: int
    answer: str


class Meter(CommandListener):
    """Counts the commands and bytes that a client sends, by step and collection.

    Attributes:
        step: The step that is going on; the graph's nodes set it.
        bytes: For each step, the bytes of the write commands to each collection.
        commands: For each step, the number of write commands.
    """

    def __init__(self) -> None:
        self.step = "input"
        self.bytes: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.commands: defaultdict[str, int] = defaultdict(int)

    def started(self, event: CommandStartedEvent) -> None:
        """Count a write command as it is sent."""
        if event.command_name in ("insert", "update"):
            collection = event.command[event.command_name]
            self.bytes[self.step][collection] += len(bson.encode(event.command))
            self.commands[self.step] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing to do: a command counts when it is sent."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing to do: a command counts when it is sent."""


def text(size: int) -> str:
    """Some text of a size in bytes."""
    line = "The quick brown fox jumps over the lazy dog. "
    return (line * (size // len(line) + 1))[:size]


def digest(state: State) -> str:
    """What the large channels hold, in short."""
    large = f"{state['docs']}|{state['tool_result']}"
    return hashlib.sha256(large.encode()).hexdigest()[:16]


def graph_on(saver: Any, meter: Meter, docs_size: int) -> Any:
    """The demo's graph: two large channels, then a few turns that change a small one."""

    def load_docs(state: State) -> State:
        meter.step = "load_docs"
        return {} if "docs" in state else {"docs": text(docs_size)}

    def call_tool(state: State) -> State:
        meter.step = "call_tool"
        return {} if "tool_result" in state else {"tool_result": text(10 * MIB)}

    def think(state: State) -> State:
        turn = state.get("turn", 0) + 1
        meter.step = f"think {turn}"
        return {"turn": turn}

    def answer(state: State) -> State:
        return {"answer": digest(state)}

    builder = StateGraph(State)
    for node in (load_docs, call_tool, think, answer):
        builder.add_node(node)
    builder.add_edge(START, "load_docs")
    builder.add_edge("load_docs", "call_tool")
    builder.add_edge("call_tool", "think")
    builder.add_conditional_edges(
        "think", lambda state: "answer" if state["turn"] == TURNS else "think", ["answer", "think"]
    )
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver, interrupt_before=["answer"])


@dataclass(frozen=True)
class Place:
    """Where a run keeps its state: the server, the database and the thread."""

    uri: str
    db_name: str
    thread_id: str

    @property
    def config(self) -> RunnableConfig:
        """The config of the thread."""
        return {"configurable": {"thread_id": self.thread_id}}


def run_sync(place: Place, given: State | None, meter: Meter, docs_size: int = 7 * MIB) -> State:
    """Run or resume the graph on a `MongoDBSaver`."""
    with MongoClient[Any](place.uri, event_listeners=[meter]) as client:
        graph = graph_on(MongoDBSaver(client, place.db_name), meter, docs_size)
        state: State = graph.invoke(given, place.config, durability="sync")
        return state


def run_async(place: Place, given: State | None, meter: Meter, docs_size: int = 7 * MIB) -> State:
    """Run or resume the graph on an `AsyncMongoDBSaver`."""

    async def run() -> State:
        async with AsyncMongoClient[Any](place.uri, event_listeners=[meter]) as client:
            graph = graph_on(AsyncMongoDBSaver(client, place.db_name), meter, docs_size)
            state: State = await graph.ainvoke(given, place.config, durability="sync")
            return state

    return asyncio.run(run())


RUNS = {"MongoDBSaver": run_sync, "AsyncMongoDBSaver": run_async}


def resume(saver: str, places: list[Place]) -> list[str]:
    """Resume threads; called in a process that has never seen them."""
    return [RUNS[saver](place, None, Meter())["answer"] for place in places]


@contextlib.contextmanager
def server() -> Iterator[tuple[str, str]]:
    """A server's connection string, and what it is."""
    if uri := os.environ.get("MONGODB_URI"):
        yield uri, "the server that MONGODB_URI names"
        return
    with embedded_server() as uri:
        yield uri, "an embedded server that emulates MongoDB"


@contextlib.contextmanager
def database(uri: str) -> Iterator[tuple[MongoClient[Any], str]]:
    """A client, and the name of a database that is dropped afterwards."""
    with MongoClient[Any](uri, serverSelectionTimeoutMS=10_000) as client:
        name = f"checkpoint_demo_{uuid.uuid4().hex[:12]}"
        try:
            yield client, name
        finally:
            client.drop_database(name)


def human(size: int) -> str:
    """A number of bytes for people."""
    if not size:
        return "-"
    return f"{size / MIB:.2f} MB" if size >= MIB else f"{size / 1024:.2f} kB"


def table_of(meter: Meter) -> Table:
    """What each step wrote."""
    table = Table(title="Written in each step", title_justify="left")
    table.add_column("step", style="cyan")
    for name in ("commands", "pending writes", "channel values", "checkpoint"):
        table.add_column(name, justify="right")
    table.add_column("sum", justify="right", style="bold")
    for step, written in meter.bytes.items():
        sizes = [written[collection] for collection in COLLECTIONS]
        row = [human(size) for size in (*sizes, sum(sizes))]
        table.add_row(step, str(meter.commands[step]), *row)
    return table


class Demo:
    """The runs, one after the other, each telling the progress bar.

    Args:
        bar: The progress bar.
    """

    WAYS: tuple[tuple[str, State], ...] = (
        ("from two nodes", {"turn": 0}),
        ("as the graph's input", {"docs": text(7 * MIB), "tool_result": text(10 * MIB)}),
    )

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        steps = 1 + len(RUNS) * (len(self.WAYS) + 2)
        self.task = bar.add_task("starting the server", total=steps)
        self.meter = Meter()
        self.done: list[str] = []
        self.refusal = ""

    @contextlib.contextmanager
    def step(self, description: str) -> Iterator[None]:
        """One step of the progress bar; what was shown is listed at the end."""
        self.bar.update(self.task, description=description)
        yield
        self.bar.advance(self.task)
        self.done.append(description)

    def run(self, uri: str, db_name: str, saver: str) -> None:
        """Save, resume and refuse, with one of the savers."""
        places = [Place(uri, db_name, f"{saver} {way}") for way, _ in self.WAYS]
        for place, (way, given) in zip(places, self.WAYS, strict=True):
            with self.step(f"{saver}: 17 MB {way}, saved"):
                meter = Meter() if self.done else self.meter
                RUNS[saver](place, given, meter)
        with self.step(f"{saver}: both resumed in a fresh process"):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                answers = fresh.submit(resume, saver, places).result()
            if set(answers) != {digest(self.WAYS[1][1])}:
                sys.exit(f"{saver}: the state came back changed.")
        with self.step(f"{saver}: 17 MB in one channel, refused"):
            place = Place(uri, db_name, f"{saver} too large")
            try:
                RUNS[saver](place, {"turn": 0}, Meter(), 17 * MIB)
            except ChannelTooLargeError as error:
                self.refusal = f"[red]{type(error).__name__}[/]: {error}"
            else:
                sys.exit(f"{saver} took a channel of 17 MB.")


def main() -> None:
    """Run the demo."""
    console = Console(highlight=False)
    began = time.monotonic()
    console.print(
        Panel(
            "A state of 17 MB: the channel [cyan]docs[/] holds 7, the channel "
            "[cyan]tool_result[/] 10.\nMongoDB stores at most 16 MB in one document.",
            title="langgraph-checkpoint-mongodb",
        )
    )
    console.print(
        f"Release 0.5.1 puts the whole state into one document, and fails:\n"
        f"  [red]{ERROR_OF_0_5_1}[/]\n"
    )
    bar = Progress(
        TextColumn("{task.description:<52}"), BarColumn(), TimeElapsedColumn(), console=console
    )
    with bar, server() as (uri, what), database(uri) as (client, db_name):
        demo = Demo(bar)
        version = client.server_info()["version"]
        bar.advance(demo.task)
        for saver in RUNS:
            demo.run(uri, db_name, saver)
        bar.update(demo.task, description="done")
    console.print(f"\nNow, on {what}, version {version}:")
    for line in demo.done:
        console.print(f"  [green]ok[/] {line}")
    console.print(f"     {demo.refusal}\n")
    console.print(table_of(demo.meter))
    console.print(
        "A [cyan]think[/] step changes one small channel: the 17 MB are not written again.\n"
        f"Took {time.monotonic() - began:.0f} s. The database is dropped."
    )


if __name__ == "__main__":
    main()
