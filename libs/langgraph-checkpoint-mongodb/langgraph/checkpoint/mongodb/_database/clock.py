"""The server's time, known without asking for it each time.

A process may run with a wrong clock, and may be suspended for hours between two lines. So
stamps and ages go by the server's clock. It is asked now and then; in between, the time is
what the server said and what has passed since by a clock that runs on while the machine
sleeps. A clock that was set, or a machine that was suspended without that clock noticing,
shows in the difference to the wall clock: then the server is asked again.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from bson import ObjectId

__all__ = ["Clock", "Reading", "clock_of", "object_id", "read", "wall_time"]

# After a failover another server's clock counts, so for no longer than this.
_GOOD_FOR_S = 300.0

# What took longer to answer tells the time of some moment in between: it is asked again.
_SLOW_S = 5.0

# Two clocks drift apart less than this while an answer is good.
_DRIFT_S = 1.0


def _elapsed_clock() -> Callable[[], float]:
    """The clock of this machine that counts time asleep, as far as it has one.

    Linux has the first. On macOS the second does so, unlike `time.monotonic`.
    """
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        clock: Any = getattr(time, name, None)
        with contextlib.suppress(OSError, AttributeError, TypeError):
            time.clock_gettime(clock)
            return partial(time.clock_gettime, clock)
    return time.monotonic


_elapsed = _elapsed_clock()


class Reading(NamedTuple):
    """The clocks of this machine, in seconds.

    Attributes:
        elapsed: Since some moment, time asleep included.
        wall: Since 1970, as far as this machine knows.
    """

    elapsed: float
    wall: float


def read() -> Reading:
    """Read the clocks of this machine; the one place where that is done for a server's time."""
    return Reading(_elapsed(), time.time())


def wall_time() -> datetime:
    """This machine's time as BSON keeps it: UTC, in milliseconds."""
    return _in_milliseconds(datetime.now(UTC))


def _in_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def object_id(at: datetime) -> ObjectId:
    """A new id whose time is a given one, not this machine's."""
    return ObjectId(int(at.timestamp()).to_bytes(4, "big") + ObjectId().binary[4:])


class _Known(NamedTuple):
    time: datetime
    at: Reading
    good_for: float


class Clock:
    """What a client knows of its server's time. Pure: whoever uses it asks the server."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def now(self) -> datetime | None:
        """The server's time, in milliseconds; None when the server must be asked."""
        known = self._known
        if known is None:
            return None
        at = read()
        passed = at.elapsed - known.at.elapsed
        stepped = at.wall - known.at.wall - passed
        if not 0 <= passed <= known.good_for or abs(stepped) > _DRIFT_S:
            return None
        return _in_milliseconds(known.time + timedelta(seconds=passed))

    def asking(self) -> Reading:
        """What to hand to `learn` with the answer, taken before the server is asked."""
        return read()

    def learn(self, asked: Reading, answer: datetime | None) -> datetime:
        """Keep what a server answered.

        Args:
            asked: The clocks of this machine when it was asked.
            answer: Its time; None where it does not tell, and this machine's must do.

        Returns:
            The time now.
        """
        at = read()
        took = max(at.elapsed - asked.elapsed, at.wall - asked.wall, 0.0)
        if answer is None:
            answer, took = wall_time(), 0.0
        elif answer.tzinfo is None:
            answer = answer.replace(tzinfo=UTC)
        good_for = _GOOD_FOR_S if took <= _SLOW_S else 0.0
        self._known = _Known(answer + timedelta(seconds=took / 2), at, good_for)
        return _in_milliseconds(self._known.time)


_clocks: dict[int, Clock] = {}


def clock_of(client: Any) -> Clock:
    """The clock of a client's server, shared by all savers on that client."""
    if id(client) not in _clocks:
        _clocks[id(client)] = Clock()
        weakref.finalize(client, _clocks.pop, id(client), None)
    return _clocks[id(client)]
