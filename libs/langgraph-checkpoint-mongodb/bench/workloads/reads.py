"""Reading: one checkpoint, the history of a delta channel, and how both grow."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel

from bench.faces import Config
from bench.threads import HandMadeThread
from bench.workloads._base import MB, Stage, expect, lines, looping, thread


class GetTuple:
    """W4: the latest checkpoint with 1 to 1000 small channels, and with 15 MB in three."""

    async def run(self, stage: Stage) -> dict[str, float]:
        figures: dict[str, float] = {}
        for channels in (1, 10, 100, 1000):
            name = f"{channels}_channels"
            built = HandMadeThread(stage.face, name)
            await built.put({f"c{i}": [i, f"value {i}"] for i in range(channels)})
            rounds = stage.size(200, 20) // (4 if channels == 1000 else 1)
            figures |= await self._read(stage, name, rounds)
        built = HandMadeThread(stage.face, "15MB")
        await built.put({name: lines(5 * MB, seed) for seed, name in enumerate("abc")})
        return figures | await self._read(stage, "15MB", stage.size(20, 3))

    async def _read(self, stage: Stage, name: str, rounds: int) -> dict[str, float]:
        config = thread(name)
        await stage.face.get_tuple(config)
        times = []
        with stage.meter.measure() as span:
            for _ in range(rounds):
                start = time.perf_counter()
                await stage.face.get_tuple(config)
                times.append(time.perf_counter() - start)
        return {
            f"{name}_ms": min(times) * 1000,
            f"{name}_cpu_ms": span.cpu_seconds * 1000 / rounds,
            f"{name}_commands": span.commands / rounds,
            f"{name}_requests": span.requests / rounds,
            f"{name}_received": span.received / rounds,
        }


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Reduce writes to a log."""
    return [*state, *(item for write in writes for item in write)]


class Log(TypedDict):
    """The state of W8; its log never reaches a snapshot."""

    n: int
    log: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=10**6)]


class DeltaHistory:
    """W8: the history of a delta channel after 500 steps without a snapshot."""

    async def run(self, stage: Stage) -> dict[str, float]:
        steps = stage.size(500, 60)

        def step(state: Any) -> Any:
            return {"n": state["n"] + 1, "log": [f"step {state['n']}"]}

        graph = looping(Log, stage.face, stage.face.saver, step, steps)
        config = thread("delta")
        await stage.face.invoke(graph, {"n": 0, "log": []}, config)
        latest = (await stage.face.get_tuple(config)).config
        times = []
        for _ in range(stage.size(10, 3)):
            with stage.meter.measure() as span:
                history = await stage.face.history(latest, "log")
            times.append(span.seconds)
        expect(len(history["log"]["writes"]) == steps + 1, "history is not whole")
        return {
            "commands": span.commands,
            "requests": span.requests,
            "received": span.received,
            "ms": min(times) * 1000,
        }


class Growth:
    """W10: a thread that grows, measured at each power of ten and pruned at the end."""

    rounds = 30

    async def run(self, stage: Stage) -> dict[str, float]:
        figures: dict[str, float] = {}
        built = HandMadeThread(stage.face, "growing")
        await built.put({"n": 0, "note": ["a note"]})
        length = 1
        for size in (100, 1000) if stage.quick else (10**2, 10**3, 10**4, 10**5):
            await self._grow(stage, built, size - length)
            for name, seconds in (await self._measure(stage, built)).items():
                figures[f"{name}_{size}_ms"] = seconds * 1000
            length = size + self.rounds
            figures |= await self._prune(stage, size)
        return figures

    async def _grow(self, stage: Stage, built: HandMadeThread, more: int) -> None:
        """Give the thread more checkpoints; it keeps its newest."""
        if stage.multiply:
            stage.multiply(built.thread_id, more)
        else:
            for _ in range(more):
                await built.put({"n": built.step})

    async def _measure(self, stage: Stage, built: HandMadeThread) -> dict[str, float]:
        everywhere = thread(built.thread_id)
        # What `get_state` and `get_state_history` ask for.
        root = {"configurable": {"thread_id": built.thread_id, "checkpoint_ns": ""}}

        async def put() -> None:
            await built.put({"n": built.step})

        async def get() -> None:
            await stage.face.get_tuple(root)

        def listing(config: Config) -> Callable[[], Awaitable[None]]:
            async def ten() -> None:
                found = [found async for found in stage.face.list(config, limit=10)]
                expect(len(found) == 10, f"list(limit=10) gave {len(found)}")

            return ten

        return {
            "put": await self._best(put),
            "get_tuple": await self._best(get),
            "list10": await self._best(listing(root)),
            "list10_any_namespace": await self._best(listing(everywhere)),
        }

    async def _best(self, call: Callable[[], Awaitable[None]]) -> float:
        times = []
        for _ in range(self.rounds):
            start = time.perf_counter()
            await call()
            times.append(time.perf_counter() - start)
        return min(times)

    async def _prune(self, stage: Stage, size: int) -> dict[str, float]:
        """Prune a thread of so many checkpoints, made for it."""
        pruned = HandMadeThread(stage.face, f"pruned-{size}")
        await pruned.put({"n": 0, "note": ["a note"]})
        await self._grow(stage, pruned, size - 1)
        start = time.perf_counter()
        try:
            await stage.face.prune(pruned.thread_id)
        except NotImplementedError:  # this peer cannot
            return {}
        seconds = time.perf_counter() - start
        left = [found.checkpoint["id"] async for found in stage.face.list(thread(pruned.thread_id))]
        expect(left == [pruned.latest_id], f"prune left {len(left)}")
        return {
            f"prune_{size}_ms": seconds * 1000,
            f"prune_{size}_us_per_checkpoint": seconds * 1e6 / (size - 1),
        }
