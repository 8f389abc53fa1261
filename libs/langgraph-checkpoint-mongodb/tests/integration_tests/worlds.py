"""Operations of several processes, stopped before every command."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.copying import copy_thread
from langgraph.checkpoint.mongodb._operations.put import put
from langgraph.checkpoint.mongodb._operations.reading import get_tuple
from langgraph.checkpoint.mongodb._operations.removal import delete_for_runs, delete_thread, prune
from tests.integration_tests.interleaving import Party
from tests.support import checkpoint, thread

LARGE = 2 * INLINE_VALUE_BYTES

SNAPSHOT = 2

COUNTERS = "counters_since_delta_snapshot"

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
