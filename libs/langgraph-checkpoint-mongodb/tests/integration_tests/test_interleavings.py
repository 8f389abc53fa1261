"""Puts beside prunes, deletions and copies, their commands in any order, some crashing.

At every moment each stored checkpoint reads whole and as it was put; in the end no
acknowledged put is lost that was not to be removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import BaseCheckpointSaver
from pymongo import MongoClient

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb._operations import commit as _commit
from tests.hypothesis_profile import examples
from tests.integration_tests.worlds import (
    OLD_PUT,
    PRUNE,
    Plan,
    World,
    plans,
    run,
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


def without_crashes_beside_a_deletion(plans: list[Plan]) -> list[Plan]:
    """What a deletion and a crash leave together is there until the deletion is repeated."""
    if all(plan.what != "delete" for plan in plans):
        return plans
    return [replace(plan, crash=None) for plan in plans]


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
