"""migrate_thread: failed at each command, beside graphs, prunes and other migrations."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo import MongoClient
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver, OldMetadataError, UnknownLayoutError
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._operations import migration
from langgraph.checkpoint.mongodb._operations.migration import migrate_thread
from langgraph.checkpoint.mongodb._operations.removal import prune
from tests.face import Face, MakeFace
from tests.hypothesis_profile import examples
from tests.integration_tests.interleaving import Party
from tests.integration_tests.tampering import (
    MOMENTS,
    InjectedFault,
    Step,
    again,
    failing,
    tampered,
)
from tests.integration_tests.test_suspended import grow_old
from tests.support import (
    MB,
    Chain,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
    values_of,
)

# One database for all examples, and one for each process that runs tests.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
Data = Database[dict[str, Any]]
LARGE = "b" * 2 * INLINE_VALUE_BYTES
MAX_COMMANDS = 200

needs_delta_channels = pytest.mark.skipif(
    not hasattr(BaseCheckpointSaver, "get_delta_channel_history"),
    reason="this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
)


class OldThread:
    """A thread of an older release: a trunk, two forks, a subgraph, pending writes."""

    def __init__(self, database: Data, thread_id: str = "t") -> None:
        self.database, self.thread_id = database, thread_id
        self.configs: list[RunnableConfig] = []
        trunk: RunnableConfig = thread(thread_id)
        for turn in range(4):
            trunk = self.step(trunk, turn, "trunk")
        for name in ("left", "right"):
            fork = self.step(self.configs[1], 4, name)
            self.step(fork, 5, name)
        inner = thread(thread_id, "sub:1")
        for turn in range(2):
            inner = self.step(inner, turn, "inner")
        for config in (trunk, inner):
            insert_old_write(
                database, config, task_id="a", task_path="", idx=0, channel="n", value=LARGE
            )
            insert_old_write(
                database,
                config,
                **{"task_id": "b", "task_path": "~x", "idx": -3, "channel": "__interrupt__"},
                value=[{"ask": "what?"}],
            )

    def step(self, config: RunnableConfig, turn: int, name: str) -> RunnableConfig:
        """Put a checkpoint: a value that stays, one that grows, one that is replaced."""
        values = {
            "big": LARGE,
            "list": [f"{name if turn > 3 else 'trunk'} {n}" * 400 for n in range(turn + 3)],
            "doc": f"{name} {turn}" * 2000,
            "n": turn,
            "objects": {turn, "in a set"},
        }
        versions = {
            "objects": turn + 2,
            "big": 1,
            "list": turn + 2,
            "doc": turn + 2,
            "n": turn + 2,
            "gone": 1,
        }
        seen = {"node": {"list": turn + 1, "big": 1}, "__input__": {}}
        stored = checkpoint(values, versions, versions_seen=seen)
        config = insert_whole(
            self.database, config, stored, {"source": "loop", "step": turn, "run_id": name}
        )
        self.configs.append(config)
        return config


def counted(row: CheckpointTuple) -> CheckpointTuple:
    """A checkpoint whose versions are whole numbers, as older releases have them."""

    def integers(versions: Any) -> Any:
        return {name: int(str(version).partition(".")[0]) for name, version in versions.items()}

    seen = {node: integers(one) for node, one in row.checkpoint["versions_seen"].items()}
    versions = integers(row.checkpoint["channel_versions"])
    stored: Any = {**row.checkpoint, "channel_versions": versions, "versions_seen": seen}
    return row._replace(checkpoint=stored)


def rows(face: Face, thread_id: str = "t") -> list[CheckpointTuple]:
    return [counted(row) for row in face.list({"configurable": {"thread_id": thread_id}})]


def layouts(database: Data, thread_id: str = "t") -> set[int | None]:
    found = database["checkpoints"].find({"thread_id": thread_id})
    return {document.get("layout") for document in found}


def version_of(face: Face, config: RunnableConfig, channel: str) -> Any:
    found = face.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_versions"][channel]


def test_a_thread_is_migrated_with_all_that_it_holds(face: Face, database: Data) -> None:
    old = OldThread(database)
    other = OldThread(database, "other")
    before, beside = rows(face), rows(face, "other")

    assert face.migrate_thread("t") == len(old.configs)

    assert rows(face) == before
    assert layouts(database) == {2}
    assert (rows(face, "other"), layouts(database, "other")) == (beside, {None})
    assert other.configs


def test_versions_are_one_text_along_a_line_and_different_ones_in_forks(
    face: Face, database: Data
) -> None:
    old = OldThread(database)
    face.migrate_thread("t")
    trunk, left, right = old.configs[3], old.configs[5], old.configs[7]
    (big,) = {version_of(face, config, "big") for config in (trunk, left, right)}
    assert big.startswith(f"{1:032d}.")
    forks = {version_of(face, config, "doc") for config in (left, right)}
    assert len(forks) == 2
    assert {text.partition(".")[0] for text in forks} == {f"{7:032d}"}
    found = face.get_tuple(left)
    assert found is not None
    seen = found.checkpoint["versions_seen"]["node"]
    assert seen["list"] == version_of(face, old.configs[4], "list")


def test_what_stays_or_grows_is_stored_once(face: Face, database: Data) -> None:
    OldThread(database)
    face.migrate_thread("t")
    values = database["checkpoint_channel_values"]
    assert values.count_documents({"channel": "big", "checkpoint_ns": ""}) == 1
    stored = sum(len(one["value"]) for one in values.find({"channel": "list"}))
    whole = sum(len(str(row.checkpoint["channel_values"]["list"])) for row in rows(face))
    assert stored < whole / 2


def test_a_value_that_changed_under_the_same_version_is_not_taken_for_the_parents(
    face: Face, database: Data
) -> None:
    doc = 3 * LARGE  # Too large to be inline for changing with every step.
    first = insert_whole(
        database, thread(), checkpoint({"doc": doc, "list": [LARGE]}, {"doc": 1, "list": 1}), {}
    )
    changed = {"doc": doc + "!", "list": ["other", LARGE]}
    second = insert_whole(database, first, checkpoint(changed, {"doc": 1, "list": 1}), {})
    face.migrate_thread("t")
    assert values_of(face, first) == {"doc": doc, "list": [LARGE]}
    assert values_of(face, second) == changed


def test_a_channel_without_a_value_gets_none_from_its_parent(face: Face, database: Data) -> None:
    many = {f"small {n}": str(n) * 900 for n in range(200)}
    versions = dict.fromkeys([*many, "doc"], 1)
    first = insert_whole(database, thread(), checkpoint({**many, "doc": LARGE}, versions), {})
    few = {name: many[name] for name in list(many)[::2]}
    second = insert_whole(database, first, checkpoint(few, versions), {})
    third = insert_whole(database, second, checkpoint({"doc": LARGE}, versions), {})
    face.migrate_thread("t")
    assert values_of(face, first) == {**many, "doc": LARGE}
    assert values_of(face, second) == few
    assert values_of(face, third) == {"doc": LARGE}


@needs_delta_channels
def test_delta_channels_are_rebuilt_as_before(face: Face, database: Data) -> None:
    config: RunnableConfig = thread()
    for number in range(5):
        stored = checkpoint(
            {"log": DeltaSnapshot([LARGE])} if number == 0 else {}, {"log": number + 1}
        )
        counters = {COUNTERS: {"log": (number, number)}} if number else {}
        config = insert_whole(
            database, config, stored, {"source": "loop", "step": number, **counters}
        )
        insert_old_write(
            database, config, task_id="a", task_path="", idx=0, channel="log", value=number
        )
    before = face.get_delta_channel_history(config=config, channels=["log"])
    face.migrate_thread("t")
    assert face.get_delta_channel_history(config=config, channels=["log"]) == before
    face.prune(["t"])
    face.migrate_thread("t")
    assert face.get_delta_channel_history(config=config, channels=["log"]) == before


def test_ancestors_kept_for_delta_channels_and_threads_cut_off_are_migrated(
    face: Face, database: Data
) -> None:
    OldThread(database)
    database["checkpoints"].update_one({"checkpoint_ns": ""}, {"$set": {"retained": True}})
    oldest = database["checkpoints"].find_one({"checkpoint_ns": "sub:1"})
    assert oldest is not None
    database["checkpoints"].delete_one({"_id": oldest["_id"]})
    before = rows(face)
    face.migrate_thread("t")
    assert rows(face) == before
    assert layouts(database) == {2}


def test_a_thread_goes_on_past_16_mb(face: Face, database: Data) -> None:
    OldThread(database)
    face.migrate_thread("t")
    chain = Chain(face)
    newest = face.get_tuple(thread())
    assert newest is not None
    chain.go_on_from(newest)
    for name in ("one", "two", "three"):
        chain.put({name: name * 2 * MB})
    assert values_of(face.fresh(), thread()) == chain.values
    assert sum(len(str(value)) for value in chain.values.values()) > 16 * MB


def test_the_largest_states_are_migrated(face: Face, database: Data) -> None:
    """There is no room in their documents, not even for a claim."""
    values = {"one": "1" * 8 * MB, "two": "2" * (8 * MB - 2000)}
    versions = {"one": 1, "two": 1}
    first = insert_whole(database, thread(), checkpoint(values, versions), {})
    second = insert_whole(database, first, checkpoint(values, versions), {})
    face.migrate_thread("t")
    assert values_of(face, first) == values_of(face, second) == values


STEPS = st.lists(
    st.tuples(
        st.integers(0, 9),  # which checkpoint it follows, counted back from the newest
        st.dictionaries(
            st.sampled_from("abcdef"),
            st.one_of(
                st.lists(st.text("xyz", max_size=60), max_size=6),
                st.text("xyz", max_size=200),
                st.integers(0, 3),
                st.sets(st.integers(0, 9), max_size=3),
                st.just("dropped"),
            ),
            max_size=4,
        ),
        st.booleans(),  # whether lists that are there grow
    ),
    max_size=12,
)


@given(steps=STEPS, cut=st.integers(0, 40))
# The fixture's limits are the same for all examples.
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tree_of_checkpoints_is_the_same_after_a_crash_and_a_migration(
    mongodb_uri: str, small_limits: None, steps: list[Any], cut: int
) -> None:
    with MongoClient[Any](mongodb_uri) as client:
        database = client[f"test_migration_trees_{WORKER}"]
        client.drop_database(database.name)
        saver = MongoDBSaver(client, database.name)
        tree: list[tuple[RunnableConfig, dict[str, Any], dict[str, Any]]] = []
        for back, changes, grows in steps:
            config, values, versions = tree[-1 - back % len(tree)] if tree else (thread(), {}, {})
            number = max(versions.values(), default=0) + 1
            values = {**values, **changes}
            if grows:
                grown = {n: [*v, "more"] for n, v in values.items() if isinstance(v, list)}
                values, changes = {**values, **grown}, {**changes, **grown}
            values = {name: value for name, value in values.items() if value != "dropped"}
            versions = {**versions, **dict.fromkeys(changes, number)}
            seen = {"node": dict(list(versions.items())[:2])}
            stored = checkpoint(values, versions, versions_seen=seen)
            config = insert_whole(database, config, stored, {"source": "loop", "step": number})
            tree.append((config, values, versions))
        of_thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
        before = [counted(row) for row in saver.list(of_thread)]
        crashed = Party(saver, functools.partial(migrate_thread, thread_id="t"))
        for _ in range(cut):
            crashed.step()
        crashed.crash()
        reader = MongoDBSaver(client, database.name, create_indexes=False)
        assert [counted(row) for row in reader.list(of_thread)] == before
        saver.migrate_thread("t")
        assert [counted(row) for row in reader.list(of_thread)] == before
        assert layouts(database) <= {2}
        texts: dict[str, set[str]] = {}
        for row in reader.list(of_thread):
            of_row = {str(text) for text in row.checkpoint["channel_versions"].values()}
            counters = [text.partition(".")[0] for text in of_row]
            assert len(set(counters)) == len(counters)
            texts[row.config["configurable"]["checkpoint_id"]] = of_row
        for config, _, versions in tree:
            for other, _, others in tree:
                one, two = (c["configurable"]["checkpoint_id"] for c in (config, other))
                shared = {text.partition(".")[0] for text in texts[one] & texts[two]}
                assert shared <= {f"{v:032d}" for v in {*versions.values()} & {*others.values()}}
        client.drop_database(database.name)


def test_what_an_older_release_puts_afterwards_is_taken_along(face: Face, database: Data) -> None:
    """A run of its that was under way counts on in integers, from a checkpoint that has moved."""
    old = OldThread(database)
    face.migrate_thread("t")
    late = old.step(old.configs[3], 4, "late")
    last = old.step(late, 5, "late")
    before = rows(face)
    assert values_of(again(face), last)["n"] == 5
    chain = Chain(face)
    newest = face.get_tuple(last)
    assert newest is not None
    chain.go_on_from(newest)

    assert face.migrate_thread("t") == 2

    assert rows(face) == before
    assert version_of(face, last, "big") == version_of(face, old.configs[3], "big")
    assert version_of(face, last, "doc") != version_of(face, late, "doc")
    assert layouts(database) == {2}


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_migration_that_fails_at_any_command_leaves_a_thread_that_works_and_is_repeated(
    face: Face, database: Data, moment: Any
) -> None:
    face.setup()
    for number in range(MAX_COMMANDS):
        thread_id = f"{moment} {number}"
        OldThread(database, thread_id)
        before = rows(face, thread_id)
        broke = False
        with failing(face, number, moment):
            try:
                face.migrate_thread(thread_id)
            except InjectedFault:
                broke = True
        assert rows(again(face), thread_id) == before
        if broke:
            face.migrate_thread(thread_id)
            assert rows(again(face), thread_id) == before
        assert layouts(database, thread_id) == {2}
        if not broke:
            return
    raise AssertionError("it never came to its end")


def test_a_thread_that_is_half_migrated_goes_on_and_is_migrated_again(
    face: Face, database: Data
) -> None:
    for number in range(1, 12):
        thread_id = f"t {number}"
        OldThread(database, thread_id)
        with failing(face, 3 * number, "before"), contextlib.suppress(InjectedFault):
            face.migrate_thread(thread_id)
        chain = Chain(again(face), thread_id)
        newest = face.get_tuple(thread(thread_id))
        assert newest is not None
        chain.go_on_from(newest)
        chain.put({"n": "went on"})
        chain.put({"doc": LARGE})
        before = rows(face, thread_id)
        face.migrate_thread(thread_id)
        assert rows(face, thread_id) == before
        assert layouts(database, thread_id) == {2}


# ---------------------------------------------------------------------- beside others


@pytest.fixture
def other(mongodb_uri: str, database: Data, face: Face) -> Iterator[Face]:
    """A saver of another process, which works in the middle of what the first one does."""
    face.setup()
    with contextlib.ExitStack() as closing:
        yield Face("sync", mongodb_uri, database.name, closing=closing)


def test_a_graph_that_runs_beside_is_taken_along(face: Face, other: Face, database: Data) -> None:
    OldThread(database)
    chain = Chain(other)
    newest = other.get_tuple(thread())
    assert newest is not None
    chain.go_on_from(newest)
    put: list[RunnableConfig] = []

    def go_on(step: Step) -> None:
        if step.role == "checkpoints" and step.sent and len(put) < 20:
            put.append(chain.put({"n": f"put {len(put)}", "doc": f"{len(put)}" * 9000}))
            other.put_writes(put[-1], [("n", "pending")], "task")
            seen = other.get_tuple(thread())
            assert seen is not None
            assert seen.checkpoint["channel_values"] == chain.values

    with tampered(face, go_on):
        face.migrate_thread("t")
    assert len(put) == 20
    assert layouts(database) == {2}
    again(other)
    for place, config in enumerate(put):
        found = other.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"]["n"] == f"put {place}"
        assert found.pending_writes == [("task", "n", "pending")]


def test_a_run_that_is_under_way_on_the_same_saver_is_taken_along(
    face: Face, database: Data
) -> None:
    """It counts in integers to its end, whatever its thread has become."""
    OldThread(database)
    chain = Chain(face)
    newest = face.get_tuple(thread())
    assert newest is not None
    chain.go_on_from(newest)
    chain.put({"n": "before"})
    face.migrate_thread("t")
    for turn in range(2):
        chain.put({"n": turn, "doc": f"{turn}" * 9000})
    assert layouts(database) == {None, 2}
    before = rows(face)

    assert face.migrate_thread("t") == 2

    assert rows(face) == before
    for row in face.list({"configurable": {"thread_id": "t"}}):
        assert {type(one) for one in row.checkpoint["channel_versions"].values()} == {str}


def test_a_checkpoint_that_is_put_again_meanwhile_is_whole_and_taken_along(
    face: Face, other: Face, database: Data
) -> None:
    old = OldThread(database)
    found = other.get_tuple(old.configs[0])
    assert found is not None
    changed: Any = {**found.checkpoint, "channel_values": {"big": LARGE + "again", "n": 7}}
    done: list[Step] = []

    def put_again(step: Step) -> None:
        if step.is_("update", "checkpoints", sent=False) and not done:
            done.append(step)
            other.put(thread(), changed, {"source": "loop", "step": 0}, {})

    with tampered(face, put_again):
        face.migrate_thread("t")
    assert values_of(face, old.configs[0]) == changed["channel_values"]
    other.put(thread(), changed, {"source": "loop", "step": 0}, {})
    assert values_of(again(face), old.configs[0]) == changed["channel_values"]
    face.migrate_thread("t")
    assert values_of(again(face), old.configs[0]) == changed["channel_values"]
    assert layouts(database) == {2}


@pytest.mark.parametrize("one_by_one", [False, True])
def test_readers_see_each_checkpoint_whole_at_every_moment(
    face: Face, other: Face, database: Data, one_by_one: bool
) -> None:
    OldThread(database)
    before = rows(other)

    def look(step: Step) -> None:
        assert rows(again(other)) == before

    with tampered(face, look, one_by_one=one_by_one):
        face.migrate_thread("t")


def test_a_prune_beside_takes_nothing_that_is_carried_over(
    face: Face, other: Face, database: Data
) -> None:
    """At each moment of the migration, and of each update of a command, another prunes."""
    face.setup()
    for number in range(MAX_COMMANDS):
        thread_id = f"t {number}"
        OldThread(database, thread_id)
        before = {row.config["configurable"]["checkpoint_id"]: row for row in rows(face, thread_id)}

        def prune_at(step: Step, number: int = number, thread_id: str = thread_id) -> None:
            if step.number == number and not step.sent:
                other.prune([thread_id])

        with tampered(face, prune_at, one_by_one=True) as port:
            face.migrate_thread(thread_id)
        left = rows(again(face), thread_id)
        assert left
        for row in left:
            assert row == before[row.config["configurable"]["checkpoint_id"]]
        assert layouts(database, thread_id) == {2}
        if port.count < number:
            return
    raise AssertionError("it never came to its end")


@given(order=st.lists(st.integers(0, 2), max_size=60), keep=st.integers(1, 3))
@settings(max_examples=examples(60))
def test_migrations_and_prunes_in_any_order_leave_every_checkpoint_whole(
    mongodb_uri: str, order: list[int], keep: int
) -> None:
    with MongoClient[Any](mongodb_uri) as client:
        database = client[f"test_migration_orders_{WORKER}"]
        client.drop_database(database.name)
        savers = [MongoDBSaver(client, database.name) for _ in range(3)]
        old = OldThread(database)
        before = {}
        for row in map(counted, savers[0].list({"configurable": {"thread_id": "t"}})):
            before[row.config["configurable"]["checkpoint_id"]] = row
        parties = [
            Party(savers[0], lambda context: migrate_thread(context, "t")),
            Party(savers[1], lambda context: migrate_thread(context, "t")),
            Party(savers[2], lambda context: prune(context, ["t"], "keep_latest", keep)),
        ]
        for turn in order:
            parties[turn].step()
        parties[2].finish()
        for party in parties:
            party.finish()
        assert [party.error for party in parties] == [None] * 3
        reader = MongoDBSaver(client, database.name, create_indexes=False)
        left = [*map(counted, reader.list({"configurable": {"thread_id": "t"}}))]
        for row in left:
            assert row == before[row.config["configurable"]["checkpoint_id"]]
        assert len(left) <= len(old.configs)
        assert layouts(database) == {2}
        client.drop_database(database.name)


def test_values_that_a_crashed_migration_left_are_not_swept_from_under_the_next_one(
    mongodb_uri: str, database: Data
) -> None:
    """The sweep stands still after each of its commands, while the migration does some."""
    with MongoClient[Any](mongodb_uri) as client:
        savers = [MongoDBSaver(client, database.name) for _ in range(3)]
        swept = 0
        for before in range(18):
            for between in range(6):
                thread_id = f"{before} {between}"
                values = {"one": LARGE, "two": LARGE}
                stored = checkpoint(values, {"one": 1, "two": 1})
                config = insert_whole(database, thread(thread_id), stored, {})
                crashed = Party(savers[0], functools.partial(migrate_thread, thread_id=thread_id))
                while not database["checkpoint_channel_values"].count_documents(
                    {"thread_id": thread_id}
                ):
                    crashed.step()
                crashed.crash()
                grow_old(database, "checkpoint_channel_values", {"thread_id": thread_id})
                sweeping = functools.partial(
                    prune, thread_ids=[thread_id], strategy="keep_latest", keep_last=1
                )
                sweep = Party(savers[1], sweeping)
                again = Party(savers[0], functools.partial(migrate_thread, thread_id=thread_id))
                for _ in range(before):
                    sweep.step()
                for _ in range(between):
                    again.step()
                swept += not sweep.done
                sweep.finish()
                again.finish()
                assert (sweep.error, again.error) == (None, None)
                found = savers[2].get_tuple(config)
                assert found is not None
                assert found.checkpoint["channel_values"] == values
        assert swept


def test_a_copy_beside_a_migration_is_whole_or_is_refused(
    face: Face, other: Face, database: Data
) -> None:
    refused = 0
    for number in range(MAX_COMMANDS):
        thread_id, target = f"t {number}", f"copy {number}"
        OldThread(database, thread_id)
        before = rows(face, thread_id)

        def migrate_at(step: Step, number: int = number, thread_id: str = thread_id) -> None:
            if step.number == number and not step.sent:
                other.migrate_thread(thread_id)

        failed = False
        with tampered(face, migrate_at) as port:
            try:
                face.copy_thread(thread_id, target)
            except ValueError as error:
                failed = "migrated meanwhile" in str(error)
                if not failed:
                    raise
        if port.count <= number and not failed:
            break
        if failed:
            refused += 1
            face.copy_thread(thread_id, target)
        assert layouts(database, thread_id) == {2}
        copied = [row.checkpoint for row in rows(other, target)]
        assert copied == [row.checkpoint for row in before]
    assert refused


# ---------------------------------------------------------------------- TTL


def test_values_are_stamped_no_earlier_than_what_names_them(
    make_face: MakeFace, database: Data
) -> None:
    from datetime import UTC, datetime, timedelta

    face = make_face(ttl=3600)
    config: RunnableConfig = thread()
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=50)
    for number in range(4):
        at += timedelta(minutes=10)
        stamp = {} if number == 2 else {"created_at": at}
        stored = checkpoint({"big": LARGE, "n": number}, {"big": 1, "n": number + 1})
        config = insert_whole(database, config, stored, {"step": number}, **stamp)
    stamps = [one.get("created_at") for one in database["checkpoints"].find({})]
    face.migrate_thread("t")
    assert [one.get("created_at") for one in database["checkpoints"].find({})] == stamps
    for value in database["checkpoint_channel_values"].find({}):
        # One of the checkpoints that name it never expires.
        assert value.get("created_at") is None
    database["checkpoints"].update_many({}, {"$set": {"created_at": at}})
    OldThread(database, "other")
    database["checkpoints"].update_many({"thread_id": "other"}, {"$set": {"created_at": at}})
    face.migrate_thread("other")
    values = database["checkpoint_channel_values"].find({"thread_id": "other"})
    assert {value["created_at"] > at.replace(tzinfo=None) for value in values} == {True}


# ---------------------------------------------------------------------- what is refused


def test_a_state_whose_classes_cannot_be_imported_is_refused_and_stays(
    face: Face, database: Data
) -> None:
    OldThread(database)
    import ormsgpack

    odd = ormsgpack.Ext(5, ormsgpack.packb(("an.application", "Order", {"n": 1}, "model_validate")))
    stored = checkpoint({"order": None, "big": LARGE}, {"order": 1, "big": 1})
    config = insert_whole(database, thread("odd"), stored, {"source": "loop", "step": 0})
    stored["channel_values"]["order"] = odd
    data = ormsgpack.packb(stored)
    database["checkpoints"].update_one(
        {"thread_id": "odd"}, {"$set": {"checkpoint": data, "type": "msgpack"}}
    )
    before = database["checkpoints"].find_one({"thread_id": "odd"})
    with pytest.raises(ValueError, match=r"an\.application\.Order.*as it was"):
        face.migrate_thread("odd")
    assert database["checkpoints"].find_one({"thread_id": "odd"}) == before
    assert config


def test_what_other_writers_stored_is_refused(face: Face, database: Data) -> None:
    for name, fields in (
        ("javascript", {"metadata": b"{}", "type": "json", "checkpoint": b"{}"}),
        ("before 0.2.2", {"metadata": {"step": b"1"}}),
        ("newer", {"layout": 3}),
    ):
        stored = checkpoint({"n": 1}, {"n": 1})
        insert_whole(database, thread(name), stored, {"source": "loop", "step": 0})
        database["checkpoints"].update_one({"thread_id": name}, {"$set": fields})
    with pytest.raises(ValueError, match="JavaScript"):
        face.migrate_thread("javascript")
    with pytest.raises(OldMetadataError):
        face.migrate_thread("before 0.2.2")
    with pytest.raises(UnknownLayoutError):
        face.migrate_thread("newer")
    broken: Any = checkpoint({"n": 1}, {"n": 1.5})
    insert_whole(database, thread("fractions"), broken, {"source": "loop", "step": 0})
    with pytest.raises(ValueError, match=r"by 1\.5"):
        face.migrate_thread("fractions")
    with pytest.raises(ValueError, match="thread_id"):
        face.migrate_thread({"$ne": ""})  # type: ignore[arg-type]
    assert face.migrate_thread("there is none") == 0
    assert not database["checkpoint_channel_values"].count_documents({})


def test_sends_that_old_formats_left_with_the_parent_are_found_after_the_migration(
    face: Face, database: Data
) -> None:
    first = insert_whole(database, thread(), checkpoint({"n": 1}, {"n": 1}, v=1), {})
    insert_old_write(
        database,
        first,
        **{"task_id": "a", "task_path": "", "idx": 0, "channel": "__pregel_tasks"},
        value="a send",
    )
    second = insert_whole(database, first, checkpoint({"n": 2}, {"n": 2}, v=1), {})
    before = rows(face)
    face.migrate_thread("t")
    assert rows(face) == before
    assert values_of(face, second)["__pregel_tasks"] == ["a send"]


def test_a_serializer_of_ones_own_is_used(make_face: MakeFace, database: Data) -> None:
    class Reversed(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            type_, data = super().dumps_typed(obj)
            return f"r{type_}", data[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return super().loads_typed((data[0][1:], data[1][::-1]))

    face = make_face(serde=Reversed())
    type_, data = Reversed().dumps_typed(checkpoint({"big": LARGE, "n": 1}, {"big": 1, "n": 1}))
    config = insert_whole(database, thread(), checkpoint({}, {}), {})
    database["checkpoints"].update_one({}, {"$set": {"type": type_, "checkpoint": data}})
    stored: Any = Reversed().loads_typed((type_, data))
    key = {"checkpoint_id": stored["id"]}
    database["checkpoints"].update_one({}, {"$set": {**key, "metadata": {}}})
    config = thread(checkpoint_id=stored["id"])
    face.migrate_thread("t")
    assert values_of(face, config) == {"big": LARGE, "n": 1}


def test_few_commands_for_each_checkpoint(counted: Face, counter: Any, database: Data) -> None:
    old = OldThread(database)
    with counter.recording():
        counted.migrate_thread("t")
    updates = [one for one in counter.commands if one.collection == "checkpoints"]
    assert sum(one.name == "update" for one in updates) == len(old.configs)
    assert len(counter.commands) <= 3 * len(old.configs) + 8
    assert migration.__name__
