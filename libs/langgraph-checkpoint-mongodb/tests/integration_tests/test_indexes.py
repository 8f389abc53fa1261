"""The indexes: made once, found whatever their names, and used by every query."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pymongo.database import Database
from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES
from tests.face import Face, MakeFace
from tests.integration_tests.conftest import FailCommand
from tests.support import LARGE_SIZE, Chain, Command, CommandCounter, thread, values_of

Data = Database[dict[str, Any]]

LARGE = b"v" * LARGE_SIZE
UNIQUE = {
    "checkpoints": {"thread_id": 1, "checkpoint_ns": 1, "checkpoint_id": -1},
    "checkpoint_writes": {
        "thread_id": 1,
        "checkpoint_ns": 1,
        "checkpoint_id": -1,
        "task_id": 1,
        "idx": 1,
    },
    "checkpoint_channel_values": {
        "thread_id": 1,
        "checkpoint_ns": 1,
        "channel": 1,
        "version": 1,
        "part": 1,
    },
}


def indexes(database: Data) -> dict[str, dict[str, Mapping[str, Any]]]:
    return {
        name: {index["name"]: index for index in database[name].list_indexes()}
        for name in database.list_collection_names()
    }


def unique_keys(database: Data) -> dict[str, list[dict[str, int]]]:
    return {
        name: [dict(one["key"]) for one in found.values() if one.get("unique")]
        for name, found in indexes(database).items()
    }


# ---------------------------------------------------------------------- what there is


def test_every_key_is_unique(face: Face, database: Data) -> None:
    face.setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


def test_every_index_but_the_one_of_runs_and_lists_begins_with_the_thread(
    face: Face, database: Data
) -> None:
    face.setup()
    first = {
        next(iter(index["key"]))
        for found in indexes(database).values()
        for name, index in found.items()
        if name != "_id_"
    }
    assert first == {"thread_id", "checkpoint_id", "run_id", "metadata.run_id"}
    for keys in UNIQUE.values():
        assert next(iter(keys)) == "thread_id"


def test_setup_again_changes_nothing(make_face: MakeFace, database: Data) -> None:
    face = make_face()
    face.setup()
    before = indexes(database)
    face.setup()
    make_face().setup()
    assert indexes(database) == before


def test_no_indexes_are_made_when_told_not_to_unless_by_setup(
    make_face: MakeFace, database: Data
) -> None:
    face = make_face(create_indexes=False)
    config = Chain(face).put({"a": LARGE})
    assert values_of(face, config) == {"a": LARGE}
    assert all([*found] == ["_id_"] for found in indexes(database).values())
    face.setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


def test_the_first_use_of_the_async_saver_makes_them(make_face: MakeFace, database: Data) -> None:
    face = make_face()
    if face.kind == "async":
        assert database.list_collection_names() == []
    face.get_tuple(thread())
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


def test_equal_indexes_under_other_names_serve(make_face: MakeFace, database: Data) -> None:
    for number, (name, keys) in enumerate(UNIQUE.items()):
        database[name].create_index([*keys.items()], unique=True, name=f"mine_{number}")
    database["checkpoints"].create_index([("created_at", 1)], expireAfterSeconds=60, name="ttl")
    face = make_face(ttl=3600)
    face.setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}
    assert indexes(database)["checkpoints"]["ttl"]["expireAfterSeconds"] == 3600


def test_indexes_of_others_stay(make_face: MakeFace, database: Data) -> None:
    database["checkpoints"].create_index([("tenant", 1)], name="theirs")
    make_face().setup()
    assert "theirs" in indexes(database)["checkpoints"]


def test_a_partial_index_does_not_serve(make_face: MakeFace, database: Data) -> None:
    keys = [*UNIQUE["checkpoint_writes"].items()]
    partial = {"channel": {"$exists": True}}
    database["checkpoint_writes"].create_index(
        keys, unique=True, name="partial", partialFilterExpression=partial
    )
    make_face().setup()
    whole = [
        one
        for one in indexes(database)["checkpoint_writes"].values()
        if one.get("unique") and "partialFilterExpression" not in one
    ]
    assert [dict(one["key"]) for one in whole] == [UNIQUE["checkpoint_writes"]]


def test_the_unique_index_is_made_beside_the_javascript_savers(
    make_face: MakeFace, database: Data, mongod: None
) -> None:
    javascript_indexes(database)
    make_face().setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


def javascript_indexes(database: Data) -> None:
    """Make the indexes of the JavaScript saver, which are not unique."""
    keys = [("thread_id", 1), ("checkpoint_ns", 1), ("checkpoint_id", -1)]
    database["checkpoints"].create_index(keys, name="thread_ns_checkpoint_idx")
    keys = [*keys[:2], ("checkpoint_id", 1), ("task_id", 1), ("idx", 1)]
    database["checkpoint_writes"].create_index(keys, name="thread_ns_checkpoint_task_idx")


def test_where_the_server_takes_no_second_index_on_the_same_keys_it_says_how_to_repair(
    make_face: MakeFace,
    database: Data,
    fail_command: FailCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    javascript_indexes(database)
    Chain(make_face(create_indexes=False)).put({"a": LARGE})
    keys = [*UNIQUE["checkpoint_channel_values"].items()]
    database["checkpoint_channel_values"].create_index(keys, unique=True, name="values")
    keys = [*UNIQUE["checkpoint_writes"].items()]
    database["checkpoint_writes"].create_index(keys, unique=True, name="writes")
    failing = fail_command(["createIndexes"], app_name="conflict", errorCode=85)
    with failing, caplog.at_level(logging.WARNING):
        face = make_face(client_kwargs={"appname": "conflict"})
        face.setup()
        assert values_of(face, thread()) == {"a": LARGE}
    (message,) = {one for one in caplog.messages if "has no unique index" in one}
    assert "'thread_ns_checkpoint_idx'" in message
    assert "drop that index" in message


# ---------------------------------------------------------------------- who makes them


def construct(uri: str, db_name: str, start: Any) -> None:
    start.wait()
    with MongoDBSaver.from_conn_string(uri, db_name, ttl=3600):
        pass


def test_two_processes_may_make_them_at_once(mongodb_uri: str, database: Data) -> None:
    for name in UNIQUE:
        # Some servers do not survive it when two clients make one collection at once.
        database.create_collection(name)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    processes = [
        context.Process(target=construct, args=(mongodb_uri, database.name, start))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


def test_a_server_that_builds_one_at_a_time_is_asked_for_one_at_a_time(
    make_face: MakeFace, database: Data, fail_command: FailCommand
) -> None:
    # The first command asks for several at once, and is refused as such servers do.
    failing = fail_command(
        ["createIndexes"], app_name="one at a time", mode={"times": 1}, errorCode=67
    )
    with failing:
        make_face(client_kwargs={"appname": "one at a time"}).setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}
    assert len(indexes(database)["checkpoints"]) == 1 + len(INDEXES["checkpoints"])


def test_a_refused_unique_index_says_what_to_do(
    make_face: MakeFace, database: Data, fail_command: FailCommand
) -> None:
    with fail_command(["createIndexes"], app_name="refused", errorCode=13):
        with pytest.raises(OperationFailure) as caught:
            make_face(client_kwargs={"appname": "refused"}).setup()
    assert caught.value.code == 13
    (note,) = caught.value.__notes__
    assert f"{database.name}.checkpoints needs a unique index" in note
    assert "create_indexes=False" in note


def test_duplicates_are_named_as_what_is_in_the_way(make_face: MakeFace, database: Data) -> None:
    key = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c"}
    database["checkpoints"].insert_many([{**key}, {**key}])
    with pytest.raises(OperationFailure) as caught:
        make_face().setup()
    assert "if documents share a key, remove the duplicates" in caught.value.__notes__[0]


def test_a_refused_index_that_only_speeds_up_is_a_warning(
    make_face: MakeFace,
    database: Data,
    fail_command: FailCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number, (name, keys) in enumerate(UNIQUE.items()):
        database[name].create_index([*keys.items()], unique=True, name=f"mine_{number}")
    failing = fail_command(["createIndexes"], app_name="slow", errorCode=13)
    with failing, caplog.at_level(logging.WARNING):
        face = make_face(client_kwargs={"appname": "slow"})
        face.setup()
        Chain(face).put({"a": LARGE})
    (*messages,) = {one.split(" (")[0] for one in caplog.messages if "use it scan" in one}
    assert len(messages) == sum(not index.unique for index in INDEXES["checkpoints"])


def test_setup_is_tried_again_after_a_failure(
    make_face: MakeFace, database: Data, fail_command: FailCommand, face_kind: str
) -> None:
    with fail_command(["createIndexes"], app_name="again", errorCode=13):
        with pytest.raises(OperationFailure):
            make_face(client_kwargs={"appname": "again"}).setup()
    make_face(client_kwargs={"appname": "again"}).setup()
    assert unique_keys(database) == {name: [keys] for name, keys in UNIQUE.items()}


# ---------------------------------------------------------------------- what uses them

EXPLAINED = {"find", "aggregate", "update", "delete"}
SCANS_OF_AN_INDEX = {"IXSCAN", "EOF", "IDHACK", "EXPRESS_IXSCAN"}
# Not a part of the command, or not for `explain`.
ENVELOPE = {"lsid", "txnNumber", "$clusterTime", "$db", "ordered", "$readPreference"}


@pytest.fixture
def used(make_face: MakeFace, counter: CommandCounter, database: Data, mongod: None) -> Face:
    """A saver on a database with enough in it for the server to have a choice."""
    face = make_face(client_kwargs={"event_listeners": [counter]}, ttl=3600)
    for thread_id in ("t", "u"):
        for checkpoint_ns in ("", "sub:1"):
            chain = Chain(face, thread_id, checkpoint_ns)
            for number in range(3):
                config = chain.put(
                    {f"c{number}": LARGE, "d": LARGE * number}, metadata={"run_id": f"r{number}"}
                )
                face.put_writes(config, [("a", 1)], "task")
    for name in UNIQUE:
        documents = [*database[name].find({}, {"_id": 0})]
        database[name].insert_many(
            {**one, "thread_id": f"other {number}"} for number in range(12) for one in documents
        )
    return face


def uses(face: Face) -> dict[str, Callable[[], Any]]:
    """The ways to call the saver, those that delete last."""
    rows = face.list(thread())
    first, last = rows[-1].config, rows[0].config
    everywhere: Any = {"configurable": {"checkpoint_id": last["configurable"]["checkpoint_id"]}}
    whole: Any = {"configurable": {"thread_id": "t"}}
    return {
        "get_tuple, newest": lambda: face.get_tuple(thread()),
        "get_tuple, newest of a namespace": lambda: face.get_tuple(thread("t", "sub:1")),
        "get_tuple, by id": lambda: face.get_tuple(first),
        "list, a thread": lambda: face.list(whole),
        "list, a namespace": lambda: face.list(thread()),
        "list, before": lambda: face.list(whole, before=last),
        "list, filtered": lambda: face.list(whole, filter={"source": "loop", "step": 1}),
        "list, by id": lambda: face.list(first),
        "list, all threads": lambda: face.list(None),
        "list, all threads filtered": lambda: face.list(None, filter={"source": "loop"}),
        "list, an id in all threads": lambda: face.list(everywhere),
        "history": lambda: face.get_delta_channel_history(config=last, channels=["d"]),
        "put_writes": lambda: face.put_writes(last, [("a", 1)], "new"),
        "put_writes, special": lambda: face.put_writes(last, [("__error__", 1)], "new"),
        "put": lambda: Chain(face, config=last).put({"d": LARGE}),
        "put, of a parent not remembered": lambda: Chain(face, config=first).put({"d": LARGE}),
        "put, first": lambda: Chain(face, "new").put({"d": LARGE}),
        "delete_for_runs": lambda: face.delete_for_runs(["r0"]),
        "prune": lambda: face.prune(["t"]),
        "copy_thread": lambda: face.copy_thread("t", "copy"),
        "delete_thread": lambda: face.delete_thread("t"),
    }


def explainable(commands: list[Command]) -> Iterator[dict[str, Any]]:
    """The commands as `explain` takes them, one update or delete at a time."""
    for command in commands:
        if command.name not in EXPLAINED:
            continue
        kept = {name: value for name, value in command.document.items() if name not in ENVELOPE}
        many = {"update": "updates", "delete": "deletes"}.get(command.name)
        for part in kept.pop(many) if many else [None]:
            yield {**kept, **({many: [part]} if many else {})}


def stages(plan: Any) -> Iterator[Mapping[str, Any]]:
    """All stages of winning plans, wherever they are nested."""
    if isinstance(plan, Mapping):
        if "stage" in plan:
            yield plan
        for name, value in plan.items():
            if name != "rejectedPlans":
                yield from stages(value)
    elif isinstance(plan, list):
        for one in plan:
            yield from stages(one)


def test_every_query_scans_an_index_and_sorts_nothing(
    used: Face, counter: CommandCounter, database: Data
) -> None:
    for how, call in uses(used).items():
        with counter.recording():
            call()
        assert counter.commands, how
        for command in explainable(counter.commands):
            explained = database.command("explain", command, verbosity="queryPlanner")
            names = {one["stage"] for one in stages(explained)}
            assert names & SCANS_OF_AN_INDEX, (how, command)
            assert not names & {"COLLSCAN", "SORT"}, (how, command)


def test_a_listing_of_a_thread_examines_only_what_it_returns(
    used: Face, counter: CommandCounter, database: Data
) -> None:
    with counter.recording():
        rows = used.list({"configurable": {"thread_id": "t"}}, limit=3)
    finds = [one for one in explainable(counter.commands) if "find" in one]
    assert len(rows) == 3
    for command in finds:
        ran = database.command("explain", command, verbosity="executionStats")["executionStats"]
        assert ran["totalDocsExamined"] == ran["nReturned"], command
