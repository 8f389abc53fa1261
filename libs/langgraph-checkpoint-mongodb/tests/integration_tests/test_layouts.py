"""A thread keeps the layout it began with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pydantic import BaseModel
from pymongo.database import Database

from langgraph.checkpoint.mongodb import UnknownLayoutError
from tests.face import Face
from tests.support import (
    LARGE_SIZE,
    Chain,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
    values_of,
)

Data = Database[dict[str, Any]]

OLD_VALUES = {"a": 1, "log": ["x" * LARGE_SIZE]}
OLD_VERSIONS = {"a": 2, "log": 1}


@pytest.fixture
def old(database: Data) -> RunnableConfig:
    """The only checkpoint of a thread that an older release began."""
    stored = checkpoint(OLD_VALUES, OLD_VERSIONS)
    return insert_whole(database, thread(), stored, {"source": "input", "step": -1})


def raw(database: Data, config: RunnableConfig) -> dict[str, Any]:
    found = database["checkpoints"].find_one(config["configurable"])
    assert found is not None
    return found


def as_old_release_reads(document: dict[str, Any]) -> Checkpoint:
    """All that a release before the split layout looks at."""
    stored: Checkpoint = JsonPlusSerializer().loads_typed(
        (document["type"], document["checkpoint"])
    )
    return stored


def test_a_new_thread_is_split(face: Face, database: Data) -> None:
    config = Chain(face).put({"a": 1, "log": ["x" * LARGE_SIZE]})
    assert raw(database, config)["layout"] == 2
    assert database["checkpoint_channel_values"].count_documents({}) == 1


def test_a_new_namespace_of_a_split_thread_is_split(face: Face, database: Data) -> None:
    Chain(face).put({"a": 1})
    assert raw(database, Chain(face, "t", "sub:1").put({"a": 1}))["layout"] == 2


def test_an_old_checkpoint_is_read(face: Face, old: RunnableConfig) -> None:
    found = face.get_tuple(thread())
    assert found is not None
    assert found.config == old
    assert found.checkpoint["channel_values"] == OLD_VALUES
    assert found.checkpoint["channel_versions"] == OLD_VERSIONS
    assert found.metadata == {"source": "input", "step": -1}
    assert found.parent_config is None


def test_old_pending_writes_are_read(face: Face, database: Data, old: RunnableConfig) -> None:
    insert_old_write(database, old, task_id="two", idx=0, channel="a", value=2)
    path = {"task_path": "~1", "channel": "a"}
    insert_old_write(database, old, task_id="one", idx=0, value=1, **path)
    found = face.get_tuple(old)
    assert found is not None
    # A write of a release that knew no paths comes first, as one without a path.
    assert found.pending_writes == [("two", "a", 2), ("one", "a", 1)]


def know_nothing(face: Face) -> None:
    """The saver is new."""


def know_the_newest(face: Face) -> None:
    """The saver has read the thread."""
    face.get_tuple(thread())


def know_another_thread(face: Face) -> None:
    """The saver is used for other threads."""
    Chain(face, "other").put({"a": 1})


@pytest.mark.parametrize("knows", [know_nothing, know_the_newest, know_another_thread])
def test_an_old_thread_goes_on_in_the_old_layout(
    face: Face, database: Data, old: RunnableConfig, knows: Callable[[Face], None]
) -> None:
    knows(face)
    values = {"a": 2, "log": OLD_VALUES["log"]}
    stored = checkpoint(values, {"a": face.saver.get_next_version(2), "log": 1})
    config = face.put(old, stored, {"source": "loop", "step": 0}, {"a": 3})
    document = raw(database, config)
    assert "layout" not in document
    assert "channels" not in document
    assert as_old_release_reads(document)["channel_values"] == values
    assert as_old_release_reads(document)["channel_versions"] == {"a": 3, "log": 1}
    assert values_of(face, config) == values
    assert database["checkpoint_channel_values"].count_documents({"thread_id": "t"}) == 0


def test_a_thread_that_another_process_began_meanwhile_keeps_its_layout(
    face: Face, database: Data
) -> None:
    assert face.get_tuple(thread()) is None
    stored = checkpoint({"a": 1}, {"a": 1})
    old = insert_whole(database, thread(), stored, {"source": "input", "step": -1})
    config = face.put(old, checkpoint({"a": 2}, {"a": 2}), {"source": "loop", "step": 0}, {"a": 2})
    assert "layout" not in raw(database, config)


def test_a_thread_that_begins_again_is_split(
    face: Face, database: Data, old: RunnableConfig
) -> None:
    face.get_tuple(thread())
    face.delete_thread("t")
    assert raw(database, Chain(face).put({"a": 1}))["layout"] == 2


def test_a_thread_deleted_elsewhere_that_begins_again_is_split(
    face: Face, database: Data, old: RunnableConfig
) -> None:
    face.get_tuple(thread())
    face.fresh().delete_thread("t")
    face.get_tuple(thread())  # as a graph does before its first step
    assert raw(database, Chain(face).put({"a": 1}))["layout"] == 2


@pytest.mark.parametrize("knows", [know_nothing, know_the_newest])
def test_a_new_namespace_of_an_old_thread_is_old_too(
    face: Face, database: Data, old: RunnableConfig, knows: Callable[[Face], None]
) -> None:
    knows(face)
    chain = Chain(face, "t", "sub:1")
    chain.put({"b": "x" * LARGE_SIZE})
    config = chain.put({"c": 1})
    document = raw(database, config)
    assert "layout" not in document
    assert as_old_release_reads(document)["channel_values"] == {"b": "x" * LARGE_SIZE, "c": 1}
    versions = as_old_release_reads(document)["channel_versions"]
    assert versions == {"b": 1, "c": 1}


def test_the_nodes_of_a_new_namespace_have_seen_whole_numbers(
    face: Face, database: Data, old: RunnableConfig
) -> None:
    versions = {"b": face.saver.get_next_version(None)}
    stored = checkpoint({"b": 1}, versions, versions_seen={"node": versions, "__input__": {}})
    config = face.put(thread("t", "sub:1"), stored, {"source": "loop", "step": 0}, versions)
    document = as_old_release_reads(raw(database, config))
    assert document["versions_seen"] == {"node": {"b": 1}, "__input__": {}}


def test_a_fork_of_an_old_checkpoint_is_old(
    face: Face, database: Data, old: RunnableConfig
) -> None:
    for value in ("left", "right"):
        stored = checkpoint({"a": value}, {"a": 3})
        config = face.put(old, stored, {"source": "fork", "step": 0}, {"a": 3})
        assert "layout" not in raw(database, config)
        assert values_of(face, config) == {"a": value}
    assert values_of(face, old) == OLD_VALUES


def test_a_repeated_put_in_an_old_thread_is_harmless(
    face: Face, database: Data, old: RunnableConfig
) -> None:
    stored = checkpoint({"a": 2}, {"a": 3})
    for _ in range(2):
        config = face.put(old, stored, {"source": "loop", "step": 0}, {"a": 3})
    assert database["checkpoints"].count_documents({}) == 2
    assert values_of(face, config) == {"a": 2}


def test_one_listing_shows_both_layouts(face: Face, old: RunnableConfig) -> None:
    new = Chain(face, "new").put({"log": ["y" * LARGE_SIZE]})
    rows = face.list(None)
    assert [row.config for row in rows] == [new, old]
    assert [row.checkpoint["channel_values"] for row in rows] == [
        {"log": ["y" * LARGE_SIZE]},
        OLD_VALUES,
    ]


@pytest.mark.parametrize("layout", [3, 99, "2", None])
def test_an_unknown_layout_is_refused(face: Face, database: Data, layout: Any) -> None:
    config = Chain(face).put({"a": 1})
    database["checkpoints"].update_one({}, {"$set": {"layout": layout}})
    face = face.fresh()
    stored = checkpoint({"a": 2}, {"a": face.saver.get_next_version(None)})
    calls: list[Callable[[], Any]] = [
        lambda: face.get_tuple(thread()),
        lambda: face.get_tuple(config),
        lambda: face.list(thread()),
        lambda: face.put(config, stored, {"source": "loop", "step": 1}, {}),
        lambda: face.put(thread("t", "sub:1"), stored, {"source": "loop", "step": 1}, {}),
    ]
    for call in calls:
        with pytest.raises(UnknownLayoutError, match="Upgrade langgraph-checkpoint-mongodb") as e:
            call()
        assert e.value.layout == layout
        assert [e.value.thread_id, e.value.checkpoint_id] == [
            config["configurable"][name] for name in ("thread_id", "checkpoint_id")
        ]
    assert database["checkpoints"].count_documents({}) == 1


def test_sends_that_an_old_format_queued_are_found_in_their_channel(
    face: Face, database: Data
) -> None:
    """LangGraph left them among the parent's writes before checkpoints of format 4."""
    first = insert_whole(
        database, thread(), checkpoint({"a": 1}, {"a": 1}, v=2), {"source": "input", "step": -1}
    )
    for idx, task in ((1, "b"), (0, "b"), (0, "a")):
        insert_old_write(
            database,
            first,
            task_id=task,
            task_path=f"~{task}",
            idx=idx,
            channel="__pregel_tasks",
            value=Send("node", f"{task}{idx}"),
        )
    stored = checkpoint({"a": 2}, {"a": 2}, v=2)
    second = insert_whole(database, first, stored, {"source": "loop", "step": 0})
    third = insert_whole(
        database, first, checkpoint({"a": 2}, {"a": 2}), {"source": "loop", "step": 0}
    )
    expected = [Send("node", one) for one in ("a0", "b0", "b1")]
    for found in (face.get_tuple(second), face.list(second)[0]):
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": 2, "__pregel_tasks": expected}
        assert found.checkpoint["channel_versions"] == {"a": 2, "__pregel_tasks": 2}
    assert values_of(face, third) == {"a": 2}
    assert values_of(face, first) == {"a": 1}


class Notes(BaseModel):
    """A state of somebody who uses the saver without a graph."""

    first: dict[str, str]
    second: int = 2


@pytest.mark.parametrize("given", [Notes(first={"a": "b"}), [{"a": 1}, 2], "text", 5])
def test_channel_values_that_are_no_mapping_are_kept_whole(face: Face, given: Any) -> None:
    before = Chain(face).put({"a": ["x" * LARGE_SIZE]})
    metadata = {"source": "loop", "step": 1, "writes": {"node": 1}}
    odd = face.put(before, checkpoint({}, {"a": 1}, channel_values=given), metadata, {"a": 1})
    for reader in (face, face.fresh()):
        assert values_of(reader, odd) == given
        assert values_of(reader, before) == {"a": ["x" * LARGE_SIZE]}
        (row,) = reader.list(thread(), filter={"writes.node": 1})
        assert row.checkpoint["channel_values"] == given
    after = face.put(odd, checkpoint({"a": 2}, {"a": 2}), {"source": "loop", "step": 2}, {"a": 2})
    assert values_of(face.fresh(), after) == {"a": 2}
    copied = thread("copy")
    face.copy_thread("t", "copy")
    assert values_of(face, copied) == {"a": 2}
    face.prune(["t"])
    assert [values_of(face, row.config) for row in face.list(thread())] == [{"a": 2}]
