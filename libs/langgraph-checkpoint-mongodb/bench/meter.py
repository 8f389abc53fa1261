"""What a workload is measured with, inside a worker process."""

from __future__ import annotations

import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STATUS = Path("/proc/self/status")


@dataclass
class Span:
    """What happened during one measured stretch; bytes and requests only behind a relay."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    commands: int = 0
    sent: int = 0
    received: int = 0
    requests: int = 0


class RelayStats:
    """Asks a relay for its totals."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lines = self._socket.makefile("r")

    def __call__(self) -> dict[str, int]:
        """Return bytes and requests since the relay started."""
        self._socket.sendall(b"stats\n")
        totals: dict[str, int] = json.loads(self._lines.readline())
        return totals

    def close(self) -> None:
        """Leave the relay."""
        self._lines.close()
        self._socket.close()


class Meter:
    """Measures stretches of work: time, commands and, behind a relay, bytes and requests.

    Args:
        commands: Returns how many commands the peer's driver has sent so far.
        relay: The relay that the peer's connections go through, if any.
    """

    def __init__(self, commands: Callable[[], int], relay: RelayStats | None) -> None:
        self._commands = commands
        self._relay = relay

    @contextmanager
    def measure(self) -> Iterator[Span]:
        """Measure the ``with`` block; the span is filled in when it ends."""
        span = Span()
        before = self._relay() if self._relay else {}
        commands = self._commands()
        cpu = time.process_time()
        start = time.perf_counter()
        yield span
        span.seconds = time.perf_counter() - start
        span.cpu_seconds = time.process_time() - cpu
        span.commands = self._commands() - commands
        if self._relay:
            for name, total in self._relay().items():
                setattr(span, name, total - before[name])


class CommandCounter:
    """Counts the commands of a MongoDB driver; thread-safe."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one command."""
        with self._lock:
            self.total += 1

    def __call__(self) -> int:
        """Return how many there were."""
        return self.total


class PeakMemory:
    """Peak resident memory above where it stood at construction, in bytes.

    On Linux the kernel's high-water mark is reset first; elsewhere a peak reached earlier in the
    process hides a smaller one, so the figure is a lower bound.
    """

    def __init__(self) -> None:
        if STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")
        self._start = self._read("VmRSS")

    def growth(self) -> int:
        """Return how far the peak since construction lies above the start, in bytes."""
        return max(0, self._read("VmHWM") - self._start)

    @staticmethod
    def _read(field: str) -> int:
        if STATUS.exists():
            for line in STATUS.read_text().splitlines():
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
