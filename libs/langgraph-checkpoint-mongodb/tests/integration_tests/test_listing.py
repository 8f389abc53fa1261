"""list: which checkpoints, in which order, whole, and a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from pymongo.database import Database
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from langgraph.checkpoint.mongodb import (
    MissingChannelValueError,
    MongoDBSaver,
    OldMetadataError,
    UnknownLayoutError,
)
from tests.face import Face, MakeFace
from tests.support import (
    LARGE_SIZE,
    MB,
    Chain,
    Command,
    CommandCounter,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
)

Data = Database[dict[str, Any]]

ROWS: list[dict[str, Any]] = [
    {"score": 1, "flag": True, "who": "ann"},
    {"score": 1.0, "flag": False, "who": None},
    {"source": "input", "nested": {"a": 1, "b": 2}, "who": "bob"},
    {"source": "input", "nested": {"b": 2, "a": 1}, "tags": ["x", "y"]},
    {"source": "fork", "session.id": "s-1", "nested": {}},
    {"source": "fork", "tags": [], "nested": {"a": {"deep": [1, {"k": None}]}}},
    {"source": "fork", "nested": {"a": 1}, "": "empty", "ключ": "знач", "price$": 2**40},
]
FILTERS: list[dict[str, Any]] = [
    {},
    {"source": "loop"},
    {"source": "loop", "step": 1},
    {"source": "fork", "nested": {"a": 1}},
    {"flag": True},
    {"flag": 1},
    {"score": 1},
    {"score": 1.0},
    {"step": 2.0},
    {"who": "bob"},
    {"tags": ["x", "y"]},
    {"tags": []},
    {"nested": {"b": 2, "a": 1}},
    {"nested": {"a": 1}},
    {"nested": {}},
    {"nested": {"a": {"deep": [1, {"k": None}]}}},
    {"session.id": "s-1"},
    {"": "empty"},
    {"ключ": "знач"},
    {"price$": 2**40},
    {"source": "nope"},
    {"nope": 1},
]


def steps(rows: list[Any]) -> list[int]:
    return [row.metadata["step"] for row in rows]


def fill(face: Face, *, thread_id: str = "t") -> list[RunnableConfig]:
    chain = Chain(face, thread_id)
    return [chain.put({"a": number}, metadata=row) for number, row in enumerate(ROWS)]


def expected(filter: Mapping[str, Any]) -> list[int]:
    """What the in-memory saver finds."""
    memory = InMemorySaver()
    for step, row in enumerate(ROWS):
        metadata: Any = {"source": "loop", "step": step, **row}
        memory.put(thread(), checkpoint({}, {}), metadata, {})
    return steps([*memory.list(thread(), filter=dict(filter))])


def test_a_thread_is_listed_newest_first(face: Face) -> None:
    configs = fill(face)
    rows = face.list(thread())
    assert [row.config for row in rows] == configs[::-1]
    assert [row.parent_config for row in rows] == [*configs[:-1][::-1], None]


def test_rows_are_what_get_tuple_answers(face: Face) -> None:
    chain = Chain(face)
    for number in range(3):
        config = chain.put({"small": number, "large": bytes([number]) * LARGE_SIZE})
        face.put_writes(config, [("small", number + 1), ("large", bytes(LARGE_SIZE))], "task")
    rows = face.list(thread())
    assert rows == [face.get_tuple(row.config) for row in rows]


def test_a_filter_finds_what_the_in_memory_saver_finds(face: Face) -> None:
    fill(face)
    found = {repr(wanted): steps(face.list(thread(), filter=wanted)) for wanted in FILTERS}
    assert found == {repr(wanted): expected(wanted) for wanted in FILTERS}


def test_a_filter_finds_rows_that_the_database_cannot_compare(make_face: MakeFace) -> None:
    # Each encryption has a nonce of its own: equal values have unequal bytes.
    face = make_face(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"k" * 16))
    fill(face)
    found = {repr(wanted): steps(face.list(thread(), filter=wanted)) for wanted in FILTERS}
    assert found == {repr(wanted): expected(wanted) for wanted in FILTERS}


def test_a_filter_finds_what_an_older_release_wrote(face: Face, database: Data) -> None:
    config = thread()
    for step, row in enumerate(ROWS):
        metadata = {"source": "loop", "step": step, **row}
        config = insert_whole(database, config, checkpoint({"a": step}, {"a": 1}), metadata)
    found = {repr(wanted): steps(face.list(thread(), filter=wanted)) for wanted in FILTERS}
    assert found == {repr(wanted): expected(wanted) for wanted in FILTERS}
    assert [row.checkpoint["channel_values"]["a"] for row in face.list(thread())] == [
        *range(len(ROWS))
    ][::-1]


def test_a_filter_for_none_finds_what_is_stored_as_none(face: Face) -> None:
    fill(face)
    assert 1 in steps(face.list(thread(), filter={"who": None}))
    assert not {0, 2} & {*steps(face.list(thread(), filter={"who": None}))}


@pytest.mark.parametrize("filter", [{"$where": "1"}, {"a": {"$gt": 0}}, {"a": {"b": {"$ne": 1}}}])
def test_an_operator_in_a_filter_is_refused(face: Face, filter: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Invalid filter key '\$"):
        face.list(thread(), filter=filter)


def test_before_is_exclusive(face: Face) -> None:
    configs = fill(face)
    assert steps(face.list(thread(), before=configs[3])) == [2, 1, 0]
    assert steps(face.list(thread(), before=configs[0])) == []


def test_before_needs_only_the_checkpoint(face: Face) -> None:
    configs = fill(face)
    checkpoint_id = configs[2]["configurable"]["checkpoint_id"]
    before: RunnableConfig = {"configurable": {"checkpoint_id": checkpoint_id}}
    assert steps(face.list(thread(), before=before)) == [1, 0]


def test_before_without_a_checkpoint_bounds_nothing(face: Face) -> None:
    fill(face)
    assert len(face.list(thread(), before=thread())) == len(ROWS)


@pytest.mark.parametrize(("limit", "count"), [(None, 7), (0, 0), (1, 1), (3, 3), (100, 7)])
def test_limit_bounds_the_rows(face: Face, limit: int | None, count: int) -> None:
    fill(face)
    assert len(face.list(thread(), limit=limit)) == count


def test_limit_counts_after_the_filter(face: Face) -> None:
    fill(face)
    assert steps(face.list(thread(), filter={"source": "fork"}, limit=2)) == [6, 5]
    assert steps(face.list(thread(), filter={"source": "loop"}, limit=2)) == [1, 0]


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1"])
def test_a_limit_that_is_no_count_is_refused(face: Face, limit: Any) -> None:
    with pytest.raises(ValueError, match="Invalid limit"):
        face.list(thread(), limit=limit)


def test_a_checkpoint_in_the_config_is_listed_alone(face: Face) -> None:
    configs = fill(face)
    assert [row.config for row in face.list(configs[2])] == [configs[2]]
    assert face.list(configs[2], before=configs[2]) == []
    assert len(face.list(configs[2], before=configs[3])) == 1
    assert face.list(thread("t", checkpoint_id="missing")) == []


def test_a_namespace_in_the_config_narrows_the_listing(face: Face) -> None:
    root, sub = Chain(face).put({"a": 1}), Chain(face, "t", "sub:1").put({"a": 2})
    assert [row.config for row in face.list(thread("t", "sub:1"))] == [sub]
    assert [row.config for row in face.list(thread("t", ""))] == [root]
    without: RunnableConfig = {"configurable": {"thread_id": "t"}}
    assert [row.config for row in face.list(without)] == [sub, root]


def test_no_config_lists_all_threads(face: Face) -> None:
    configs = [Chain(face, thread_id).put({"a": 1}) for thread_id in ("b", "a", "c")]
    assert [row.config for row in face.list(None)] == configs[::-1]
    assert [row.config for row in face.list(None, before=configs[1])] == [configs[0]]
    assert [row.config for row in face.list(None, limit=1)] == [configs[2]]
    assert len(face.list(None, filter={"step": 0})) == 3


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (thread({"$ne": ""}), "thread_id"),  # type: ignore[arg-type]
        (thread("t", {"$ne": ""}), "checkpoint_ns"),  # type: ignore[arg-type]
        (thread("t", checkpoint_id={"$gt": ""}), "checkpoint_id"),
        (thread(7), "thread_id"),  # type: ignore[arg-type]
    ],
)
def test_an_identifier_that_is_no_string_is_refused(
    face: Face, config: RunnableConfig, named: str
) -> None:
    with pytest.raises(ValueError, match=f"Invalid {named}: expected a string"):
        face.list(config)
    if named == "checkpoint_id":
        with pytest.raises(ValueError, match="Invalid before checkpoint_id: expected a string"):
            face.list(thread(), before=config)
    with pytest.raises(ValueError, match=f"Invalid {named}: expected a string"):
        face.get_tuple(config)


def test_more_than_a_page_is_listed_whole_and_in_order(face: Face, database: Data) -> None:
    many = multiply(face, database, 230)
    assert [row.config["configurable"]["checkpoint_id"] for row in face.list(thread())] == many
    assert len(face.list(thread(), limit=150)) == 150
    assert len(face.list(thread(), filter={"source": "loop"})) == 230
    assert len(face.list(thread(), filter={"source": "loop"}, limit=101)) == 101


def multiply(face: Face, database: Data, count: int) -> list[str]:
    """Make a thread of so many checkpoints; their ids, newest first."""
    Chain(face).put({"a": "x" * LARGE_SIZE})
    document = database["checkpoints"].find_one_and_delete({})
    assert document is not None
    del document["_id"]
    ids = [f"{number:08d}" for number in range(count)]
    database["checkpoints"].insert_many([{**document, "checkpoint_id": id_} for id_ in ids])
    return ids[::-1]


@pytest.mark.parametrize("filter", [None, {"source": "loop"}])
def test_equal_ids_in_threads_and_namespaces_are_each_listed_once(
    face: Face, filter: dict[str, Any] | None
) -> None:
    stored = [checkpoint({}, {}) for _ in range(3)]
    places = [(f"thread {number % 10}", f"ns{number // 10}") for number in range(50)]
    for one in stored:
        for place in places:
            face.put(thread(*place), one, {"source": "loop", "step": 0}, {})
    rows = face.list(None, filter=filter)
    keys = [tuple(row.config["configurable"].values()) for row in rows]
    assert keys == [(*place, one["id"]) for one in stored[::-1] for place in sorted(places)]
    same: RunnableConfig = {"configurable": {"checkpoint_id": stored[1]["id"]}}
    assert len(face.list(same, filter=filter)) == len(places)


def test_taking_one_row_reads_no_more_than_a_page(make_face: MakeFace, database: Data) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    multiply(face, database, 230)
    with counter.recording():
        first(face)
    assert counter.names == ["find", "find", "find"]


def first(face: Face) -> Any:
    """Take one row of a listing and leave it."""
    saver = face.saver
    if isinstance(saver, MongoDBSaver):
        return next(iter(saver.list(thread())))

    async def one() -> Any:
        rows = saver.alist(thread())
        return await anext(rows)

    return face.run(one())


def test_a_listing_left_early_holds_nothing_open(make_face: MakeFace, database: Data) -> None:
    cursors = OpenCursors()
    face = make_face(client_kwargs={"event_listeners": [cursors]})
    multiply(face, database, 230)
    first(face)
    assert cursors.open == set()


class OpenCursors(CommandListener):
    """Keeps the ids of the cursors that the server holds open."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self._read: dict[int, int] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "getMore":
            self._read[event.request_id] = event.command["getMore"]

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self.open.discard(self._read.pop(event.request_id, 0))
        if event.command_name in {"find", "getMore", "aggregate"}:
            self.open |= {event.reply["cursor"]["id"]} - {0}

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def test_large_values_make_pages_shorter(make_face: MakeFace) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    chain = Chain(face)
    for number in range(6):
        chain.put({"a": bytes([number]) * (9 * MB)})
    with counter.recording():
        rows = face.list(thread())
    assert [row.checkpoint["channel_values"]["a"][0] for row in rows] == [5, 4, 3, 2, 1, 0]
    named = [referenced_values(one.document) for one in counter.commands if is_find_of_values(one)]
    # 32 MB at a time are three such values.
    assert named == [3, 3]


def is_find_of_values(command: Command) -> bool:
    return command.name == "find" and command.collection == "checkpoint_channel_values"


def referenced_values(command: Mapping[str, Any]) -> int:
    """How many values of the one channel a query asks for."""
    version = command["filter"]["version"]
    return len(version["$in"]) if isinstance(version, dict) else 1


def test_pending_writes_of_an_older_release_are_listed(face: Face, database: Data) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    old = insert_whole(database, thread(), stored, {"source": "input", "step": -1})
    insert_old_write(database, old, task_id="task", idx=0, channel="a", value=2)
    (row,) = face.list(thread())
    assert row.pending_writes == [("task", "a", 2)]


@pytest.mark.parametrize("key", ["a.b", "$app", "", "sp ace", "ключ"])
def test_metadata_keys_of_any_text_come_back(face: Face, key: str) -> None:
    config = Chain(face).put({"a": 1}, metadata={key: "value", "in": {key: 1}})
    found = face.get_tuple(config)
    assert found is not None
    metadata: Mapping[str, Any] = found.metadata
    assert metadata[key] == "value"
    assert metadata["in"] == {key: 1}


def test_metadata_with_numbers_as_keys_comes_back(face: Face) -> None:
    config = Chain(face).put({"a": 1}, metadata={"scores": {1: "a", 2: {"x": None}}})
    found = face.get_tuple(config)
    assert found is not None
    metadata: Mapping[str, Any] = found.metadata
    assert metadata["scores"] == {1: "a", 2: {"x": None}}


def test_fields_that_others_add_to_documents_are_ignored(face: Face, database: Data) -> None:
    config = Chain(face).put({"a": "x" * LARGE_SIZE})
    face.put_writes(config, [("a", 1)], "task")
    before = face.get_tuple(config)
    for name in database.list_collection_names():
        database[name].update_many({}, {"$set": {"tenant": "blue", "upserted_at": None}})
    assert face.get_tuple(config) == before
    assert face.list(thread()) == [before]


def test_checkpoints_put_while_listing_do_not_disturb_it(face: Face, database: Data) -> None:
    saver = face.saver
    many = multiply(face, database, 130)
    seen = []
    if isinstance(saver, MongoDBSaver):
        for row in saver.list(thread()):
            seen.append(row.config["configurable"]["checkpoint_id"])
            if len(seen) == 50:
                Chain(face, "t").put({"b": 1})
    else:

        async def listed() -> None:
            async for row in saver.alist(thread()):
                seen.append(row.config["configurable"]["checkpoint_id"])
                if len(seen) == 50:
                    await asyncio.sleep(0)
                    await saver.aput(
                        thread(), checkpoint({}, {}), {"source": "loop", "step": 1}, {}
                    )

        face.run(listed())
    assert seen == many


# ------------------------------------------------------------------ what cannot be read

ALL_OF_T = thread()


def test_what_comes_before_a_damaged_checkpoint_is_listed(face: Face, database: Data) -> None:
    chain = Chain(face)
    configs = [chain.put({"doc": f"{number}" * 20_000}) for number in range(4)]
    found = face.get_tuple(configs[1])
    assert found is not None
    database["checkpoint_channel_values"].delete_one(
        {"version": found.checkpoint["channel_versions"]["doc"]}
    )
    for filter_ in (None, {"source": "loop"}):
        rows: list[Any] = []
        with pytest.raises(MissingChannelValueError):
            collect(face.fresh(), rows, filter_)
        assert [row.config for row in rows] == [configs[3], configs[2]]
        assert [row.config for row in face.list(thread(), limit=2)] == [configs[3], configs[2]]


def test_what_a_newer_release_wrote_is_left_out_and_named_at_the_end(
    face: Face, database: Data
) -> None:
    for name in ("a", "b", "c"):
        Chain(face, name).put({"n": 1})
    database["checkpoints"].update_one({"thread_id": "b"}, {"$set": {"layout": 3}})
    for filter_ in (None, {"source": "loop"}):
        rows: list[Any] = []
        with pytest.raises(UnknownLayoutError) as caught:
            collect(face.fresh(), rows, filter_, None)
        assert [row.config["configurable"]["thread_id"] for row in rows] == ["c", "a"]
        assert caught.value.thread_id == "b"


@pytest.mark.parametrize("method", ["prune", "delete_for_runs"])
def test_a_thread_of_a_newer_release_does_not_keep_others_from_being_pruned(
    face: Face, database: Data, method: str
) -> None:
    for name in ("a", "b", "c"):
        chain = Chain(face, name)
        for run in ("one", "two"):
            chain.put({"n": 1}, metadata={"run_id": run})
    database["checkpoints"].update_many({"thread_id": "b"}, {"$set": {"layout": 3}})
    given = {"prune": ["a", "b", "c"], "delete_for_runs": ["one"]}[method]
    with pytest.raises(UnknownLayoutError, match="'b'"):
        getattr(face, method)(given)
    assert [len(face.list(thread(name))) for name in ("a", "c")] == [1, 1]
    assert database["checkpoints"].count_documents({"thread_id": "b"}) == 2


def test_what_a_release_before_0_2_2_wrote_is_told_with_the_script_to_run(
    face: Face, database: Data
) -> None:
    for name in ("a", "c"):
        Chain(face, name).put({"n": 1})
    old = insert_whole(database, thread("b"), checkpoint({"n": 1}, {"n": 1}), {"source": "loop"})
    database["checkpoints"].update_one(
        {"thread_id": "b"}, {"$set": {"metadata": {"source": b'"loop"', "step": b"1"}}}
    )
    with pytest.raises(OldMetadataError, match=r"0\.2\.2.*migrate_checkpoints_to_typed_metadata"):
        face.get_tuple(old)
    rows: list[Any] = []
    with pytest.raises(OldMetadataError):
        collect(face, rows, None, None)
    assert sorted(row.config["configurable"]["thread_id"] for row in rows) == ["a", "c"]
    assert len(face.list(None, filter={"source": "loop"})) == 2


def collect(
    face: Face, rows: list[Any], filter_: dict[str, Any] | None, config: Any = ALL_OF_T
) -> None:
    """List row by row, keeping those that came before an error."""
    saver: Any = face.saver

    async def walk() -> None:
        async for row in saver.alist(config, filter=filter_):
            rows.append(row)

    if face.kind == "async":
        face.run(walk())
        return
    for row in saver.list(config, filter=filter_):
        rows.append(row)
