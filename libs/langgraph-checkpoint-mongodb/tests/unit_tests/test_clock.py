"""The server's time is known without asking each time, and asked for when it may be wrong."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb._database import clock as _clock
from langgraph.checkpoint.mongodb._database.clock import (
    Clock,
    Reading,
    clock_of,
    object_id,
    read,
    wall_time,
)

SERVER = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Machine:
    """A machine whose clocks a test moves."""

    def __init__(self) -> None:
        self.elapsed, self.wall = 1000.0, 5_000_000.0

    def read(self) -> Reading:
        return Reading(self.elapsed, self.wall)

    def live(self, seconds: float) -> None:
        """Let time pass."""
        self.elapsed += seconds
        self.wall += seconds


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_clock, "read", made.read)
        yield made


@pytest.fixture
def clock(machine: Machine) -> Clock:
    """A clock that has just been told the server's time."""
    made = Clock()
    assert made.learn(machine.read(), SERVER) == SERVER
    return made


def test_at_first_the_server_must_be_asked() -> None:
    assert Clock().now() is None


def test_then_its_time_goes_on_by_itself(clock: Clock, machine: Machine) -> None:
    machine.live(61.5)
    assert clock.now() == SERVER + timedelta(seconds=61.5)


def test_now_and_then_it_is_asked_again(clock: Clock, machine: Machine) -> None:
    machine.live(3600)
    assert clock.now() is None
    clock.learn(machine.read(), SERVER)
    assert clock.now() == SERVER


@pytest.mark.parametrize("step", [-7200, -2, 2, 7200])
def test_a_wall_clock_that_was_set_or_ran_on_while_nothing_else_did_makes_it_ask(
    clock: Clock, machine: Machine, step: float
) -> None:
    machine.wall += step
    assert clock.now() is None


def test_a_clock_that_went_back_makes_it_ask(clock: Clock, machine: Machine) -> None:
    machine.live(-10)
    assert clock.now() is None


def test_a_wrong_wall_clock_alone_changes_nothing(machine: Machine) -> None:
    machine.wall -= 7200
    clock = Clock()
    clock.learn(machine.read(), SERVER)
    machine.live(10)
    assert clock.now() == SERVER + timedelta(seconds=10)


def test_an_answer_counts_for_the_middle_of_its_way(machine: Machine) -> None:
    clock, asked = Clock(), machine.read()
    machine.live(2)
    assert clock.learn(asked, SERVER) == SERVER + timedelta(seconds=1)


def test_an_answer_that_took_long_is_asked_for_again(machine: Machine) -> None:
    clock, asked = Clock(), machine.read()
    machine.live(600)
    clock.learn(asked, SERVER)
    machine.live(0.5)
    assert clock.now() is None


def test_a_time_without_a_zone_is_utc(machine: Machine) -> None:
    assert Clock().learn(machine.read(), SERVER.replace(tzinfo=None)) == SERVER


def test_a_server_that_does_not_tell_leaves_this_machines_time() -> None:
    clock = Clock()
    before = wall_time()
    told = clock.learn(read(), None)
    assert before <= told <= wall_time()
    assert clock.now() is not None


def test_the_machines_clock_runs_on() -> None:
    first = read()
    assert first <= read()


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_an_id_tells_the_time_it_was_made_for(at: datetime) -> None:
    made = object_id(at)
    assert made.generation_time == at.replace(microsecond=0)
    assert made != object_id(at)


def test_times_come_back_from_bson_as_they_went_in(clock: Clock, machine: Machine) -> None:
    machine.live(0.123456)
    now = clock.now()
    assert now is not None
    assert bson.decode(bson.encode({"at": now}))["at"].replace(tzinfo=UTC) == now


class Client:
    """Something that can be referred to weakly."""


def test_savers_on_one_client_share_what_they_know() -> None:
    one, other = Client(), Client()
    assert clock_of(one) is clock_of(one)
    assert clock_of(one) is not clock_of(other)


def test_what_is_known_goes_with_the_client() -> None:
    client = Client()
    key = id(client)
    clock_of(client)
    del client
    gc.collect()
    assert key not in _clock._clocks


def test_time_asleep_counts_where_the_machine_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock * 100.0)
    assert _clock._elapsed_clock()() == 700


def test_a_machine_without_such_a_clock_does_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(clock: int) -> float:
        raise OSError("not there")

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert _clock._elapsed_clock() is time.monotonic
    monkeypatch.delattr(time, "clock_gettime")
    assert _clock._elapsed_clock() is time.monotonic
