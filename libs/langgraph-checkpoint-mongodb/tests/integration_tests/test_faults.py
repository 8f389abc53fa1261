"""Every operation, failed at each of its commands: what is read then, and after a retry."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb._layout.indexes import INDEXES
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._operations import commit as _commit
from langgraph.checkpoint.mongodb._operations.setup import setup
from tests.face import Face, Kind, MakeFace
from tests.integration_tests.conftest import FailCommand
from tests.integration_tests.tampering import (
    MOMENTS,
    CancelledAt,
    InjectedFault,
    Moment,
    again,
    failing,
    tampered,
)
from tests.support import checkpoint, insert_old_write, insert_whole, thread

LARGE = "b" * 2 * INLINE_VALUE_BYTES
COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")
DB = Database[dict[str, Any]]


def v(counter: int) -> str:
    return f"{counter:032d}.{counter:016d}"


def state(doc: int, n: int) -> Checkpoint:
    values = {"big": LARGE, "doc": str(doc) * len(LARGE), "n": n}
    return checkpoint(values, {"big": v(1), "doc": v(doc + 1), "n": v(n + 1)})


FIRST, SECOND, THIRD = state(0, 0), state(1, 1), state(1, 2)
SUBGRAPH = state(0, 0)
SMALL_STEP, LARGE_STEP = state(1, 3), state(2, 3)
INPUT = checkpoint({"__start__": {"docs": "d" * 1_200_000, "n": 1}}, {"__start__": v(1)})
OLD = checkpoint({"big": LARGE, "n": 0}, {"big": 1, "n": 1})
OLD_STEP = checkpoint({"big": LARGE, "n": 1}, {"big": 1, "n": 2})


SMALL = {f"small {place}": f"{place:03}" * 130 for place in range(200)}


def grown(turns: int, n: int) -> Checkpoint:
    """A state with a list that has grown, and with many small channels."""
    values = {**SMALL, "list": [f"{turn:05}" * 1000 for turn in range(5 + turns)], "n": n}
    versions = {**dict.fromkeys(SMALL, v(1)), "list": v(turns + 1), "n": v(n + 1)}
    return checkpoint(values, versions)


GROWN = [grown(0, 0), grown(1, 1), grown(2, 2), grown(3, 3)]


def at(t: str, stored: Checkpoint, checkpoint_ns: str = "") -> RunnableConfig:
    return thread(t, checkpoint_ns, checkpoint_id=stored["id"])


def put(
    face: Face, parent: RunnableConfig, stored: Checkpoint, run: str, *channels: str
) -> RunnableConfig:
    t = parent["configurable"]["thread_id"]
    new = {channel: stored["channel_versions"][channel] for channel in channels}
    return face.put(parent, stored, {"source": "loop", "run_id": f"{run} of {t}"}, new)


def three_steps(face: Face, t: str) -> None:
    put(face, thread(t), FIRST, "one", "big", "doc", "n")
    put(face, at(t, FIRST), SECOND, "one", "doc", "n")
    put(face, at(t, SECOND), THIRD, "two", "n")
    put(face, thread(t, "sub:1"), SUBGRAPH, "one", "big", "doc", "n")
    for stored in (FIRST, SECOND, THIRD):
        face.put_writes(at(t, stored), [("n", 1), ("doc", LARGE)], "task", "~path")


def grown_steps(face: Face, t: str) -> None:
    put(face, thread(t), GROWN[0], "one", *SMALL, "list", "n")
    put(face, at(t, GROWN[0]), GROWN[1], "one", "list", "n")
    put(face, at(t, GROWN[1]), GROWN[2], "two", "list", "n")


def old_thread(face: Face, t: str) -> None:
    database: Any = face.saver.db
    config = insert_whole(database, thread(t), OLD, {"source": "loop", "run_id": f"one of {t}"})
    insert_old_write(database, config, task_id="task", task_path="", idx=0, channel="n", value=1)


def nothing(face: Face, t: str) -> None:
    pass


def forget(rows: list[CheckpointTuple]) -> list[dict[str, Any]]:
    """Rows of a thread without its name."""
    return [
        {
            "ns": row.config["configurable"]["checkpoint_ns"],
            "checkpoint": row.checkpoint,
            "run": row.metadata["run_id"].partition(" of ")[0],
            "parent": (row.parent_config or {}).get("configurable", {}).get("checkpoint_id"),
            "writes": row.pending_writes,
        }
        for row in rows
    ]


@dataclass(frozen=True)
class Operation:
    """What is done to a thread, and what a reader may see in the middle.

    Attributes:
        act: Does it, and returns what it answers.
        prepare: Makes the thread.
        atomic: Whether a reader may only see all of it or nothing.
        leaves_unreferenced: Whether, interrupted, it may leave writes and values of
            checkpoints that it removed: retention takes them when they are an hour old.
    """

    act: Callable[[Face, str], Any]
    prepare: Callable[[Face, str], None] = three_steps
    atomic: bool = False
    leaves_unreferenced: bool = False


def putting(parent: Checkpoint, stored: Checkpoint, *new: str, **kwargs: Any) -> Operation:
    return Operation(
        lambda face, t: put(face, at(t, parent), stored, "two", *new) and None,
        atomic=True,
        **kwargs,
    )


def copy_thread(face: Face, t: str) -> None:
    face.copy_thread(t, f"{t} copied")


OPERATIONS: Mapping[str, Operation] = {
    "put small channels": putting(THIRD, SMALL_STEP, "n"),
    "put a large channel": putting(THIRD, LARGE_STEP, "doc", "n"),
    "put without new versions": putting(THIRD, LARGE_STEP),
    "put again": putting(SECOND, THIRD, "n"),
    "put a thread's first": Operation(
        lambda face, t: put(face, thread(t), FIRST, "one", "big", "doc", "n") and None,
        nothing,
        atomic=True,
    ),
    "put an input in parts": Operation(
        lambda face, t: put(face, thread(t), INPUT, "one", "__start__") and None,
        nothing,
        atomic=True,
    ),
    "put in the whole layout": putting(OLD, OLD_STEP, "n", prepare=old_thread),
    "put a list that has grown": putting(GROWN[2], GROWN[3], "list", "n", prepare=grown_steps),
    "put a grown list again": putting(GROWN[1], GROWN[2], "list", "n", prepare=grown_steps),
    "put writes": Operation(
        lambda face, t: face.put_writes(at(t, THIRD), [("a", 1), ("b", LARGE)], "other")
    ),
    "put special writes": Operation(
        lambda face, t: face.put_writes(at(t, THIRD), [("__error__", "e"), ("a", 1)], "other")
    ),
    "get": Operation(lambda face, t: forget([row for row in [face.get_tuple(thread(t))] if row])),
    "list": Operation(lambda face, t: forget(face.list(thread(t), filter={"source": "loop"}))),
    "history": Operation(
        lambda face, t: face.get_delta_channel_history(config=at(t, THIRD), channels=["n", "doc"])
    ),
    "delete a thread": Operation(lambda face, t: face.delete_thread(t)),
    "delete an old thread": Operation(lambda face, t: face.delete_thread(t), old_thread),
    "prune": Operation(lambda face, t: face.prune([t]), leaves_unreferenced=True),
    "prune, keeping two": Operation(
        lambda face, t: face.prune([t], keep_last=2), leaves_unreferenced=True
    ),
    "prune what has grown": Operation(
        lambda face, t: face.prune([t]), grown_steps, leaves_unreferenced=True
    ),
    "prune, deleting": Operation(lambda face, t: face.prune([t], strategy="delete")),
    "delete a run": Operation(
        lambda face, t: face.delete_for_runs([f"one of {t}"]), leaves_unreferenced=True
    ),
    "copy": Operation(copy_thread),
    "copy what has grown": Operation(copy_thread, grown_steps),
    "copy an old thread": Operation(copy_thread, old_thread),
}


@pytest.fixture(scope="module")
def module_database(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[DB]:
    """One database for all tests here: making its indexes takes longer than most of them."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield mongo_client[name]
    mongo_client.drop_database(name)


@pytest.fixture
def database(module_database: DB) -> Iterator[DB]:
    """The database, emptied afterwards."""
    yield module_database
    for name in COLLECTIONS:
        module_database[name].delete_many({})


@pytest.fixture
def other(mongodb_uri: str, database: DB, face: Face) -> Iterator[Face]:
    """A saver of another process, to prepare with and to look with; the indexes are made."""
    face.setup()
    with contextlib.ExitStack() as closing:
        yield Face("sync", mongodb_uri, database.name, closing=closing)


class Trial:
    """One operation on threads of its own in the test's database."""

    def __init__(self, operation: Operation, face: Face, other: Face) -> None:
        self.operation, self.face, self.other = operation, face, other
        self.database: Any = other.saver.db
        operation.prepare(other, "made")
        self.made = self._raw("made")
        self.prepare("clean")
        self.before = self.rows("clean")
        with tampered(face) as port:
            self.answer = operation.act(face, "clean")
        self.commands = port.count
        self.after = self.rows("clean")
        self.stored = self.documents("clean")

    def _raw(self, *thread_ids: str) -> dict[str, list[dict[str, Any]]]:
        query = {"thread_id": {"$in": thread_ids}}
        return {name: [*self.database[name].find(query, {"_id": 0})] for name in COLLECTIONS}

    def prepare(self, t: str, *, remembering: bool = False) -> None:
        for name, documents in self.made.items():
            if documents:
                renamed = [{**one, "thread_id": t} for one in documents]
                for one in renamed:
                    if "run_id" in one:
                        one["run_id"] = one["run_id"].replace("made", t)
                    if "run_id" in one.get("metadata", {}):
                        run_id = JsonPlusSerializer().loads_typed(one["metadata"]["run_id"])
                        typed = JsonPlusSerializer().dumps_typed(run_id.replace("made", t))
                        one["metadata"] = {**one["metadata"], "run_id": [*typed]}
                self.database[name].insert_many(renamed)
        again(self.face)
        if remembering:
            self.face.get_tuple(thread(t))

    def rows(self, t: str) -> list[dict[str, Any]]:
        """What a reader sees of a thread and of its copy; reading raises for a hole."""
        seen = forget(self.other.list(all_of(t)))
        if self.operation.act is copy_thread:
            seen += forget(self.other.list(all_of(copied(t))))
        return seen

    def documents(self, t: str) -> dict[str, list[str]]:
        """All that is stored of a thread and of its copy, without what differs by its nature."""
        left_out = {"_id", "metadata", "run_id", "created_at", "rekeyed", "attempt"}
        return {
            name: sorted(
                str(
                    sorted((k, str(x).replace(t, "t")) for k, x in one.items() if k not in left_out)
                )
                for one in documents
            )
            for name, documents in self._raw(t, copied(t)).items()
        }

    def check_seen(self, t: str) -> None:
        """A reader sees nothing but whole checkpoints, as they were or are to be."""
        seen = self.rows(t)
        if self.operation.atomic:
            assert seen in (self.before, self.after)
        known = [*self.before, *self.after]
        writes = [write for row in known for write in row["writes"]]
        for row in seen:
            same = [one for one in known if {**one, "writes": row["writes"]} == row]
            assert same, "a checkpoint that is neither the old nor the new one"
            assert all(write in writes for write in row["writes"])

    def check_retried(self, t: str, *, done: bool) -> None:
        """Repeating the operation ends as it does without a fault, nothing left behind."""
        try:
            assert self.operation.act(self.face, t) == self.answer
        except ValueError as error:
            # Only the answer was lost: the copy is complete, and is not made twice.
            assert done
            if "has checkpoints" not in str(error):
                raise
        assert self.rows(t) == self.after
        if self.operation.leaves_unreferenced:
            with two_hours_later():
                self.face.prune([t], keep_last=1000)
        assert self.documents(t) == self.stored


@contextlib.contextmanager
def two_hours_later() -> Iterator[None]:
    """What is unreferenced now, retention takes for what a crash left long ago."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_commit, "_AT_MOST", timedelta(hours=-1))
        yield


def all_of(t: str) -> RunnableConfig:
    """The config of a thread with all its namespaces."""
    return {"configurable": {"thread_id": t}}


def copied(t: str) -> str:
    return f"{t} copied"


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_command_that_fails_leaves_old_or_new_and_can_be_retried(
    face: Face, other: Face, name: str
) -> None:
    trial = Trial(OPERATIONS[name], face, other)
    for number in range(trial.commands):
        # Before a command is after the one before it.
        for moment in MOMENTS if number == 0 else MOMENTS[1:]:
            t = f"{number} {moment}"
            trial.prepare(t)
            with failing(face, number, moment), pytest.raises(InjectedFault):
                trial.operation.act(face, t)
            trial.check_seen(t)
            last = moment == "after" and number == trial.commands - 1
            trial.check_retried(t, done=last)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if OPERATIONS[name].atomic])
def test_a_put_from_memory_that_fails_leaves_old_or_new_and_can_be_retried(
    face: Face, other: Face, name: str
) -> None:
    trial = Trial(OPERATIONS[name], face, other)
    number, failed = 0, True
    while failed:
        for moment in MOMENTS if number == 0 else MOMENTS[1:]:
            t = f"{number} {moment}"
            trial.prepare(t, remembering=True)
            failed = False
            with failing(face, number, moment):
                try:
                    trial.operation.act(face, t)
                except InjectedFault:
                    failed = True
            trial.check_seen(t)
            trial.check_retried(t, done=False)
        number += 1
    assert 1 < number <= trial.commands + 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_setup_can_be_retried_after_any_command(
    make_face: MakeFace, database: DB, moment: Moment
) -> None:
    face = make_face(ttl=3600, create_indexes=False)
    port: Any = face.saver._port
    wanted = {role: len(indexes) + 2 for role, indexes in INDEXES.items()}  # `_id` and the TTL

    def set_up(saver: Any) -> None:
        work = setup(saver._port, 3600)
        if face.kind == "async":
            face.run(work)
        else:
            with contextlib.suppress(StopIteration):
                work.send(None)

    number, failed = 0, True
    while failed:
        for role in wanted:
            database.drop_collection(port.name(role).partition(".")[2])
        failed = False
        with failing(face, number, moment):
            try:
                set_up(face.saver)
            except InjectedFault:
                failed = True
        set_up(face.saver)
        for role, count in wanted.items():
            assert len(database[port.name(role).partition(".")[2]].index_information()) == count
        number += 1
    assert number > 6


@pytest.mark.parametrize("name", OPERATIONS)
def test_cancelled_at_any_await_it_leaves_old_or_new_and_can_be_retried(
    mongodb_uri: str, database: DB, name: str
) -> None:
    with contextlib.ExitStack() as closing:
        face = Face("async", mongodb_uri, database.name, closing=closing)
        face.setup()
        other = Face("sync", mongodb_uri, database.name, closing=closing)
        trial = Trial(OPERATIONS[name], face, other)
        number, cancelled = 1, True
        while cancelled:
            t = f"cancelled {number}"
            trial.prepare(t)
            cancelled = act_cancelled(trial, t, number)
            if cancelled:
                trial.check_seen(t)
            trial.check_retried(t, done=True)
            # The first two commands at each await, the rest of a long operation at every fifth.
            number += 1 if number < 10 else 5
        assert number > 2


def act_cancelled(trial: Trial, t: str, number: int) -> bool:
    """Cancel the operation at its n-th await; tell whether it had so many."""
    run = trial.face.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial.face, "run", lambda work: run(CancelledAt(work, number)))
        try:
            trial.operation.act(trial.face, t)
        except asyncio.CancelledError:
            return True
    return False


@pytest.mark.parametrize(
    "name",
    [
        *("put small channels", "put a large channel", "put writes", "history"),
        *("delete a thread", "prune", "delete a run", "copy"),
    ],
)
def test_a_closed_connection_leaves_old_or_new_and_can_be_retried(
    make_face: MakeFace,
    other: Face,
    fail_command: FailCommand,
    database: DB,
    face_kind: Kind,
    name: str,
) -> None:
    app_name = f"faults {database.name}"
    # Each of the driver's ways once: to give up at once, and to try a second time.
    retrying = face_kind == "async"
    face = make_face(
        client_kwargs={"appname": app_name, "retryWrites": retrying, "retryReads": retrying}
    )
    face.setup()
    trial = Trial(OPERATIONS[name], face, other)
    commands = ["find", "insert", "update", "delete", "aggregate"]
    for number in range(trial.commands):
        t = f"closed {number}"
        trial.prepare(t)
        mode: Any = {"skip": number} if number else {"times": 1}
        with fail_command(commands, app_name=app_name, mode=mode, closeConnection=True):
            with contextlib.suppress(AutoReconnect):
                trial.operation.act(face, t)
        trial.check_seen(t)
        trial.check_retried(t, done=True)
