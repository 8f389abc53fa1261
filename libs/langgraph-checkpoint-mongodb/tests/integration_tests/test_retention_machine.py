"""A saver and a model of it, driven alike; and retention beside threads that put."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from pymongo import MongoClient
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face
from tests.hypothesis_profile import examples
from tests.support import Chain, checkpoint, thread

COUNTERS = "counters_since_delta_snapshot"
Key = tuple[str, str, str]
SMALL = {f"small {place}": f"{place:03}" * 130 for place in range(200)}
numbers = itertools.count()


@dataclass
class Stored:
    """What the model knows of a checkpoint."""

    values: dict[str, Any]
    versions: dict[str, Any]
    parent: str | None
    run: str
    writes: dict[tuple[str, str, int], tuple[str, Any]] = field(default_factory=dict)
    hidden: bool = False
    """Removed, but for what the delta channels of others are rebuilt from."""

    def pending(self) -> list[tuple[str, str, Any]]:
        return [(task, *self.writes[path, task, idx]) for path, task, idx in sorted(self.writes)]


class Machine(RuleBasedStateMachine):
    """Does the same to a saver and to a dict, and compares every read."""

    face: ClassVar[Face]
    growing: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Key, Stored] = {}
        self.prefix = f"example {next(numbers)} "
        self.delta = hasattr(BaseCheckpointSaver, "get_delta_channel_history")

    # ------------------------------------------------------------------ helpers

    def visible(self, t: str | None = None) -> set[Key]:
        return {
            key for key, stored in self.model.items() if not stored.hidden and t in (None, key[0])
        }

    def pick(self, place: int) -> Key:
        keys = sorted(self.visible())
        return keys[place % len(keys)]

    def config(self, key: Key) -> RunnableConfig:
        return thread(self.prefix + key[0], key[1], checkpoint_id=key[2])

    def ancestors(self, key: Key) -> Iterator[Key]:
        """Nearest first, as far as they are stored."""
        parent = self.model[key].parent
        while parent is not None and (*key[:2], parent) in self.model:
            yield (*key[:2], parent)
            parent = self.model[*key[:2], parent].parent

    def log(self, key: Key) -> tuple[list[Any], list[Key]]:
        """A checkpoint's delta channel: what it is rebuilt from, and the ancestors needed."""
        found: list[Any] = []
        needed: list[Key] = []
        for ancestor in self.ancestors(key):
            needed.append(ancestor)
            stored = self.model[ancestor]
            found = [value for _, channel, value in stored.pending() if channel == "log"] + found
            if "log" in stored.values:
                return [stored.values["log"], *found], needed
        return found, needed

    def needed_by(self, kept: set[Key]) -> set[Key]:
        needed = set(kept)
        for key in kept:
            stored = self.model[key]
            if "log" in stored.versions and "log" not in stored.values:
                needed.update(self.log(key)[1])
        return needed

    def remove(self, t: str, chosen: set[Key]) -> None:
        """Remove checkpoints of a thread; hide what others are rebuilt from."""
        kept = self.visible(t) - chosen
        needed = self.needed_by(kept)
        for key in [key for key in self.model if key[0] == t and key not in kept]:
            if key in needed:
                self.model[key].hidden = True
            else:
                del self.model[key]

    # ------------------------------------------------------------------ rules

    @initialize()
    def begin(self) -> None:
        self.put(None, "t0", "", 1, 0, False)

    @rule(
        place=st.integers(0, 50),
        changed=st.integers(0, 3),
        run=st.integers(0, 2),
        snapshot=st.booleans(),
    )
    @precondition(lambda self: self.visible())
    def put_next(self, place: int, changed: int, run: int, snapshot: bool) -> None:
        """On any checkpoint there is: mostly this is a fork."""
        self.put(self.pick(place), "", "", changed, run, snapshot)

    @rule(changed=st.integers(0, 3), run=st.integers(0, 2), snapshot=st.booleans())
    @precondition(lambda self: self.visible())
    def put_on_the_newest(self, changed: int, run: int, snapshot: bool) -> None:
        newest = max(self.visible(), key=lambda key: key[2])
        self.put(newest, "", "", changed, run, snapshot)

    @rule(t=st.sampled_from(["t0", "t1"]), ns=st.sampled_from(["", "sub:1", "sub:2"]))
    def begin_a_namespace(self, t: str, ns: str) -> None:
        self.put(None, t, ns, 3, 0, False)

    def put(
        self, parent: Key | None, t: str, ns: str, changed: int, run: int, snapshot: bool
    ) -> None:
        next_version = self.face.saver.get_next_version
        values: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        if parent is not None:
            t, ns = parent[:2]
            values, versions = dict(self.model[parent].values), dict(self.model[parent].versions)
        new: dict[str, Any] = {"n": random.randrange(1000)}
        if changed & 1:
            new["large"] = f"{random.randrange(1000)} " * INLINE_VALUE_BYTES
        if self.growing:
            new |= self.growth(values, changed)
        if changed & 2 and self.delta:
            new["log"] = DeltaSnapshot([random.randrange(1000)]) if snapshot else None
        new_versions = {channel: next_version(versions.get(channel)) for channel in new}
        values |= new
        if values.get("log") is None:
            values.pop("log", None)
        versions |= new_versions
        stored = checkpoint(values, versions)
        if "log" not in new:
            # langgraph leaves an unchanged snapshot out: its version names it.
            stored["channel_values"].pop("log", None)
        metadata: dict[str, Any] = {"source": "loop", "run_id": f"{self.prefix}{run}"}
        if "log" in versions and "log" not in values:
            metadata[COUNTERS] = {"log": (1, 1)}
        config = thread(self.prefix + t, ns) if parent is None else self.config(parent)
        self.face.put(config, stored, metadata, new_versions)
        key = (t, ns, stored["id"])
        self.model[key] = Stored(values, versions, parent and parent[2], f"{run}")

    def growth(self, values: dict[str, Any], changed: int) -> dict[str, Any]:
        """A list that gains items, or loses some, and many small channels of which few change."""
        items = values.get("list", [])[: -1 if changed == 3 else None]
        new: dict[str, Any] = {"list": [*items, *(f"{random.random()}" * 2 for _ in range(3))]}
        small = random.sample(range(8), k=2) if values else range(8)
        return new | {f"small {number}": f"{random.random()}" * 2 for number in small}

    @rule(
        place=st.integers(0, 50),
        task=st.sampled_from(["a", "b"]),
        path=st.sampled_from(["", "~1", "~2"]),
        channels=st.lists(st.sampled_from(["n", "log", "large"]), min_size=1, max_size=3),
    )
    @precondition(lambda self: self.visible())
    def put_writes(self, place: int, task: str, path: str, channels: list[str]) -> None:
        key = self.pick(place)
        if any("log" in self.model[one].versions for one in self.model if one[:2] == key[:2]):
            # What is written after the next step began would change history.
            channels = [one for one in channels if one != "log" or not self.has_child(key)]
        writes = [(channel, random.randrange(1000)) for channel in channels]
        self.face.put_writes(self.config(key), writes, task, path)
        if task in {one[1] for one in self.model[key].writes}:
            return  # It ran before: what it wrote then is there whole, and stays.
        for idx, write in enumerate(writes):
            self.model[key].writes[path, task, idx] = write

    def has_child(self, key: Key) -> bool:
        return any(
            one[:2] == key[:2] and stored.parent == key[2] for one, stored in self.model.items()
        )

    @rule(t=st.sampled_from(["t0", "t1"]), keep_last=st.integers(1, 3))
    def prune(self, t: str, keep_last: int) -> None:
        self.face.prune([self.prefix + t], keep_last=keep_last)
        of_thread = self.visible(t)
        kept: set[Key] = set()
        for ns in {key[1] for key in of_thread}:
            kept.update(sorted(key for key in of_thread if key[1] == ns)[-keep_last:])
        self.remove(t, of_thread - kept)

    @rule(run=st.integers(0, 2))
    def delete_for_runs(self, run: int) -> None:
        self.face.delete_for_runs([f"{self.prefix}{run}"])
        chosen = {key for key, stored in self.model.items() if stored.run == f"{run}"}
        for t in {key[0] for key in chosen}:
            self.remove(t, chosen)

    @rule(t=st.sampled_from(["t0", "t1", "copy"]))
    def delete_thread(self, t: str) -> None:
        self.face.delete_thread(self.prefix + t)
        for key in [key for key in self.model if key[0] == t]:
            del self.model[key]

    @rule(t=st.sampled_from(["t0", "t1"]))
    def copy(self, t: str) -> None:
        there = {key[0] for key in self.model}
        if t not in there or "copy" in there:
            why = "has checkpoints" if t in there else "has no checkpoints"
            with pytest.raises(ValueError, match=why):
                self.face.copy_thread(self.prefix + t, f"{self.prefix}copy")
            return
        self.face.copy_thread(self.prefix + t, f"{self.prefix}copy")
        for key, stored in [*self.model.items()]:
            if key[0] == t:
                self.model["copy", *key[1:]] = replace(stored, run="", writes=dict(stored.writes))

    @rule()
    def forget_all_that_the_saver_remembers(self) -> None:
        saver: Any = self.face.saver
        self.face.saver = type(saver)(saver.client, saver.db.name, create_indexes=False)

    # ------------------------------------------------------------------ comparing

    @invariant()
    def reads_are_the_models(self) -> None:
        for t in ("t0", "t1", "copy"):
            config: RunnableConfig = {"configurable": {"thread_id": self.prefix + t}}
            rows = {}
            for row in self.face.list(config):
                keys = row.config["configurable"]
                rows[t, keys["checkpoint_ns"], keys["checkpoint_id"]] = row
            expected = {key: self.model[key] for key in self.visible(t)}
            assert rows.keys() == expected.keys()
            for key, stored in expected.items():
                row = rows[key]
                assert row.checkpoint["channel_values"] == stored.values
                assert row.checkpoint["channel_versions"] == stored.versions
                assert row.pending_writes == stored.pending()
                parent = row.parent_config and row.parent_config["configurable"]["checkpoint_id"]
                assert parent == stored.parent

    @invariant()
    def delta_channels_are_the_models(self) -> None:
        for key in self.visible() if self.delta else ():
            stored = self.model[key]
            if "log" not in stored.versions or "log" in stored.values:
                continue
            entry = self.face.get_delta_channel_history(config=self.config(key), channels=["log"])[
                "log"
            ]
            found = [entry["seed"]] if "seed" in entry else []
            found += [value for _, _, value in entry["writes"]]
            assert found == self.log(key)[0]


@pytest.mark.parametrize("values", ["replaced", "growing"])
def test_a_saver_does_what_its_model_does(
    request: pytest.FixtureRequest, face: Face, values: str
) -> None:
    if values == "growing":
        request.getfixturevalue("small_limits")
    bound = type("Bound", (Machine,), {"face": face, "growing": values == "growing"})
    run_state_machine_as_test(
        bound,
        settings=settings(
            max_examples=examples(12 if values == "replaced" else 6),
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


# ---------------------------------------------------------------------- beside threads that put


class Writer(threading.Thread):
    """Puts checkpoints onto the newest one that it knows, until it is told to stop.

    Attributes:
        acknowledged: The checkpoints whose put has returned, with what they hold.
        failed: Where it was told that the thread is being deleted.
        wrong: Any other error.
    """

    def __init__(self, saver: MongoDBSaver, thread_id: str, seed: int) -> None:
        super().__init__()
        self._saver, self._thread_id = saver, thread_id
        self._random = random.Random(seed)
        self._ended = threading.Event()
        self.acknowledged: dict[str, dict[str, Any]] = {}
        self.failed: list[MissingChannelValueError] = []
        self.wrong: list[Exception] = []

    def run(self) -> None:
        """Put, now and then on what another has put."""
        chain = Chain(self._saver, self._thread_id)
        while not self._ended.wait(0.01):
            try:
                looks = not chain.values or self._random.random() < 0.2
                if looks and (found := self._saver.get_tuple(thread(self._thread_id))):
                    chain.go_on_from(found)
                self._put(chain)
            except MissingChannelValueError as error:
                # The thread is just being deleted: begin it anew.
                self.failed.append(error)
                chain = Chain(self._saver, self._thread_id)
            except Exception as error:
                self.wrong.append(error)
                return

    def _put(self, chain: Chain) -> None:
        new: dict[str, Any] = {"n": self._random.randrange(1000)}
        if not chain.values or self._random.random() < 0.3:
            new["large"] = f"{self._random.randrange(1000)} " * INLINE_VALUE_BYTES
        if not chain.values:
            new["constant"] = "c" * 2 * INLINE_VALUE_BYTES
            new |= SMALL
        items = chain.values.get("list", [])
        kept = items[: self._random.choice([None, None, None, -1])]
        new["list"] = [*kept, f"{self._random.random()}" * 100]
        new[f"small {self._random.randrange(200)}"] = f"{self._random.random()}" * 20
        run_id = f"{self._thread_id} {self._random.choice('ab')}"
        config = chain.put(new, metadata={"run_id": run_id})
        self.acknowledged[config["configurable"]["checkpoint_id"]] = dict(chain.values)

    def stop(self) -> None:
        """Let the put that is under way end, and no other begin."""
        self._ended.set()
        self.join()


class Beside:
    """Prunes, copies and deletes while threads put into the same thread.

    Not a machine of Hypothesis, which would want the threads to do the same again each time.
    """

    def __init__(self, client: MongoClient[Any], database: str) -> None:
        self._server = (client, database)
        self.thread_id = f"beside {next(numbers)}"
        self.saver = self.open_saver()
        self.copies = itertools.count()
        self.deleted = self.removed_newest = False
        self.writers = [Writer(self.open_saver(), self.thread_id, seed) for seed in range(3)]
        for writer in self.writers:
            writer.start()

    def open_saver(self) -> MongoDBSaver:
        """A saver that shares nothing with the others but the database."""
        return MongoDBSaver(*self._server, create_indexes=False)

    def teardown(self) -> None:
        """Stop the threads, and look once more."""
        for writer in self.writers:
            writer.stop()
        assert [error for writer in self.writers for error in writer.wrong] == []
        if not self.deleted:
            assert [error for writer in self.writers for error in writer.failed] == []
        self.check(self.thread_id)

    def acknowledged(self) -> dict[str, Any]:
        return {k: v for writer in self.writers for k, v in [*writer.acknowledged.items()]}

    def check(self, thread_id: str) -> set[str]:
        """Every checkpoint that is stored reads whole, as it was put."""
        rows = {row.checkpoint["id"]: row for row in self.saver.list(thread(thread_id))}
        acknowledged = self.acknowledged()
        for id_, row in rows.items():
            values = row.checkpoint["channel_values"]
            # One whose put has not returned yet is compared as far as it can be known.
            assert values == acknowledged.get(id_, values)
            assert values.keys() == {"n", "large", "constant", "list", *SMALL}
        return set(rows)

    def check_after_removal(self) -> None:
        """What was put since the last removal is there, and goes on being put."""
        began = [len(writer.acknowledged) for writer in self.writers]
        self.check(self.thread_id)
        time.sleep(0.1)
        # The put of each writer that was under way may have been removed: not those after it.
        kept = {
            id_
            for writer, count in zip(self.writers, began, strict=True)
            for id_ in [*writer.acknowledged][count + 1 :]
        }
        assert kept <= self.check(self.thread_id)

    def prune(self, keep_last: int) -> None:
        newest = max(self.acknowledged(), default="")
        self.saver.prune([self.thread_id], keep_last=keep_last)
        found = self.check(self.thread_id)
        if not (self.deleted or self.removed_newest):
            assert max(found, default="") >= newest
        self.check_after_removal()

    def copy(self) -> None:
        before = self.acknowledged()
        target = f"{self.thread_id} copy {next(self.copies)}"
        try:
            self.saver.copy_thread(self.thread_id, target)
        except ValueError:  # It was deleted, and has not begun anew, or has not begun yet.
            assert self.deleted or not before
            return
        stored = self.saver.list(thread(self.thread_id))
        copied = self.check(target)
        assert {row.checkpoint["id"] for row in stored} & before.keys() <= copied

    def delete_run(self, run: str) -> None:
        self.removed_newest = True
        self.saver.delete_for_runs([f"{self.thread_id} {run}"])
        self.check_after_removal()

    def delete_the_thread(self) -> None:
        """The puts that are under way begin it anew, each by itself."""
        self.deleted = True
        self.saver.delete_thread(self.thread_id)
        self.check_after_removal()

    def step(self, chosen: random.Random) -> None:
        """Do one of them."""
        match chosen.randrange(4):
            case 0:
                self.prune(chosen.randint(1, 5))
            case 1:
                self.copy()
            case 2:
                self.delete_run(chosen.choice("ab"))
            case _:
                self.delete_the_thread()


@pytest.mark.parametrize("seed", range(6))
def test_retention_beside_threads_that_put(
    mongo_client: MongoClient[Any], database: Database[dict[str, Any]], seed: int
) -> None:
    MongoDBSaver(mongo_client, database.name)
    beside = Beside(mongo_client, database.name)
    chosen = random.Random(seed)
    try:
        for _ in range(8):
            beside.step(chosen)
    finally:
        beside.teardown()
