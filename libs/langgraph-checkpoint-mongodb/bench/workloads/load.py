"""Load: many conversations at once, and what an event loop feels of a large value."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Awaitable
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph

from bench.threads import HandMadeThread
from bench.workloads._base import MB, Stage, lines, looping, text, thread

WORKERS = 8
TICK_S = 0.001


class Talk(TypedDict):
    """The state of W6."""

    question: str
    log: Annotated[list[str], operator.add]


class Concurrent:
    """W6: eight threads or tasks, each a conversation of 20 turns through three nodes."""

    async def run(self, stage: Stage) -> dict[str, float]:
        builder: Any = StateGraph(Talk)
        previous: str = START
        for name in ("plan", "act", "reply"):
            builder.add_node(name, stage.face.node(lambda s: {"log": [text(40, len(s["log"]))]}))
            builder.add_edge(previous, name)
            previous = name
        graph = builder.compile(checkpointer=stage.face.saver)
        turns = stage.size(20, 2)

        def conversation(number: int) -> Any:
            async def talk() -> None:
                for turn in range(turns):
                    given = {"question": text(100, turn), "log": []}
                    await stage.face.invoke(graph, given, thread(f"talk-{number}"))

            return talk

        await conversation(WORKERS)()  # warm up
        with stage.meter.measure() as span:
            await stage.face.together([conversation(n) for n in range(WORKERS)])
        steps = WORKERS * turns * 3
        return {
            "node_steps_per_s": steps / span.seconds,
            "commands_per_step": span.commands / steps,
            "requests_per_step": span.requests / steps,
            "sent_per_step": span.sent / steps,
            "received_per_step": span.received / steps,
            "cpu_ms_per_step": span.cpu_seconds * 1000 / steps,
        }


class Report(TypedDict):
    """The state of W6b."""

    n: int
    report: str


class ManyTasks:
    """W6b: a hundred tasks, each a thread whose report of 8 kB is another in each step."""

    async def run(self, stage: Stage) -> dict[str, float]:
        if stage.face.name == "sync":
            return {}
        tasks, steps = stage.size(100, 10), stage.size(20, 5)
        drafts = [text(8000, number) for number in range(steps + 1)]

        def step(state: Report) -> Report:
            return {"n": state["n"] + 1, "report": drafts[state["n"]]}

        graph = looping(Report, stage.face, stage.face.saver, step, steps)

        def writing(name: str) -> Any:
            async def write() -> None:
                await stage.face.invoke(graph, {"n": 0, "report": drafts[-1]}, thread(name))

            return write

        await writing("warm-up")()
        with stage.meter.measure() as span:
            await stage.face.together([writing(f"report-{n}") for n in range(tasks)])
        return {
            "cpu_ms_per_step": span.cpu_seconds * 1000 / (tasks * steps),
            "ms_per_step": span.seconds * 1000 / (tasks * steps),
            "commands_per_step": span.commands / (tasks * steps),
            "sent_per_step": span.sent / (tasks * steps),
        }


class Ticking:
    """W9: a value of 10 MB is saved and loaded while another task ticks each millisecond."""

    async def run(self, stage: Stage) -> dict[str, float]:
        if stage.face.name == "sync":
            return {}
        value = lines(10 * MB)
        latest: dict[str, list[float]] = {"idle": [], "put_writes": [], "put": [], "get_tuple": []}
        for number in range(stage.size(10, 2)):
            built = HandMadeThread(stage.face, f"ticking-{number}")
            await built.put({"n": 0})
            latest["idle"].append(await latest_tick(asyncio.sleep(0.1)))
            writes = stage.face.put_writes(built.config, [("doc", value)], "task")
            latest["put_writes"].append(await latest_tick(writes))
            latest["put"].append(await latest_tick(built.put({"doc": value})))
            reading = stage.face.get_tuple(thread(f"ticking-{number}"))
            latest["get_tuple"].append(await latest_tick(reading))
        # The best try shows what is always late, the worst includes the machine's other work.
        figures = {f"{name}_late_ms": min(late) * 1000 for name, late in latest.items()}
        return figures | {f"{name}_latest_ms": max(late) * 1000 for name, late in latest.items()}


async def latest_tick(work: Awaitable[Any]) -> float:
    """Return how late the latest tick was while the work went on, in seconds."""
    late = 0.0
    over = False

    async def tick() -> None:
        nonlocal late
        while not over:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            late = max(late, time.perf_counter() - due)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await work
    over = True
    await ticking
    return late
