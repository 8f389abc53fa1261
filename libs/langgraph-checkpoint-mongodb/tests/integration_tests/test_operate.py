"""What the operator's tool says and does: from Python, and as a command."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from typer.testing import CliRunner

from langgraph.checkpoint.mongodb import MongoDBSaver, operate
from langgraph.checkpoint.mongodb._database.driver import USUAL_LIMIT
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES
from langgraph.checkpoint.mongodb.operate._stats import WHOLE_STATE
from langgraph.checkpoint.mongodb.operate.cli import app
from tests.face import Face
from tests.integration_tests.test_migration import OldThread, layouts, rows
from tests.integration_tests.test_suspended import grow_old
from tests.integration_tests.test_verify import fill, remove
from tests.support import (
    LARGE_SIZE,
    MB,
    Chain,
    CommandCounter,
    checkpoint,
    insert_whole,
    thread,
)

Data = Database[dict[str, Any]]
LARGE = "v" * LARGE_SIZE
COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")


@pytest.fixture
def saver(database: Data) -> MongoDBSaver:
    """A saver of the tool's, which makes no index."""
    return MongoDBSaver(database.client, database.name, create_indexes=False)


def sizes(database: Data, thread_id: str) -> int:
    """The bytes of a thread in all collections."""
    group = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    found = [
        one
        for name in COLLECTIONS
        for one in database[name].aggregate([{"$match": {"thread_id": thread_id}}, group])
    ]
    return sum(one["bytes"] for one in found)


def at_days_ago(database: Data, query: dict[str, Any], days: float) -> None:
    """Let documents have been stored so many days ago, as their ids tell it."""
    at = ObjectId.from_datetime(datetime.now(UTC) - timedelta(days=days)).binary[:4]
    for name in COLLECTIONS:
        for document in database[name].find(query):
            database[name].delete_one({"_id": document["_id"]})
            database[name].insert_one({**document, "_id": ObjectId(at + ObjectId().binary[4:])})


# ---------------------------------------------------------------------- stats


def test_stats_counts_what_there_is(face: Face, database: Data, saver: MongoDBSaver) -> None:
    fill(face)
    OldThread(database, "old")
    found = operate.stats(saver)
    names = database["checkpoints"].distinct("thread_id")
    assert (found.threads, found.whole_threads) == (len(names), 1)
    assert found.checkpoints == database["checkpoints"].count_documents({})
    assert found.whole_checkpoints == 10
    documents = {one.name: one.documents for one in found.collections}
    assert documents == {name: database[name].count_documents({}) for name in COLLECTIONS}
    by_bytes = sorted(names, key=lambda name: -sizes(database, name))
    assert [one.thread_id for one in found.largest_threads] == by_bytes
    assert found.largest_threads[0].bytes == sizes(database, by_bytes[0])
    assert {one.thread_id: one.layout for one in found.largest_threads}["old"] == "whole"
    assert sum(bucket.threads for bucket in found.histogram) == found.threads
    assert sum(day.bytes for day in found.days) == sum(sizes(database, name) for name in names)
    assert sum(day.checkpoints for day in found.days) == found.checkpoints
    largest = {(one.thread_id, one.channel) for one in found.largest_channels}
    assert {("t", "docs"), ("old", WHOLE_STATE)} <= largest
    assert found.near_limit == []


def test_stats_tells_what_will_reach_the_limit_and_when(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    chain = Chain(face, "grows")
    for turn in range(3):
        config = chain.put({"list": [str(n) * MB for n in range(2 * turn + 1)]})
        query = {"checkpoint_id": config["configurable"]["checkpoint_id"]}
        at_days_ago(database, query, 20 - 10 * turn)
    Chain(face, "large").put({"docs": "d" * 5 * MB})
    Chain(face, "small").put({"docs": "d" * MB})
    state = checkpoint({"docs": "d" * 6 * MB}, {"docs": 1})
    insert_whole(database, thread("old"), state, {"source": "loop", "step": 0})

    found = {one.thread_id: one for one in operate.stats(saver).near_limit}

    assert found.keys() == {"grows", "large", "old"}
    assert (found["old"].channel, found["large"].full_at) == (WHOLE_STATE, None)
    grows = found["grows"]
    assert grows.a_day == pytest.approx(4 * MB / 20, rel=0.1)
    assert grows.full_at is not None
    days = (grows.full_at - datetime.now(UTC)) / timedelta(days=1)
    assert days == pytest.approx((USUAL_LIMIT - grows.bytes) / grows.a_day, abs=1)


def test_stats_holds_and_answers_no_more_for_more_threads(
    face: Face, database: Data, mongodb_uri: str
) -> None:
    for number in range(40):
        Chain(face, f"t {number}").put({"docs": LARGE + "x" * number})
    counter = CommandCounter()
    with MongoClient[Any](mongodb_uri, event_listeners=[counter]) as client:
        saver = MongoDBSaver(client, database.name, create_indexes=False)
        with counter.recording():
            found = operate.stats(saver, largest=3)
        assert len(counter.commands) <= 12
        with counter.recording():
            quick = operate.stats(saver, quick=True)
    assert {one.name for one in counter.commands} <= {"aggregate", "listCollections"}
    assert [len(found.largest_threads), len(found.largest_channels)] == [3, 3]
    assert found.largest_channels[0].thread_id == "t 39"
    # Not what lies on disk: the server writes it when it likes.
    assert [(one.name, one.documents, one.bytes) for one in quick.collections] == [
        (one.name, one.documents, one.bytes) for one in found.collections
    ]
    assert not quick.threads


def test_an_empty_database_has_nothing(saver: MongoDBSaver) -> None:
    found = operate.stats(saver)
    assert (found.threads, found.checkpoints, found.histogram) == (0, 0, [])
    assert [one.bytes for one in found.collections] == [0, 0, 0]
    assert operate.show(saver, "none") is None
    assert [*operate.verify(saver, ["none"])] == []
    assert operate.migrate(saver).threads == operate.prune(saver, keep_last=1).threads == 0


# ---------------------------------------------------------------------- show


def test_show_has_the_tree_with_forks_sizes_and_open_questions(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    for name in ("moved", "old"):
        OldThread(database, name)
    face.migrate_thread("moved")
    for name in ("moved", "old"):
        tree = operate.show(saver, name)
        assert tree is not None
        assert sum(tree.bytes.values()) == sizes(database, name) == tree.growth[-1][1]
        nodes = {node.checkpoint_id: node for node in tree.checkpoints}
        stored = rows(face, name)
        assert len(nodes) == len(stored)
        for row in stored:
            node = nodes[row.config["configurable"]["checkpoint_id"]]
            parent = row.parent_config and row.parent_config["configurable"]["checkpoint_id"]
            assert node.parent_id == parent
            assert (node.step, node.source) == (row.metadata["step"], row.metadata["source"])
            assert node.writes == len(row.pending_writes or ())
            assert node.channels["big"] == pytest.approx(LARGE_SIZE, abs=8)
            assert (node.values, node.questions) == (None, None)
        assert [node.interrupts for node in nodes.values()].count(1) == 2
        forks = [node.parent_id for node in nodes.values() if node.parent_id]
        assert max(forks.count(parent) for parent in forks) == 3


def test_show_draws_a_damaged_thread(face: Face, database: Data, saver: MongoDBSaver) -> None:
    for name in ("old", "moved"):
        OldThread(database, name)
    face.migrate_thread("moved")
    for name, update in (
        ("old", {"checkpoint": b"\xc1"}),
        ("moved", {"metadata": {"step": ["unheard of", b""]}}),
    ):
        database["checkpoints"].update_one({"thread_id": name}, {"$set": update})
        tree = operate.show(saver, name)
        assert tree is not None
        assert [node.hidden for node in tree.checkpoints].count("unreadable") == 1


def test_nothing_that_is_stored_is_run(face: Face, database: Data, saver: MongoDBSaver) -> None:
    """A pickle could do anything."""
    Chain(face).put({"docs": LARGE})
    code = b"cbuiltins\nexit\n(I3\ntR."
    value = {"type": "pickle", "value": code + b"." * (LARGE_SIZE + 5 - len(code))}
    database["checkpoint_channel_values"].update_many({}, {"$set": value})
    assert {one.kind for one in operate.verify(saver)} <= {"value-size"}
    assert operate.show(saver, "t") is not None


def test_show_has_values_only_if_asked(face: Face, database: Data, saver: MongoDBSaver) -> None:
    OldThread(database)
    tree = operate.show(saver, "t", values=True)
    assert tree is not None
    valued = [node for node in tree.checkpoints if node.values is not None]
    assert {node.checkpoint_ns for node in valued} == {"", "sub:1"}
    assert {node.checkpoint_ns: node.questions for node in valued}["sub:1"] == [[{"ask": "what?"}]]
    with pytest.raises(ValueError, match="thread_id"):
        operate.show(saver, {"$ne": ""})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- prune


def many(face: Face, name: str, count: int = 6) -> Chain:
    chain = Chain(face, name)
    for turn in range(count):
        config = chain.put({"docs": f"{turn}" * 3 * LARGE_SIZE, "n": turn})
        face.put_writes(config, [("n", turn)], "task")
    return chain


def ids(database: Data, name: str) -> list[str]:
    return sorted(database["checkpoints"].distinct("checkpoint_id", {"thread_id": name}))


def test_prune_says_first_what_goes_and_removes_just_that(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    fill(face, "full")
    for name in ("a", "b"):
        many(face, name)
    # Without those that keep ancestors for delta channels: a mark on each has bytes, too.
    names = ["full", "a", "b"]
    before = sum(sizes(database, name) for name in names)
    planned = operate.prune(saver, names, keep_last=2, dry_run=True)
    assert sum(sizes(database, name) for name in names) == before
    done = operate.prune(saver, names, keep_last=2)
    assert dataclasses.replace(planned, dry_run=False) == done
    assert planned.bytes == before - sum(sizes(database, name) for name in names)
    assert len(ids(database, "a")) == 2
    assert operate.prune(saver, names, keep_last=2) == operate.Pruned()
    operate.prune(saver, keep_last=2)
    assert [*operate.verify(saver)] == []


def test_prune_keeps_what_is_young_and_the_newest(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    for name in ("a", "b", "c"):
        many(face, name)
    for place, one in enumerate(ids(database, "a")):
        at_days_ago(database, {"thread_id": "a", "checkpoint_id": one}, 10 - place)
    at_days_ago(database, {"thread_id": "b"}, 50)
    kept = ids(database, "a")[3:]
    operate.prune(saver, ["a", "b"], older_than=timedelta(days=7.5))
    assert ids(database, "a") == kept
    assert len(ids(database, "b")) == 1
    assert len(ids(database, "c")) == 6


def test_idle_threads_go_whole_and_others_stay(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    for name in ("idle", "asked", "used"):
        many(face, name)
    at_days_ago(database, {"thread_id": {"$in": ["idle", "asked"]}}, 50)
    answered = thread("asked", checkpoint_id=ids(database, "asked")[-1])
    face.put_writes(answered, [("__resume__", "yes")], "task")
    planned = operate.prune(saver, idle=timedelta(days=30), dry_run=True)
    assert (planned.threads, planned.deleted_threads, planned.checkpoints) == (1, 1, 6)
    assert planned.bytes == sizes(database, "idle")
    operate.prune(saver, idle=timedelta(days=30))
    assert sizes(database, "idle") == 0
    assert (len(ids(database, "asked")), len(ids(database, "used"))) == (6, 6)


def test_prune_takes_what_crashes_left(face: Face, database: Data, saver: MongoDBSaver) -> None:
    many(face, "a", 1)
    key = {"thread_id": "a", "checkpoint_ns": "", "channel": "docs", "version": "unnamed"}
    database["checkpoint_channel_values"].insert_one({**key, "type": "null", "value": b""})
    grow_old(database, "checkpoint_channel_values", key)
    assert [one.kind for one in operate.verify(saver)] == ["value-unnamed"]
    operate.prune(saver, keep_last=5)
    assert [*operate.verify(saver)] == []


def test_a_thread_that_cannot_be_pruned_does_not_hold_up_the_others(
    face: Face, database: Data, saver: MongoDBSaver, tool: Tool
) -> None:
    for name in "abc":
        many(face, name)
    newest = {"thread_id": "b", "checkpoint_id": ids(database, "b")[-1]}
    database["checkpoints"].update_one(newest, {"$set": {"layout": 3}})
    found = tool.json("prune", "--keep-last", "1", "--yes", status=1)
    assert [thread_id for thread_id, _ in found["failures"]] == ["b"]
    assert "Not 'b': " in tool("prune", "--keep-last", "1", "--yes", status=1)
    assert [len(ids(database, name)) for name in "abc"] == [1, 6, 1]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"keep_last": 0}, {"older_than": timedelta(-1)}, {"idle": timedelta(-1)}],
    ids=str,
)
def test_prune_refuses_what_says_nothing(saver: MongoDBSaver, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keep_last|older_than|idle"):
        operate.prune(saver, **wrong)


# ---------------------------------------------------------------------- migrate, indexes


def test_migrate_moves_all_old_threads_and_tells_which_it_could_not(
    face: Face, database: Data, saver: MongoDBSaver
) -> None:
    fill(face)
    for name in ("one", "two"):
        OldThread(database, name)
    broken: Any = checkpoint({"n": 1}, {"n": 1.5})
    insert_whole(database, thread("odd"), broken, {"source": "loop", "step": 0})
    before = {name: rows(face, name) for name in ("one", "two")}
    planned = operate.migrate(saver, dry_run=True)
    assert (planned.threads, planned.checkpoints) == (3, 21)
    assert layouts(database, "one") == {None}
    seen = 0

    def progress(count: int) -> None:
        nonlocal seen
        seen += count

    done = operate.migrate(saver, progress=progress)
    assert (done.threads, done.checkpoints, done.failed) == (3, 20, 1)
    assert done.failures[0][0] == "odd"
    assert seen == len(database["checkpoints"].distinct("thread_id"))
    for name in ("one", "two"):
        assert rows(face, name) == before[name]
        assert layouts(database, name) == {2}
    assert operate.migrate(saver, ["one"]).threads == 0


def test_indexes_tells_what_is_missing_and_how_to_make_it(
    database: Data, saver: MongoDBSaver
) -> None:
    missing = operate.indexes(saver)
    assert {one.state for one in missing} == {"missing"}
    saver.setup()
    made = operate.indexes(saver)
    assert {one.state for one in made} == {"present"}
    assert len(made) == sum(map(len, INDEXES.values()))
    assert [one.command for one in made] == [""] * len(made)
    assert all("createIndex" in one.command for one in missing)
    database["checkpoint_writes"].create_index("mine")
    (other,) = [one for one in operate.indexes(saver) if one.state == "other"]
    assert (other.name, other.needed_for) == ("mine_1", "")
    saver.ttl = 60
    expiry = [one for one in operate.indexes(saver) if one.needed_for == "expiry"]
    assert [one.state for one in expiry] == ["missing"] * 3
    assert all('"expireAfterSeconds": 60' in one.command for one in expiry)


# ---------------------------------------------------------------------- the command


class Tool:
    """The command on a test's database."""

    def __init__(self, uri: str, database: str) -> None:
        self._options = ["--uri", uri, "--db", database]

    def __call__(self, *arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, [*self._options, *arguments])
        assert result.exit_code == status, (result.output, result.exception)
        return result.output

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status))


@pytest.fixture
def tool(mongodb_uri: str, database: Data) -> Tool:
    return Tool(mongodb_uri, database.name)


def test_every_command_speaks_to_people_and_in_json(
    face: Face, database: Data, tool: Tool, tmp_path: Path
) -> None:
    fill(face)
    OldThread(database, "old [thread]")
    assert "old [thread]" in tool("stats")
    assert tool.json("stats")["threads"] == len(database["checkpoints"].distinct("thread_id"))
    assert tool.json("stats", "--quick")["threads"] == 0
    shown = tool("show", "old [thread]")
    assert "interrupts" in shown
    assert "what?" not in shown
    assert "what?" in tool("show", "old [thread]", "--values")
    assert len(tool.json("show", "old [thread]")["checkpoints"]) == 10
    plot, picture = tmp_path / "plot.svg", tmp_path / "picture.svg"
    tool("show", "t", "--plot", str(plot), "--picture", str(picture))
    assert "<polyline" in plot.read_text()
    assert "graph" in picture.read_text()
    assert "0 findings" in tool("verify")
    assert json.loads(tool("verify", "--json"))["findings"] == 0
    assert "present" in tool("indexes")
    assert {one["state"] for one in tool.json("indexes")} == {"present"}
    assert "Would migrate 10 checkpoints of 1 threads" in tool("migrate", "--dry-run")
    assert tool.json("migrate", "--yes")["checkpoints"] == 10
    assert "Would remove" in tool("prune", "--keep-last", "1", "--dry-run")
    assert tool.json("prune", "--keep-last", "1", "--idle", "2w", "--yes")["deleted_threads"] == 0
    assert tool.json("verify")["findings"] == 0


def test_verify_ends_with_status_1_and_says_what_to_do(
    face: Face, database: Data, tool: Tool
) -> None:
    fill(face)
    remove(database, "checkpoint_channel_values", {"channel": "big"})
    told = tool("verify", status=1)
    assert "value-missing: thread_id='t'" in told
    assert "Restore the document" in told
    *found, counts = map(json.loads, tool("verify", "t", "--json", status=1).splitlines())
    assert counts["findings"] == len(found) > 0
    assert {one["kind"] for one in found} == {"value-missing"}


def test_verify_goes_on_where_it_stopped(
    face: Face, database: Data, tool: Tool, tmp_path: Path
) -> None:
    for name in "abc":
        Chain(face, name).put({"docs": LARGE})
        remove(database, "checkpoint_channel_values", {"thread_id": name})
    place = tmp_path / "place.json"
    place.write_text(json.dumps({"after": "b", "findings": 2}))
    (*found, counts) = map(
        json.loads, tool("verify", "--resume", str(place), "--json", status=1).splitlines()
    )
    assert [one["thread_id"] for one in found] == ["c"]
    assert (counts["threads"], counts["findings"]) == (1, 3)
    assert not place.exists()


def test_nothing_is_removed_unless_somebody_agrees(face: Face, database: Data, tool: Tool) -> None:
    many(face, "a")
    assert "say --dry-run, or --yes" in tool("prune", "--keep-last", "1", status=2)
    assert len(ids(database, "a")) == 6


def test_what_goes_wrong_is_a_message_and_status_2(tool: Tool) -> None:
    assert "There is no thread 'none'" in tool("show", "none", status=2)
    assert "expected a number and s, m, h, d or w" in tool(
        "prune", "--idle", "soon", "--yes", status=2
    )
    nowhere = Tool("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50", "x")
    assert "ServerSelectionTimeoutError" in nowhere("stats", status=2)
    result = CliRunner().invoke(app, ["--serde", "json", "stats"])
    assert result.exit_code == 2
    assert "expected module:name" in result.output


def test_names_and_serializer_are_those_of_the_savers(
    make_face: Any, mongodb_uri: str, database: Data
) -> None:
    face = make_face(checkpoint_collection_name="mine", writes_collection_name="mine_writes")
    many(face, "a")
    tool = Tool(mongodb_uri, database.name)
    names = ("--checkpoints", "mine", "--writes", "mine_writes")
    serde = ("--serde", "langgraph.checkpoint.serde.jsonplus:JsonPlusSerializer")
    found = tool.json(*names, *serde, "stats")
    assert [one["documents"] for one in found["collections"]] == [6, 6, 6]
    assert found["collections"][2]["name"] == "mine_channel_values"


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "langgraph.checkpoint.mongodb", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("stats", "show", "verify", "prune", "migrate", "indexes"):
        assert name in told


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['rich'] = None; sys.argv = ['tool', 'stats'];"
        "from langgraph.checkpoint.mongodb.__main__ import main; main()"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert 'pip install "langgraph-checkpoint-mongodb[cli]"' in told.stderr
    assert "Traceback" not in told.stderr


def test_the_functions_need_no_extra() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['typer'] = None;"
        "from langgraph.checkpoint.mongodb import operate; operate.stats"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_queries_on_threads_are_answered_by_an_index(
    face: Face, database: Data, saver: MongoDBSaver, mongod: None
) -> None:
    many(face, "a")
    query = {"thread_id": {"$gt": "a"}}
    fields = {"_id": 0, "thread_id": 1}
    for name in COLLECTIONS:
        plan = database[name].find(query, fields).sort("thread_id", 1).limit(1).explain()
        assert plan["executionStats"]["totalDocsExamined"] == 0
    for name, indexes in zip(COLLECTIONS, INDEXES.values(), strict=True):
        pipeline = [{"$sort": dict(indexes[0].keys)}, {"$project": {"thread_id": 1}}]
        explained = database.command(
            "explain",
            {"aggregate": name, "pipeline": pipeline, "cursor": {}},
            verbosity="queryPlanner",
        )
        assert "'SORT'" not in str(explained)
