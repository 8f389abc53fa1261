"""Large channels: what is sent, stored, read and held in memory."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from bench.meter import PeakMemory
from bench.workloads._base import MB, Stage, expect, lines, looping, text, thread


class Document(TypedDict):
    """The state of W5."""

    doc: list[str]
    n: int


class Findings(TypedDict, total=False):
    """The state of W7."""

    docs: list[str]
    tool_result: list[str]
    done: bool


def count(state: Any) -> Any:
    """Count one step."""
    return {"n": state["n"] + 1}


class LargeChannels:
    """W1: 15 MB in three channels that stay while a counter changes.

    Args:
        kind: ``list`` for lists of strings (W1) or ``str`` for plain strings (W1s).
    """

    def __init__(self, kind: type) -> None:
        self._make: Any = lines if kind is list else text
        self._kind = kind

    async def run(self, stage: Stage) -> dict[str, float]:
        kind: Any = self._kind
        # A class could not name a type that is known only now.
        State = TypedDict("State", {"a": kind, "b": kind, "c": kind, "n": int})  # noqa: UP013
        steps = stage.size(20, 2)
        graph = looping(State, stage.face, stage.face.saver, count, steps)
        large = {name: self._make(stage.size(5 * MB, MB), seed) for seed, name in enumerate("abc")}
        await stage.face.invoke(graph, {**large, "n": steps - 1}, thread("large"))
        with stage.meter.measure() as span:
            await stage.face.invoke(graph, {"n": 0}, thread("large"))
        return {
            "commands_per_step": span.commands / steps,
            "requests_per_step": span.requests / steps,
            "sent_per_step": span.sent / steps,
            "ms_per_step": span.seconds * 1000 / steps,
        }


class UnchangingChannel:
    """W5: 202 checkpoints that share one channel of 10 MB."""

    async def run(self, stage: Stage) -> dict[str, float]:
        steps = stage.size(200, 10)
        config = thread("unchanging")
        graph = looping(Document, stage.face, stage.face.saver, count, steps)
        empty = stage.stored()
        given = {"doc": lines(stage.size(10 * MB, 2 * MB)), "n": 0}
        with stage.meter.measure() as writing:
            await stage.face.invoke(graph, given, config)
        del given
        stored = stage.stored() - empty
        with stage.meter.measure() as ten:
            seen = 0
            async for _ in stage.face.list(config, limit=10):
                seen += 1
        expect(seen == 10, f"list(limit=10) gave {seen}")
        memory = PeakMemory()
        with stage.meter.measure() as everything:
            seen = 0
            async for found in stage.face.list(config):
                seen += 1
                del found
        expect(seen == steps + 2, f"list gave {seen} of {steps + 2}")
        return {
            "sent": writing.sent,
            "stored": stored,
            "list10_received": ten.received,
            "list10_commands": ten.commands,
            "list10_requests": ten.requests,
            "list10_ms": ten.seconds * 1000,
            "list_received": everything.received,
            "list_commands": everything.commands,
            "list_requests": everything.requests,
            "list_ms": everything.seconds * 1000,
            "list_peak_memory": memory.growth(),
        }


class GraphInput:
    """W7: 7 MB and 10 MB in one state, given as input and made by nodes."""

    async def run(self, stage: Stage) -> dict[str, float]:
        docs, result = lines(7 * MB, 1), lines(10 * MB, 2)

        def compiled(first: Any, second: Any) -> Any:
            builder: Any = StateGraph(Findings)
            builder.add_node("first", stage.face.node(first))
            builder.add_node("second", stage.face.node(second))
            builder.add_edge(START, "first")
            builder.add_edge("first", "second")
            return builder.compile(checkpointer=stage.face.saver)

        given = compiled(lambda s: {"done": False}, lambda s: {"done": True})
        made = compiled(lambda s: {"docs": docs}, lambda s: {"tool_result": result, "done": True})
        figures: dict[str, float] = {}
        for name, graph, state in (
            ("input", given, {"docs": docs, "tool_result": result}),
            ("nodes", made, {"done": False}),
        ):
            try:
                with stage.meter.measure() as span:
                    await stage.face.invoke(graph, state, thread(name))
            except Exception as error:  # failing here is 0.5.1's result
                print(f"W7 {name}: {type(error).__name__}: {str(error)[:200]}")
                figures[f"{name}_works"] = 0
                continue
            kept = (await stage.face.get_tuple(thread(name))).checkpoint["channel_values"]
            expect(kept["docs"] == docs and kept["tool_result"] == result, f"{name} changed")
            figures |= {
                f"{name}_works": 1,
                f"{name}_sent": span.sent,
                f"{name}_commands": span.commands,
                f"{name}_ms": span.seconds * 1000,
            }
        return figures
