"""Reading: one checkpoint, the history of a delta channel, and how both grow."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel

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
            f"{name}_ms": median(times) * 1000,
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
        for _ in range(3):
            with stage.meter.measure() as span:
                history = await stage.face.history(latest, "log")
            times.append(span.seconds)
        expect(len(history["log"]["writes"]) == steps + 1, "history is not whole")
        return {
            "commands": span.commands,
            "requests": span.requests,
            "received": span.received,
            "ms": median(times) * 1000,
        }


class Growth:
    """W10: one thread that grows, measured at each power of ten; then pruned."""

    rounds = 30

    async def run(self, stage: Stage) -> dict[str, float]:
        figures: dict[str, float] = {}
        built = HandMadeThread(stage.face, "growing")
        for size in (100, 300) if stage.quick else (10**2, 10**3, 10**4, 10**5):
            while built.step < size:
                await built.put({"n": built.step, "note": [f"step {built.step}"]})
            for name, seconds in (await self._measure(stage, built)).items():
                figures[f"{name}_{size}_ms"] = seconds * 1000
        if hasattr(type(stage.face.saver), "prune"):
            figures |= await self._prune(stage, built)
        return figures

    async def _measure(self, stage: Stage, built: HandMadeThread) -> dict[str, float]:
        config = thread("growing")

        async def put() -> None:
            await built.put({"n": built.step})

        async def get() -> None:
            await stage.face.get_tuple(config)

        async def listing() -> None:
            found = [found async for found in stage.face.list(config, limit=10)]
            expect(len(found) == 10, f"list(limit=10) gave {len(found)}")

        return {
            "put": await self._median(put),
            "get_tuple": await self._median(get),
            "list10": await self._median(listing),
        }

    async def _median(self, call: Callable[[], Awaitable[None]]) -> float:
        times = []
        for _ in range(self.rounds):
            start = time.perf_counter()
            await call()
            times.append(time.perf_counter() - start)
        return median(times)

    async def _prune(self, stage: Stage, built: HandMadeThread) -> dict[str, float]:
        """Prune a thread of 100 beside the large one, then the large one."""
        beside = HandMadeThread(stage.face, "beside")
        for _ in range(100):
            await beside.put({"n": beside.step})
        figures = {}
        for name, pruned, length in (
            ("beside", beside, 100),
            ("growing", built, built.step),
        ):
            start = time.perf_counter()
            try:
                await stage.face.prune(name)
            except NotImplementedError:
                return {}
            seconds = time.perf_counter() - start
            left = [found async for found in stage.face.list(thread(name))]
            expect(
                [found.checkpoint["id"] for found in left] == [pruned.latest_id],
                "prune kept others",
            )
            figures[f"prune_{name}_ms"] = seconds * 1000
            figures[f"prune_{name}_us_per_checkpoint"] = seconds * 1e6 / (length - 1)
        return figures
