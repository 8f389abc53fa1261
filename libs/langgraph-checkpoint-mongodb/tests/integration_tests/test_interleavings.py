"""Puts beside prunes, deletions and copies, their commands in any order, some crashing.

At every moment each stored checkpoint reads whole and as it was put; in the end no
acknowledged put is lost that was not to be removed.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from pymongo import MongoClient

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._layout.states import REKEYED
from langgraph.checkpoint.mongodb._operations import commit as _commit
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.copying import copy_thread
from langgraph.checkpoint.mongodb._operations.put import put
from langgraph.checkpoint.mongodb._operations.reading import get_tuple
from langgraph.checkpoint.mongodb._operations.removal import delete_for_runs, delete_thread, prune
from tests.hypothesis_profile import examples, moments
from tests.integration_tests.interleaving import Party
from tests.support import checkpoint, thread

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )

LARGE = 2 * INLINE_VALUE_BYTES
SNAPSHOT = 2
COUNTERS = "counters_since_delta_snapshot"


@pytest.fixture(scope="module")
def open_saver(mongodb_uri: str) -> Iterator[Callable[[], MongoDBSaver]]:
    """Makes savers that remember nothing of each other, as in processes of their own."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    with MongoClient[Any](mongodb_uri) as client:
        MongoDBSaver(client, name)
        yield lambda: MongoDBSaver(client, name, create_indexes=False)
        client.drop_database(name)


threads = itertools.count()


@dataclass
class World:
    """A thread, and what is expected of each checkpoint that was put into it."""

    open_saver: Callable[[], MongoDBSaver]
    delta: bool
    growing: bool = False
    thread_id: str = field(default_factory=lambda: f"thread {next(threads)}")
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, list[Any]] = field(default_factory=dict)
    made: list[Checkpoint] = field(default_factory=list)
    wrote: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.look = self.open_saver()
        for step in range(4):
            self.put(self.look, step - 1, f"run {step // 2}")

    def next_checkpoint(self, parent: int, *, large: bool) -> tuple[Checkpoint, dict[str, Any]]:
        """The checkpoint after another, and the versions that its step wrote."""
        place, new = len(self.made), {"n": len(self.made)} | ({"doc": ""} if large else {})
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        if parent < 0:
            new |= {"big": "b" * LARGE, "doc": ""}
        else:
            values = dict(self.made[parent]["channel_values"])
            versions = dict(self.made[parent]["channel_versions"])
            values.pop("log", None)
        if "doc" in new:
            new["doc"] = f"{place} " * LARGE
        if self.growing:
            new |= self.growth(values, place)
        new_versions = {
            channel: self.look.get_next_version(versions.get(channel)) for channel in new
        }
        values |= new
        if self.delta:
            new_versions["log"] = self.look.get_next_version(versions.get("log"))
            before = [] if parent < 0 else self.logs[self.made[parent]["id"]]
            log = [*before, parent] if parent in self.wrote else before
            if parent < 0 or place == SNAPSHOT:
                values["log"], log = DeltaSnapshot(["x" * LARGE]), []
        made = checkpoint(values, {**versions, **new_versions})
        self.made.append(made)
        self.values[made["id"]] = values
        self.logs[made["id"]] = log if self.delta else []
        return made, new_versions

    def growth(self, values: dict[str, Any], place: int) -> dict[str, Any]:
        """A list that gains items, or loses some, and small channels of which one changes."""
        items = values.get("list", [])[: -1 if place % 4 == 3 else None]
        new: dict[str, Any] = {"list": [*items, *(f"{place} {item}" * 9 for item in range(3))]}
        small = range(8) if not values else [place % 8]
        return new | {f"small {number}": f"{number} {place} " * 5 for number in small}

    def arguments(self, parent: int, run: str, *, large: bool = True) -> tuple[Any, ...]:
        made, new = self.next_checkpoint(parent, large=large)
        metadata: dict[str, Any] = {"source": "loop", "run_id": f"{run} of {self.thread_id}"}
        if self.delta and "log" not in made["channel_values"]:
            metadata[COUNTERS] = {"log": (1, 1)}
        return self.config(parent), made, metadata, new

    def config(self, place: int) -> RunnableConfig:
        if place < 0:
            return thread(self.thread_id)
        return thread(self.thread_id, checkpoint_id=self.made[place]["id"])

    def put(self, saver: MongoDBSaver, parent: int, run: str) -> None:
        """Put a checkpoint with the write that the log of those after it is rebuilt from."""
        saver.put(*self.arguments(parent, run))
        place = len(self.made) - 1
        saver.put_writes(self.config(place), [("log", place)], "task")
        self.wrote.add(place)

    def check(self, thread_id: str | None = None) -> set[str]:
        """Read all there is: each checkpoint whole, as it was put; return their ids."""
        reader = self.open_saver()
        config: RunnableConfig = {"configurable": {"thread_id": thread_id or self.thread_id}}
        found = {row.checkpoint["id"]: row for row in reader.list(config)}
        for id_, row in found.items():
            assert row.checkpoint["channel_values"] == self.values[id_]
        newest = reader.get_tuple(thread(thread_id or self.thread_id))
        assert (newest and newest.checkpoint["id"]) == max(found, default=None)
        return set(found)

    def check_logs(self, ids: set[str], thread_id: str | None = None) -> None:
        """The delta channel of each checkpoint is rebuilt as it was."""
        reader = self.open_saver()
        for id_ in ids if self.delta else ():
            if "log" in self.values[id_]:
                continue
            config = thread(thread_id or self.thread_id, checkpoint_id=id_)
            entry = reader.get_delta_channel_history(config=config, channels=["log"])["log"]
            assert [value for _, _, value in entry["writes"]] == self.logs[id_]
            assert "seed" in entry


@dataclass(frozen=True)
class Plan:
    """What one party is going to do.

    Attributes:
        what: The operation; `follow` is a put on the newest checkpoint that it reads.
        place: The parent of a put; how many a prune keeps.
        warm: Whether the party has read the parent before.
        crash: The step before which it crashes, None for never.
        partial: Whether its graph knows no other channels than those that it writes.
    """

    what: str
    place: int = 3
    warm: bool = True
    large: bool = True
    crash: int | None = None
    partial: bool = False


def without_others(config: Any, made: Checkpoint, metadata: Any, new: Any) -> tuple[Any, ...]:
    """Arguments of a put by a graph that knows no other channels than those that it writes."""
    values = {name: value for name, value in made["channel_values"].items() if name in new}
    return config, {**made, "channel_values": values}, metadata, new


class Running:
    """A plan under way."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan, self.steps = world, plan, 0
        saver = world.open_saver()
        self.put_id: str | None = None
        t = world.thread_id
        self.target = f"{t} copied {next(threads)}"
        if plan.what == "follow":
            self.party = Party(saver, self.follow)
            return
        if plan.what == "put":
            if plan.warm or plan.partial:
                saver.get_tuple(world.config(plan.place))
            arguments = world.arguments(plan.place, "run 9", large=plan.large)
            self.put_id = arguments[1]["id"]
            if plan.partial:
                arguments = without_others(*arguments)
            self.party = Party(saver, lambda call: put(call, *arguments))
            return
        operations: dict[str, Callable[[Any], Any]] = {
            "prune": lambda call: prune(call, [t], "keep_latest", plan.place),
            "delete": lambda call: delete_thread(call, t),
            "delete run": lambda call: delete_for_runs(call, [f"run {plan.place} of {t}"]),
            "copy": lambda call: copy_thread(call, t, self.target),
        }
        self.party = Party(saver, operations[plan.what])

    async def follow(self, call: Context) -> None:
        """Put a checkpoint on whatever is the newest one by then."""
        found = await get_tuple(call, thread(self.world.thread_id))
        ids = [one["id"] for one in self.world.made]
        parent = ids.index(found.checkpoint["id"]) if found else -1
        arguments = self.world.arguments(parent, "run 9", large=self.plan.large)
        self.put_id = arguments[1]["id"]
        await put(call, *arguments)

    def step(self) -> None:
        if self.steps == self.plan.crash:
            self.party.crash()
        else:
            self.party.step()
        self.steps += 1


def run(world: World, plans: Sequence[Plan], order: Sequence[int], *, looking: bool) -> None:
    """Run parties in an order, then each to its end, and look: at every moment, or at last."""
    parties = [Running(world, plan) for plan in plans]
    for number in itertools.chain(order, itertools.cycle(range(len(parties)))):
        alive = [one for one in parties if not one.party.done]
        if not alive:
            break
        alive[number % len(alive)].step()
        if looking:
            world.check()
    stored = world.check()
    world.check_logs(stored)
    check_errors(world, parties)
    check_not_lost(parties, stored)
    for one in parties:
        if one.plan.what == "copy" and one.party.acknowledged:
            world.check_logs(world.check(one.target), one.target)


def check_errors(world: World, parties: Sequence[Running]) -> None:
    """Only a put may fail, and only when what it stands on was to be removed."""
    for one in parties:
        if one.party.error is None:
            continue
        others = {other.plan.what for other in parties if other is not one}
        if one.plan.what == "copy" and "delete" in others:
            # Its source was deleted before it began.
            assert "it has no checkpoints" in str(one.party.error)
            continue
        assert isinstance(one.party.error, MissingChannelValueError), one.party.error
        assert one.plan.what in ("put", "follow")
        assert world.delta or one.plan.partial or "delete" in others
        assert others & {"delete", "delete run", "prune"}


def check_not_lost(parties: Sequence[Running], stored: set[str]) -> None:
    """What was acknowledged is there, unless it was to be removed."""
    kinds = {one.plan.what for one in parties}
    put_ids = [one.put_id for one in parties if one.put_id and one.party.acknowledged]
    if "delete" in kinds:
        return
    if "prune" in kinds:
        # An older one may go; the newest may not.
        put_ids = [id_ for id_ in put_ids if id_ == max(one for one in put_ids if one)]
    assert set(put_ids) <= stored


def made_sensible(plan: Plan) -> Plan:
    """What a plan means for operations that are less free."""
    if plan.what == "delete run":
        return replace(plan, place=plan.place - 2 if plan.place > 2 else 0)
    return plan


def without_crashes_beside_a_deletion(plans: list[Plan]) -> list[Plan]:
    """What a deletion and a crash leave together is there until the deletion is repeated."""
    if all(plan.what != "delete" for plan in plans):
        return plans
    return [replace(plan, crash=None) for plan in plans]


plans = st.builds(
    Plan,
    what=st.sampled_from(
        ["put", "put", "follow", "prune", "prune", "delete run", "delete", "copy"]
    ),
    place=st.sampled_from([3, 1, 2]),
    warm=st.booleans(),
    large=st.booleans(),
    crash=st.none() | st.none() | st.integers(1, 12),
    partial=st.sampled_from([False, False, True]),
).map(made_sensible)

OLD_PUT, PRUNE = Plan("put", 1, large=False), Plan("prune", 1)


@pytest.fixture(params=["at once", "hours apart"])
def hours_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether whoever removes takes all that is under way for hours old.

    As if each process had been suspended for hours between any two of its commands.
    """
    if request.param == "hours apart":
        monkeypatch.setattr(_commit, "_AT_MOST", timedelta(hours=-1))
    return bool(request.param == "hours apart")


@pytest.fixture(params=["replaced", "growing"])
def growing(request: pytest.FixtureRequest) -> bool:
    """Whether values grow and there are many small ones, beside those that are replaced."""
    if request.param == "growing":
        request.getfixturevalue("small_limits")
    return bool(request.param == "growing")


@pytest.mark.usefixtures("small_limits")
def test_the_growing_values_here_are_in_pieces_and_in_bundles(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=False, growing=True)
    for place in range(3, 6):
        world.put(world.look, place, "run 9")
    assert world.check()
    newest = world.look.checkpoint_collection.find_one(world.config(6)["configurable"])
    assert newest is not None
    pieces = {
        one["channel"]: len(one["pieces"]) // 4 for one in newest["channels"] if "pieces" in one
    }
    assert pieces.keys() == {"list", "__bundle__"}
    assert min(pieces.values()) > 1


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plans=st.lists(plans, min_size=2, max_size=4).map(without_crashes_beside_a_deletion),
    order=st.lists(st.integers(0, 11), max_size=40),
    delta=st.booleans(),
)
@example(plans=[OLD_PUT, PRUNE], order=[0, 0, 1, 1, 1, 1, 1, 0], delta=False)
@example(plans=[OLD_PUT, PRUNE], order=[0, 0, 1, 1, 1, 1, 1, 0], delta=True)
@example(plans=[Plan("put", 1, crash=2), PRUNE], order=[1, 1, 1, 0, 0, 0, 1], delta=False)
def test_any_interleaving_leaves_whole_checkpoints_and_loses_none(
    open_saver: Callable[[], MongoDBSaver],
    hours_apart: bool,
    growing: bool,
    plans: list[Plan],
    order: list[int],
    delta: bool,
) -> None:
    run(World(open_saver, delta, growing), plans, order, looking=False)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    # While a thread is deleted, a put that begins it anew may lack what is being deleted.
    plans=st.lists(plans.filter(lambda plan: plan.what != "delete"), min_size=2, max_size=3),
    order=st.lists(st.integers(0, 5), max_size=30),
    delta=st.booleans(),
)
def test_at_every_moment_of_any_interleaving_a_reader_sees_whole_checkpoints(
    open_saver: Callable[[], MongoDBSaver],
    hours_apart: bool,
    growing: bool,
    plans: list[Plan],
    order: list[int],
    delta: bool,
) -> None:
    run(World(open_saver, delta, growing), plans, order, looking=True)


# ---------------------------------------------------------------------- named cases


def party(world: World, plan: Plan) -> Party:
    return Running(world, plan).party


def step_to_deletion(world: World, pruning: Party) -> None:
    """Run a prune until it is about to delete: its marks are set, it has looked again."""
    marked = {"thread_id": world.thread_id, "doomed": {"$exists": True}}
    while not world.look.checkpoint_collection.count_documents(marked):
        pruning.step()
    pruning.step()


def test_a_put_on_what_is_being_removed_stands_alone(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=False)
    pruning = party(world, PRUNE)
    step_to_deletion(world, pruning)
    putting = Running(world, OLD_PUT)
    putting.party.finish()
    pruning.finish()
    assert putting.party.acknowledged
    assert putting.put_id in world.check()


@pytest.mark.parametrize("warm", [True, False])
def test_a_delta_step_on_what_is_being_removed_keeps_what_it_is_rebuilt_from(
    open_saver: Callable[[], MongoDBSaver], warm: bool
) -> None:
    world = World(open_saver, delta=True)
    pruning = party(world, PRUNE)
    step_to_deletion(world, pruning)
    putting = Running(world, Plan("put", 1, warm=warm))
    putting.party.finish()
    pruning.finish()
    assert putting.party.acknowledged
    stored = world.check()
    assert putting.put_id in stored
    assert world.made[1]["id"] not in stored  # What was to be removed is only hidden.
    world.check_logs(stored)


def test_a_delta_step_on_what_was_just_removed_fails_and_leaves_nothing(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=True)
    putting = Running(world, Plan("put", 1))
    party(world, PRUNE).finish()
    putting.party.finish()
    assert isinstance(putting.party.error, MissingChannelValueError)
    assert putting.put_id not in world.check()
    world.check_logs(world.check())


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("what", ["prune", "delete run"])
def test_after_a_removal_that_failed_half_way_its_thread_goes_on(
    open_saver: Callable[[], MongoDBSaver], what: str, delta: bool
) -> None:
    world = World(open_saver, delta)
    removing = party(world, Plan(what, 1))
    step_to_deletion(world, removing)
    removing.crash()
    putting = Running(world, Plan("put", 3))
    putting.party.finish()
    older = Running(world, Plan("put", 1))
    older.party.finish()
    assert putting.party.acknowledged
    assert older.party.acknowledged
    stored = world.check()
    assert {putting.put_id, older.put_id} <= stored
    world.check_logs(stored)


@pytest.mark.parametrize("delta", [True, False])
def test_a_put_that_was_suspended_after_its_values_writes_them_again(
    open_saver: Callable[[], MongoDBSaver], hours_apart: bool, delta: bool
) -> None:
    world = World(open_saver, delta)
    putting = Running(world, Plan("put", 3))
    putting.step()
    putting.step()  # Its values are there, and no checkpoint names them yet.
    party(world, Plan("prune", 9)).finish()
    putting.party.finish()
    assert putting.party.acknowledged
    stored = world.check()
    assert putting.put_id in stored
    world.check_logs(stored)


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("place", [-1, 3], ids=["a first put", "a later one"])
def test_a_put_that_was_suspended_anywhere_beside_a_prune_is_whole(
    open_saver: Callable[[], MongoDBSaver], hours_apart: bool, place: int, steps: int
) -> None:
    """The put wakes up before any command of the prune."""
    for others in moments(16, first=steps):
        world = World(open_saver, delta=False)
        putting, pruning = Running(world, Plan("put", place)), party(world, Plan("prune", 9))
        for _ in range(steps):
            putting.step()
        for _ in range(others):
            pruning.step()
        putting.party.finish()
        pruning.finish()
        assert putting.party.acknowledged
        assert putting.put_id in world.check()


@pytest.mark.parametrize("before", range(2, 12))
def test_a_prune_that_was_suspended_anywhere_takes_nothing_that_was_built_meanwhile(
    open_saver: Callable[[], MongoDBSaver], hours_apart: bool, before: int
) -> None:
    world = World(open_saver, delta=True)
    pruning = party(world, PRUNE)
    for _ in range(before):
        pruning.step()
    puts = [Running(world, Plan("put", place)) for place in (3, 2, 1)]
    for one in puts:
        one.party.finish()
    pruning.finish()
    stored = world.check()
    world.check_logs(stored)
    assert {one.put_id for one in puts if one.party.acknowledged} <= stored
    assert puts[0].party.acknowledged


def test_a_fork_that_came_before_the_marks_keeps_its_parent(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=True)
    pruning = party(world, PRUNE)
    pruning.step()  # it has not read yet
    pruning.step()  # it has read, and has not marked yet
    putting = Running(world, OLD_PUT)
    putting.party.finish()
    pruning.finish()
    assert putting.party.acknowledged
    stored = world.check()
    assert putting.put_id in stored
    world.check_logs(stored)


def test_one_prune_does_not_take_off_the_marks_of_another(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=True)
    first, second = party(world, PRUNE), party(world, PRUNE)
    step_to_deletion(world, first)
    second.step()
    second.step()
    # Stays unproven, as its parent is marked, and makes the second prune spare the parent.
    forking = Running(world, OLD_PUT)
    while not world.look.checkpoint_collection.count_documents({"checkpoint_id": forking.put_id}):
        forking.party.step()
    second.finish()
    forking.party.finish()
    late = Running(world, Plan("put", 1))
    late.party.finish()
    first.finish()
    stored = world.check()
    world.check_logs(stored)
    assert forking.put_id not in stored
    assert late.party.acknowledged == (late.put_id in stored)


def test_marks_that_a_crash_left_do_not_stay_in_the_way(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=True)
    pruning = party(world, PRUNE)
    step_to_deletion(world, pruning)
    pruning.crash()
    putting = Running(world, OLD_PUT)
    putting.party.finish()
    assert putting.party.acknowledged
    stored = world.check()
    assert putting.put_id in stored
    world.check_logs(stored)


def test_a_manifest_that_was_replaced_since_it_was_read_is_not_trusted(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=False)
    putting = Running(world, Plan("put", 3, large=False))
    # The parent is put again, by a process that found its own parent gone: under keys of its own.
    checkpoints = world.look.checkpoint_collection
    values = world.look.channel_values_collection
    key = world.config(3)["configurable"]
    document = checkpoints.find_one(dict(key))
    assert document
    channels = [{**one, "version": f"{one['version']}@again"} for one in document["channels"]]
    for one in document["channels"]:
        named = {"thread_id": world.thread_id, "channel": one["channel"]}
        query = {**named, "version": one["version"]}
        values.update_one(query, {"$set": {"version": f"{one['version']}@again"}})
    for one, before in zip(channels, document["channels"], strict=True):
        one["channel_version"] = before.get("channel_version", before["version"])
    checkpoints.update_one(dict(key), {"$set": {"channels": channels, REKEYED: ObjectId()}})
    checkpoints.delete_many(
        {"thread_id": world.thread_id, "checkpoint_id": {"$ne": key["checkpoint_id"]}}
    )
    putting.party.finish()
    assert putting.party.acknowledged
    assert putting.put_id in world.check()


@pytest.mark.parametrize("every", [2, 3, 4, 5])
@pytest.mark.parametrize("first", range(4))
def test_a_thread_written_into_as_fast_as_it_is_deleted_is_left_whole(
    open_saver: Callable[[], MongoDBSaver], every: int, first: int
) -> None:
    world = World(open_saver, delta=False)
    deleting = party(world, Plan("delete"))
    for step in itertools.count(first):
        deleting.step()
        if deleting.done:
            break
        if step % every == 0:
            Running(world, Plan("follow")).party.finish()
    assert deleting.acknowledged
    world.check()


def test_a_thread_that_begins_while_it_is_deleted_is_not_seen_until_it_is_whole(
    open_saver: Callable[[], MongoDBSaver],
) -> None:
    world = World(open_saver, delta=False)
    beginning = party(world, Plan("put", place=-1))
    world.look.delete_thread(world.thread_id)
    while not beginning.done:
        beginning.step()
        world.look.channel_values_collection.delete_many({"thread_id": world.thread_id})
        assert world.check() == set()
    assert isinstance(beginning.error, MissingChannelValueError)
    assert world.look.checkpoint_collection.count_documents({"thread_id": world.thread_id}) == 0
