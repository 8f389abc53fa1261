"""operate.verify: every kind of damage is found, and nothing where all is sound."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Send
from pymongo import MongoClient
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver, operate
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb.operate import _findings as findings
from tests.face import Face, MakeFace
from tests.integration_tests.test_migration import OldThread
from tests.integration_tests.test_suspended import grow_old
from tests.support import Chain, CommandCounter

Data = Database[dict[str, Any]]
Damage = Callable[[Data], object]
LARGE = "v" * 2 * INLINE_VALUE_BYTES
SMALL = {f"small {n}": f"{n:03}" * 300 for n in range(120)}
COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")

needs_delta_channels = pytest.mark.skipif(
    not hasattr(BaseCheckpointSaver, "get_delta_channel_history"),
    reason="this langgraph-checkpoint has no delta channels: install langgraph-checkpoint>=4.1",
)


def fill(face: Face, name: str = "t") -> None:
    """A thread of everything: lists in pieces, a bundle, parts, a subgraph, delta channels."""
    chain = Chain(face, name)
    given = {"docs": "d" * 1_200_000, "more": "m" * 600_000, "few": 1}
    config = chain.put({"__start__": given}, metadata={"source": "input", "run_id": f"run {name}"})
    face.put_writes(config, [*given.items()], "input")
    chain.put({**given, **SMALL, "big": LARGE, "list": ["first " * 900]}, drop=["__start__"])
    for turn in range(6):
        config = chain.put({"list": [*chain.values["list"], f"{turn} " * 2000], "few": turn})
        face.put_writes(config, [("list", "x"), ("few", turn)], "task", "~1")
    sends = [Send("node", "s" * 300_000) for _ in range(4)]
    chain.put({"__pregel_tasks": sends, "small 3": "changed"})
    config = chain.put({"n": 1}, drop=["__pregel_tasks"])
    face.put_writes(config, [("__interrupt__", [{"ask": 1}])], "asking", "~2")
    inner = Chain(face, name, "sub:1")
    parents = {"": config["configurable"]["checkpoint_id"]}
    inner.put({"inner": LARGE}, metadata={"parents": parents})
    inner.put({"n": 2}, metadata={"parents": parents})
    if hasattr(BaseCheckpointSaver, "get_delta_channel_history"):
        deltas(face, f"{name} delta")


def deltas(face: Face, name: str) -> None:
    chain = Chain(face, name)
    for number in range(5):
        if number == 0:
            config = chain.put({"log": DeltaSnapshot([LARGE])})
            del chain.values["log"]
        else:
            metadata = {COUNTERS: {"log": (number, number)}}
            config = chain.put({"n": number}, touch=["log"], metadata=metadata)
        face.put_writes(config, [("log", number)], "task")


def verify(database: Data, *threads: str, **kwargs: Any) -> list[operate.Finding]:
    """What is wrong, and that looking changed nothing."""
    saver = MongoDBSaver(database.client, database.name, create_indexes=False, **kwargs)
    before = {name: [*database[name].find({}).sort("_id", 1)] for name in COLLECTIONS}
    found = [*operate.verify(saver, threads or None)]
    assert {name: [*database[name].find({}).sort("_id", 1)] for name in COLLECTIONS} == before
    return found


def old_id() -> ObjectId:
    return ObjectId.from_datetime(datetime.now(UTC) - timedelta(hours=3))


# ---------------------------------------------------------------------- sound


def test_nothing_is_found_where_all_is_sound(face: Face, database: Data) -> None:
    fill(face)
    for turn in range(3):
        face.copy_thread("t", f"copy {turn}")
    OldThread(database, "old")
    OldThread(database, "moved")
    OldThread(database, "half")
    face.migrate_thread("moved")
    for name in COLLECTIONS:
        grow_old(database, name, {})
    face.prune(["copy 1"])
    face.prune(["copy 2"], keep_last=3)
    assert verify(database) == []


def test_nothing_is_found_with_a_ttl(make_face: MakeFace, database: Data) -> None:
    face = make_face(ttl=3600)
    fill(face)
    OldThread(database, "moved")
    face.migrate_thread("moved")
    assert verify(database) == []
    assert verify(database, ttl=3600) == []


def test_nothing_is_found_where_values_are_encrypted(make_face: MakeFace, database: Data) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    fill(make_face(serde=serde))
    assert verify(database, serde=serde) == []


@needs_delta_channels
def test_nothing_is_found_where_ancestors_are_kept_for_delta_channels(
    face: Face, database: Data
) -> None:
    deltas(face, "t")
    face.prune(["t"])
    assert database["checkpoints"].count_documents({"retained": True})
    assert verify(database) == []


def test_an_empty_database_lacks_its_indexes_alone(database: Data) -> None:
    assert {one.kind for one in verify(database)} == {"index-missing"}


def test_a_graph_that_runs_beside_is_no_damage(face: Face, database: Data) -> None:
    """Each look reads values first, and then finds checkpoints that name others."""
    fill(face)
    chain = Chain(face, "t", "beside")
    saver = MongoDBSaver(database.client, database.name, create_indexes=False)
    collection, puts = saver.checkpoint_collection, 0

    class Beside:
        def __getattr__(self, name: str) -> Any:
            return getattr(collection, name)

        def with_options(self, **options: Any) -> Any:
            return Beside()

        def find(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal puts
            puts += 1
            chain.put({"big": LARGE + str(puts), "list": [LARGE] * (puts + 1)})
            return collection.find(*args, **kwargs)

    saver.checkpoint_collection = Beside()  # type: ignore[assignment]
    assert [*operate.verify(saver)] == []
    assert puts


# ---------------------------------------------------------------------- damage


def one(database: Data, name: str, query: dict[str, Any]) -> dict[str, Any]:
    found = database[name].find_one(query, sort=[("_id", 1)])
    assert found is not None, query
    return found


def change(database: Data, name: str, query: dict[str, Any], update: dict[str, Any]) -> None:
    assert (
        database[name].update_one({"_id": one(database, name, query)["_id"]}, update).matched_count
    )


def remove(database: Data, name: str, query: dict[str, Any]) -> None:
    database[name].delete_one({"_id": one(database, name, query)["_id"]})


def cut(database: Data, name: str, query: dict[str, Any], field: str = "value") -> None:
    document = one(database, name, query)
    change(database, name, query, {"$set": {field: document[field][: len(document[field]) // 2]}})


def flip(database: Data, name: str, query: dict[str, Any]) -> None:
    """Other bytes of the same length."""
    document = one(database, name, query)
    data = bytearray(document["value"])
    data[len(data) // 2] ^= 1
    change(database, name, query, {"$set": {"value": bytes(data)}})


VALUES, CHECKPOINTS, WRITES = COLLECTIONS[2], COLLECTIONS[0], COLLECTIONS[1]
PIECE = {"channel": "list", "part": {"$gt": 0}}
ROOT = {"thread_id": "t", "checkpoint_ns": ""}
NEWEST = {"channels.channel": "list", "checkpoint_ns": ""}


def named_by_other(database: Data) -> None:
    other = one(database, CHECKPOINTS, {"thread_id": "other", **NEWEST})
    query = {"thread_id": "t", **NEWEST, "checkpoint_id": {"$ne": other["checkpoint_id"]}}
    change(database, CHECKPOINTS, query, {"$set": {"channels": other["channels"]}})


def entry_set(name: str, value: Any, channel: str = "big") -> Damage:
    def damage(database: Data) -> None:
        document = one(database, CHECKPOINTS, {"channels.channel": channel})
        for entry in document["channels"]:
            if entry["channel"] == channel:
                entry[name] = value
        change(
            database,
            CHECKPOINTS,
            {"_id": document["_id"]},
            {"$set": {"channels": document["channels"]}},
        )

    return damage


def twice(name: str, index: str) -> Damage:
    def damage(database: Data) -> None:
        database[name].drop_index(index)
        document = one(database, name, {})
        database[name].insert_one({**document, "_id": ObjectId()})

    return damage


def entry_twice(database: Data) -> None:
    document = one(database, CHECKPOINTS, {"channels.channel": "big"})
    entries = [*document["channels"], document["channels"][0]]
    change(database, CHECKPOINTS, {"_id": document["_id"]}, {"$set": {"channels": entries}})


def ancestors_gone(database: Data) -> None:
    """Something else deleted old checkpoints of a thread with a delta channel."""
    ids = sorted(database[CHECKPOINTS].distinct("checkpoint_id", {"thread_id": "t delta"}))
    database[CHECKPOINTS].delete_many({"thread_id": "t delta", "checkpoint_id": {"$lt": ids[2]}})
    database[WRITES].delete_many({"thread_id": "t delta", "checkpoint_id": {"$lt": ids[2]}})


def loop(database: Data) -> None:
    document = one(database, CHECKPOINTS, {"parent_checkpoint_id": {"$ne": None}})
    query = {"thread_id": document["thread_id"], "checkpoint_id": document["parent_checkpoint_id"]}
    change(
        database,
        CHECKPOINTS,
        query,
        {"$set": {"parent_checkpoint_id": document["checkpoint_id"]}},
    )


def other_index(database: Data) -> None:
    name = "thread_id_1_checkpoint_ns_1_channel_1_version_1_part_1"
    keys = [(key, 1) for key in ("thread_id", "checkpoint_ns", "channel", "version", "part")]
    database[VALUES].drop_index(name)
    database[VALUES].create_index(keys)


def unneeded(database: Data) -> None:
    change(
        database, CHECKPOINTS, {"thread_id": "t", "checkpoint_ns": ""}, {"$set": {"retained": True}}
    )


def expires(database: Data) -> None:
    change(database, VALUES, {"channel": "big"}, {"$set": {"created_at": datetime.now(UTC)}})


def copying(database: Data) -> None:
    key = {"thread_id": "t", "checkpoint_ns": "", "channel": "__copy__", "version": ""}
    marker = {"claim": old_id(), "source": "x", "type": "null", "value": b""}
    database[VALUES].insert_one({**key, **marker})


def orphan_value(database: Data) -> None:
    key = {"thread_id": "gone", "checkpoint_ns": "", "channel": "x", "version": "1"}
    database[VALUES].insert_one({"_id": old_id(), **key, "type": "msgpack", "value": b"\x01"})


def orphan_write(database: Data) -> None:
    key = {"thread_id": "gone", "checkpoint_ns": "", "checkpoint_id": "1", "task_id": "a", "idx": 0}
    rest = {"task_path": "", "channel": "x", "type": "msgpack", "value": b"\x01"}
    database[WRITES].insert_one({"_id": old_id(), **key, **rest})


def partial(database: Data) -> None:
    document = one(database, WRITES, {"count": 2})
    query = {"task_id": document["task_id"], "checkpoint_id": document["checkpoint_id"]}
    grow_old(database, WRITES, query)
    remove(database, WRITES, {**query, "idx": 1})


def put_old_bytes(database: Data) -> None:
    whole = one(database, CHECKPOINTS, {"layout": None})
    fields = {"type": whole["type"], "checkpoint": whole["checkpoint"]}
    change(database, CHECKPOINTS, {"layout": 2}, {"$set": fields})


def other_state(database: Data) -> None:
    first, second = database[CHECKPOINTS].find({"thread_id": "old"}).limit(2)
    change(
        database, CHECKPOINTS, {"_id": first["_id"]}, {"$set": {"checkpoint": second["checkpoint"]}}
    )


def old_unproven(database: Data) -> None:
    grow_old(database, CHECKPOINTS, {"thread_id": "t", "checkpoint_ns": ""})
    change(
        database, CHECKPOINTS, {"thread_id": "t", "checkpoint_ns": ""}, {"$set": {"unproven": True}}
    )


DAMAGES: dict[str, tuple[str, Damage]] = {
    "a value is gone": ("value-missing", lambda db: remove(db, VALUES, {"channel": "big"})),
    "a value is cut": ("value-size", lambda db: cut(db, VALUES, {"channel": "big"})),
    "a cut value cannot be read": ("value", lambda db: cut(db, VALUES, {"channel": "big"})),
    "a value has no type": (
        "value",
        lambda db: change(db, VALUES, {"channel": "big"}, {"$unset": {"type": ""}}),
    ),
    "a value has another type": (
        "value",
        lambda db: change(db, VALUES, {"channel": "big"}, {"$set": {"type": "unheard of"}}),
    ),
    "a value is no bytes": (
        "value",
        lambda db: change(db, VALUES, {"channel": "big"}, {"$set": {"value": "text"}}),
    ),
    "a value has moved to another version": (
        "value-missing",
        lambda db: change(db, VALUES, {"channel": "big"}, {"$set": {"version": "other"}}),
    ),
    "a piece is gone": ("piece-missing", lambda db: remove(db, VALUES, PIECE)),
    "a piece is cut": ("value", lambda db: cut(db, VALUES, PIECE)),
    "a piece's bytes changed": ("value", lambda db: flip(db, VALUES, PIECE)),
    "a piece is another one": (
        "piece-changed",
        lambda db: change(db, VALUES, PIECE, {"$set": {"type": "bytes", "value": b"other"}}),
    ),
    "the first document of a list is gone": (
        "piece-missing",
        lambda db: remove(db, VALUES, {"channel": "list", "part": None}),
    ),
    "the first document of a list changed": (
        "piece-changed",
        lambda db: flip(db, VALUES, {"channel": "list", "part": None}),
    ),
    "a manifest names more pieces": ("pieces", entry_set("pieces", bytes(8), "list")),
    "a part is gone": (
        "part-missing",
        lambda db: remove(db, VALUES, {"channel": "__start__", "part": 1}),
    ),
    "a part is cut": (
        "value-size",
        lambda db: cut(db, VALUES, {"channel": "__pregel_tasks", "part": 2}),
    ),
    "a manifest names fewer parts": ("parts", entry_set("parts", 2, "__pregel_tasks")),
    "the bundle is gone": (
        "piece-missing",
        lambda db: remove(db, VALUES, {"channel": "__bundle__"}),
    ),
    "the bundle is cut": ("bundle", lambda db: cut(db, VALUES, {"channel": "__bundle__"})),
    "a manifest is that of another thread": ("value-missing", named_by_other),
    "a manifest names another size": ("value-size", entry_set("size", 7)),
    "a manifest names another version": ("value-version", entry_set("channel_version", "9")),
    "a manifest's size is no number": ("manifest", entry_set("size", "7")),
    "a manifest's pieces are cut": ("manifest", entry_set("pieces", b"\0\0\0", "list")),
    "a manifest names a channel twice": ("manifest", entry_twice),
    "a manifest is gone": (
        "layout-mixed",
        lambda db: change(db, CHECKPOINTS, {"layout": 2}, {"$unset": {"channels": ""}}),
    ),
    "a layout is gone": (
        "layout-mixed",
        lambda db: change(db, CHECKPOINTS, {"layout": 2}, {"$unset": {"layout": ""}}),
    ),
    "a layout is of the future": (
        "layout-unknown",
        lambda db: change(db, CHECKPOINTS, {"layout": 2}, {"$set": {"layout": 3}}),
    ),
    "an older release put a checkpoint again": ("layout-mixed", put_old_bytes),
    "a state is cut": ("state", lambda db: cut(db, CHECKPOINTS, {"layout": 2}, "checkpoint")),
    "an old state is cut": (
        "state",
        lambda db: cut(db, CHECKPOINTS, {"layout": None}, "checkpoint"),
    ),
    "a state is that of another checkpoint": ("id", other_state),
    "metadata cannot be read": (
        "metadata",
        lambda db: change(db, CHECKPOINTS, {}, {"$set": {"metadata.step": ["unheard of", b""]}}),
    ),
    "metadata is gone": (
        "metadata",
        lambda db: change(db, CHECKPOINTS, {}, {"$unset": {"metadata": ""}}),
    ),
    "metadata is of before 0.2.2": (
        "metadata-old",
        lambda db: change(db, CHECKPOINTS, {}, {"$set": {"metadata": {"step": b"1"}}}),
    ),
    "a checkpoint's id is no text": (
        "key",
        lambda db: change(db, CHECKPOINTS, {}, {"$set": {"checkpoint_id": 7}}),
    ),
    "a checkpoint is its own ancestor": ("loop", loop),
    "a delta channel's history is gone": ("history-cut", ancestors_gone),
    "a removal's mark is left": (
        "doomed",
        lambda db: change(db, CHECKPOINTS, {}, {"$set": {"doomed": [old_id()]}}),
    ),
    "a sweep's mark is left": (
        "doomed",
        lambda db: change(db, VALUES, {}, {"$set": {"doomed": [old_id()]}}),
    ),
    "a put's mark is left": ("unproven", old_unproven),
    "a migration's mark is left": (
        "claimed",
        lambda db: change(db, CHECKPOINTS, {"layout": None}, {"$set": {"claimed": []}}),
    ),
    "a checkpoint is kept for nothing": ("retained", unneeded),
    "a copy was not finished": ("copy-unfinished", copying),
    "nothing names a value": ("value-unnamed", orphan_value),
    "a pending write has no checkpoint": ("write-unnamed", orphan_write),
    "a pending write is cut": ("write", lambda db: cut(db, WRITES, {"task_id": "asking"})),
    "a pending write's value is gone": (
        "write-missing",
        lambda db: change(
            db, WRITES, {"stored": {"$exists": True}}, {"$set": {"stored.version": "other"}}
        ),
    ),
    "only a part of a task's writes is there": ("write-partial", partial),
    "a checkpoint is there twice": (
        "duplicate-checkpoint",
        twice(CHECKPOINTS, "thread_id_1_checkpoint_ns_1_checkpoint_id_-1"),
    ),
    "a value is there twice": (
        "duplicate-value",
        twice(VALUES, "thread_id_1_checkpoint_ns_1_channel_1_version_1_part_1"),
    ),
    "a pending write is there twice": (
        "duplicate-write",
        twice(WRITES, "thread_id_1_checkpoint_ns_1_checkpoint_id_-1_task_id_1_idx_1"),
    ),
    "an index is missing": (
        "index-missing",
        lambda db: db[CHECKPOINTS].drop_index("checkpoint_id_-1_thread_id_1_checkpoint_ns_1"),
    ),
    "an index is not unique": ("index-not-unique", other_index),
    "documents of one collection alone expire": (
        "ttl",
        lambda db: db[CHECKPOINTS].create_index("created_at", expireAfterSeconds=9999),
    ),
    "a value expires before its checkpoint": ("stamp", expires),
}


@pytest.fixture(scope="module")
def filled(mongo_client: MongoClient[Any], mongodb_uri: str) -> Any:
    """A database with everything, once; each test damages a copy of its documents."""
    import contextlib

    database = mongo_client[f"test_{uuid.uuid4().hex[:16]}"]
    with contextlib.ExitStack() as closing:
        face = Face("sync", mongodb_uri, database.name, closing=closing)
        fill(face)
        fill(face, "other")
        OldThread(database, "old")
    yield database
    mongo_client.drop_database(database.name)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(filled: Data, database: Data, name: str) -> None:
    kind, damage = DAMAGES[name]
    if kind == "history-cut" and not filled[CHECKPOINTS].count_documents({"thread_id": "t delta"}):
        pytest.skip("no delta channels here: install langgraph-checkpoint>=4.1")
    MongoDBSaver(database.client, database.name)
    for collection in COLLECTIONS:
        database[collection].insert_many([*filled[collection].find({})])
    assert verify(database) == []
    damage(database)
    found = verify(database)
    assert kind in {finding.kind for finding in found}, found
    assert all(finding.remedy and finding.what for finding in found)


def test_at_least_thirty_kinds_of_damage_are_tried_and_every_finding_is_among_them() -> None:
    assert len(DAMAGES) >= 30
    assert {kind for kind, _ in DAMAGES.values()} == set(findings.REMEDIES)


# ---------------------------------------------------------------------- how it reads


def test_it_goes_on_after_the_thread_where_it_stopped(face: Face, database: Data) -> None:
    for name in "abcde":
        Chain(face, name).put({"big": LARGE})
        remove(database, VALUES, {"thread_id": name})
    saver = MongoDBSaver(database.client, database.name, create_indexes=False)
    assert [one.thread_id for one in operate.verify(saver)] == [*"abcde"]
    assert [one.thread_id for one in operate.verify(saver, after="c")] == [*"de"]
    assert [one.thread_id for one in operate.verify(saver, ["b", "none"])] == ["b"]
    with pytest.raises(ValueError, match="thread_id"):
        [*operate.verify(saver, [{"$ne": ""}])]  # type: ignore[list-item]


def test_a_value_that_many_checkpoints_name_is_read_once(
    face: Face, database: Data, mongodb_uri: str
) -> None:
    chain = Chain(face)
    chain.put({"big": LARGE})
    for turn in range(30):
        chain.put({"n": turn})
    counter = CommandCounter()
    with MongoClient[Any](mongodb_uri, event_listeners=[counter]) as client:
        saver = MongoDBSaver(client, database.name, create_indexes=False)
        with counter.recording():
            assert [*operate.verify(saver, ["t"])] == []
    assert len(counter.commands) <= 5


def test_no_object_is_made(face: Face, database: Data) -> None:
    """The classes of an application are not there where it is operated."""
    import ormsgpack

    odd = ormsgpack.packb(
        ormsgpack.Ext(5, ormsgpack.packb(("an.application", "Order", {"n": 1}, "model_validate")))
    )
    config = Chain(face).put({"big": LARGE})
    change(database, VALUES, {}, {"$set": {"type": "msgpack", "value": odd}})
    document = one(database, CHECKPOINTS, {})
    document["channels"][0]["size"] = len(odd)
    change(database, CHECKPOINTS, {}, {"$set": {"channels": document["channels"]}})
    assert verify(database) == []
    assert config
