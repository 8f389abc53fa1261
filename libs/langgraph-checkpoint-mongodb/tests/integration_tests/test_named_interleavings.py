"""Interleavings that went wrong once, or could."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from langgraph.checkpoint.base import BaseCheckpointSaver
from pymongo import MongoClient

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._layout.states import REKEYED
from langgraph.checkpoint.mongodb._operations import commit as _commit
from tests.hypothesis_profile import moments
from tests.integration_tests.interleaving import Party
from tests.integration_tests.worlds import (
    OLD_PUT,
    PRUNE,
    Plan,
    Running,
    World,
)

if not hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
    pytest.skip(
        "this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def open_saver(mongodb_uri: str) -> Iterator[Callable[[], MongoDBSaver]]:
    """Makes savers that remember nothing of each other, as in processes of their own."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    with MongoClient[Any](mongodb_uri) as client:
        MongoDBSaver(client, name)
        yield lambda: MongoDBSaver(client, name, create_indexes=False)
        client.drop_database(name)


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
