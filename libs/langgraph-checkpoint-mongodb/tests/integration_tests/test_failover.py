"""Servers that die in the middle of a run: a single-node set, and the primary of three."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo.errors import PyMongoError
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from tests.face import Face, Kind
from tests.replica_set import HOW_TO_GET_ONE, Member, ReplicaSet, find_mongod, replica_set
from tests.support import LARGE_SIZE, Chain, thread

STEPS = 200


class Killer(CommandListener):
    """Kills the primary just when a client sends its next command of a kind.

    Args:
        running: The set.
        commands: What to wait for, one kill each.
    """

    def __init__(self, running: ReplicaSet) -> None:
        self.running = running
        self.waiting_for: str | None = None
        self.killed: list[Member] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == self.waiting_for:
            self.waiting_for = None
            victim = self.running.primary()
            victim.kill()
            self.killed.append(victim)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing to do."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing to do."""


@pytest.fixture(scope="module", params=[1, 3], ids=["one member", "three members"])
def running(request: pytest.FixtureRequest) -> Iterator[ReplicaSet]:
    """A set for all tests of the module, one after another: they leave dead members behind."""
    binary = find_mongod()
    if binary is None:
        pytest.skip(HOW_TO_GET_ONE)
    with replica_set(binary, request.param) as started:
        yield started


@contextlib.contextmanager
def watched(read: Callable[[], None]) -> Iterator[list[Exception]]:
    """Read again and again in a thread; what went wrong, but for the connection, is collected."""
    wrong: list[Exception] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            try:
                read()
            except PyMongoError:
                continue
            except Exception as error:
                wrong.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield wrong
    finally:
        ended.set()
        watcher.join()


def check_whole(values: dict[str, Any]) -> None:
    """What the steps below put together belongs together."""
    step = values["step"]
    assert values["once"] == "o" * LARGE_SIZE
    assert values["often"] == f"{step} " * 2000
    assert values["now and then"] == f"{step // 10} " * 2000


def test_no_acknowledged_step_is_lost_when_a_primary_is_killed(
    running: ReplicaSet, face_kind: Kind
) -> None:
    running.mend()
    killer = Killer(running)
    # Each kind of command of a step meets a dying server once, where one can be spared.
    kills = {60: "insert", 120: "update", 160: "insert"}
    with contextlib.ExitStack() as closing:
        face = Face(
            *(face_kind, running.uri, face_kind),
            closing=closing,
            client_kwargs={"event_listeners": [killer]},
        )
        lagging = {"readPreference": "secondaryPreferred", "serverSelectionTimeoutMS": 2000}
        reader = Face("sync", running.uri, face_kind, closing=closing, client_kwargs=lagging)

        def read() -> None:
            if found := reader.get_tuple(thread()):
                check_whole(found.checkpoint["channel_values"])

        chain = Chain(face)
        with watched(read) as wrong:
            for step in range(STEPS):
                killer.waiting_for = kills.get(step)
                changes: dict[str, Any] = {"step": step, "often": f"{step} " * 2000}
                if step == 0:
                    changes["once"] = "o" * LARGE_SIZE
                if step % 10 == 0:
                    changes["now and then"] = f"{step // 10} " * 2000
                if step in kills and len(running.members) == 1:
                    restart = threading.Timer(1, lambda: killer.killed[-1].start())
                    restart.start()
                config = chain.put(changes)
                face.put_writes(config, [("step", step + 1)], "task")
                if step - 20 in kills and len(running.members) > 1:
                    killer.killed[-1].start()
        assert wrong == []
        assert len(killer.killed) == len(kills)
        rows = face.fresh(client_kwargs={"event_listeners": []}).list(thread())
    assert [row.checkpoint["channel_values"]["step"] for row in rows] == [*range(STEPS)][::-1]
    for step, row in enumerate(reversed(rows)):
        check_whole(row.checkpoint["channel_values"])
        assert row.pending_writes == [("task", "step", step + 1)]
