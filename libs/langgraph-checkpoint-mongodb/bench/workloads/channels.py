"""Many channels: what reading all and changing one of them costs."""

from __future__ import annotations

import time

from bench.threads import HandMadeThread
from bench.workloads._base import MB, Stage, expect, text, thread

COUNTS = (1, 3, 10, 30, 100, 300, 1000, 2000, 5000)
SIZES = (20, 200, 1000, 4000)  # bytes of each channel
MOST = 12 * MB  # bytes of all channels: 0.5.1 stores no more than 16 MB


class ManyChannels:
    """A checkpoint of so many channels, read and then changed one channel a step.

    Args:
        stage: Where it runs.
        count: How many channels.
        size: Characters in each.
    """

    def __init__(self, stage: Stage, count: int, size: int) -> None:
        self._stage, self._count, self._size = stage, count, size
        self._built = HandMadeThread(stage.face, f"{count}-channels-of-{size}")

    async def measured(self, reads: int, steps: int) -> dict[str, float]:
        """Read and change it so often; return the figures of each."""
        values = {f"c{n}": text(self._size, n) for n in range(self._count)}
        await self._built.put(values)
        # What is written at once may be stored otherwise than what stayed for a step.
        await self._built.put({"c0": text(self._size, -1)})
        times = []
        with self._stage.meter.measure() as span:
            for _ in range(reads):
                start = time.perf_counter()
                found = await self._stage.face.get_tuple(thread(self._built.thread_id))
                times.append(time.perf_counter() - start)
        expect(found.checkpoint["channel_values"] == self._built.values, "channels were changed")
        figures = {
            "get_ms": min(times) * 1000,
            "get_commands": span.commands / reads,
            "get_sent": span.sent / reads,
            "get_received": span.received / reads,
        }
        times = []
        with self._stage.meter.measure() as span:
            for step in range(steps):
                start = time.perf_counter()
                await self._built.put({f"c{step % self._count}": text(self._size, -2 - step)})
                times.append(time.perf_counter() - start)
        return figures | {
            "step_ms": min(times) * 1000,
            "step_commands": span.commands / steps,
            "step_sent": span.sent / steps,
        }


class SmallTogether:
    """W4b: 1,000 channels of 200 bytes, together more than a checkpoint keeps inline."""

    async def run(self, stage: Stage) -> dict[str, float]:
        channels = ManyChannels(stage, 1000, 200)
        return await channels.measured(stage.size(50, 5), stage.size(50, 5))


class Sweep:
    """W4c: 1 to 5,000 channels of 20 bytes to 4 kB."""

    async def run(self, stage: Stage) -> dict[str, float]:
        figures: dict[str, float] = {}
        for size in SIZES:
            for count in COUNTS[:: stage.size(1, 4)]:
                if size * count > stage.size(MOST, MB):
                    continue
                often = stage.size(10 if size * count < MB else 4, 2)
                found = await ManyChannels(stage, count, size).measured(often, often)
                for name in ("get_ms", "get_sent", "get_received", "step_ms", "step_sent"):
                    figures[f"point_{name}_{size}_{count}"] = found[name]
        return figures
