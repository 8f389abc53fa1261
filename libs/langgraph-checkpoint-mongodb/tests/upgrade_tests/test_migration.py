"""Threads of the published releases, moved into the split layout with all that they hold."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.face import Face, MakeFace
from tests.integration_tests.tampering import again
from tests.support import MB
from tests.upgrade_tests import graphs, today
from tests.upgrade_tests.rig import OldReleaseError, OldSaver

KINDS = ("chat", "approval", "approval-forked", "nested", "fanout", "flaky")
Db = Database[dict[str, Any]]


def rows(face: Face, thread: str) -> list[CheckpointTuple]:
    """Every checkpoint of a thread, read one by one as well."""
    listed = face.list(today.config(thread))
    assert [face.get_tuple(row.config) for row in listed] == listed
    return listed


def counted(row: CheckpointTuple) -> CheckpointTuple:
    """A checkpoint whose versions are whole numbers, as older releases have them."""

    def integers(versions: dict[str, Any]) -> dict[str, Any]:
        return {name: int(str(version).partition(".")[0]) for name, version in versions.items()}

    seen = {node: integers(versions) for node, versions in row.checkpoint["versions_seen"].items()}
    versions = integers(row.checkpoint["channel_versions"])
    checkpoint: Any = {**row.checkpoint, "channel_versions": versions, "versions_seen": seen}
    return row._replace(checkpoint=checkpoint)


def texts(row: CheckpointTuple) -> set[str]:
    """All versions that a checkpoint names."""
    seen = row.checkpoint["versions_seen"].values()
    found = [row.checkpoint["channel_versions"], *seen]
    return {str(version) for versions in found for version in versions.values()}


def assert_consistent(migrated: list[CheckpointTuple]) -> None:
    """A number is one text along a line of descent, and two forks never meet on one."""
    by_id = {
        (
            row.config["configurable"]["checkpoint_ns"],
            row.config["configurable"]["checkpoint_id"],
        ): row
        for row in migrated
    }
    new: dict[str, tuple[str, str]] = {}
    for key, row in by_id.items():
        parent_id = row.parent_config and row.parent_config["configurable"]["checkpoint_id"]
        parent = by_id.get((key[0], parent_id or ""))
        of_parent = texts(parent) if parent else set()
        numbers = [text.partition(".")[0] for text in texts(row) | of_parent]
        assert len(set(numbers)) == len(numbers)
        for text in texts(row) - of_parent:
            assert new.setdefault(text, key) == key


def assert_split(database: Db, thread: str) -> None:
    stored = [*database.checkpoints.find({"thread_id": thread})]
    assert {document.get("layout") for document in stored} == {2}
    assert not any("claimed" in document for document in stored)


def test_a_migrated_thread_is_what_it_was_checkpoint_by_checkpoint(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make(*KINDS)
    before = {thread: rows(face, thread) for thread in KINDS}

    for thread in KINDS:
        assert face.migrate_thread(thread) == len(before[thread])
        assert_split(database, thread)
        after = rows(face, thread)
        assert [counted(row) for row in after] == [counted(row) for row in before[thread]]
        assert_consistent(after)
        assert face.migrate_thread(thread) == 0

    assert {thread: today.read(face, thread) for thread in KINDS} == made
    with pytest.raises(OldReleaseError, match="Unknown serialization type: split:msgpack"):
        old.read("chat")


def test_a_pending_interrupt_is_answered_after_the_migration(old: OldSaver, face: Face) -> None:
    for thread in ("approval", "nested", "fanout"):
        old.make(thread, f"{thread}-twin")
        face.migrate_thread(thread)

        for one in (thread, f"{thread}-twin"):
            today.invoke(face, one, Command(resume="yes"))
            today.invoke(face, one, {"name": "second"})
            today.invoke(face, one, Command(resume="again"))

        moved, stayed = (today.read(face, one)["state"] for one in (thread, f"{thread}-twin"))
        for state in (moved, stayed):
            assert state["next"] == []
        assert moved["values"] == stayed["values"] or thread in str(moved["values"])
        assert today.values({"state": moved})["log"] == today.values({"state": stayed})["log"]


def test_a_fork_a_subgraph_and_a_pending_interrupt_in_one_thread_go_along(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("nested")["nested"]
    first = next(state for state in made["history"] if state["next"] == ["before"])
    old.invoke("nested", None, checkpoint_id=first["checkpoint_id"])
    made = old.read("nested")
    assert made["state"]["tasks"][0]["state"]["tasks"], "the subgraph is paused"
    parents = [state["parent"] for state in made["history"] if state["parent"]]
    assert len(set(parents)) < len(parents), "it has a fork"
    before = rows(face, "nested")

    face.migrate_thread("nested")

    after = rows(face, "nested")
    assert [counted(row) for row in after] == [counted(row) for row in before]
    assert_consistent(after)
    assert_split(database, "nested")
    assert today.read(face, "nested") == made
    today.invoke(face, "nested", Command(resume="yes"))
    seen = today.read(face.fresh(), "nested")
    assert seen["state"]["next"] == []
    assert "ask by today: yes" in today.values(seen)["log"]


@pytest.mark.parametrize("by", ["the same saver", "another one"])
def test_a_thread_is_migrated_while_a_graph_runs_on_it(
    old: OldSaver, face: Face, database: Db, by: str
) -> None:
    before = old.make("chat")["chat"]
    saver = face.saver
    if by == "another one":
        saver = MongoDBSaver(database.client, database.name, create_indexes=False)

    def migrate(state: graphs.State) -> dict[str, Any]:
        return {"log": [f"migrated {saver.migrate_thread('chat') > 0}"]}

    builder = StateGraph(graphs.State)
    for name in ("reply", "end"):
        builder.add_node(name, migrate)
    builder.add_edge(START, "reply").add_edge("reply", "end").add_edge("end", END)
    graph = face.compile(builder)

    last = face.invoke(graph, {"total": 1}, today.config("chat"))
    # The next node may run before LangGraph has stored the step of the one before.
    assert last["log"][-2] == "migrated True"
    seen = today.read(again(face), "chat")
    assert seen["history"][-len(before["history"]) :] == before["history"]

    face.migrate_thread("chat")
    assert_split(database, "chat")
    assert today.read(face, "chat") == seen
    assert_consistent(rows(face, "chat"))
    assert face.invoke(graph, {"total": 1}, today.config("chat"))["total"] == last["total"] + 1
    assert_split(database, "chat")


def test_a_task_that_failed_is_run_again_after_the_migration(old: OldSaver, face: Face) -> None:
    old.make("flaky")
    face.migrate_thread("flaky")
    today.invoke(face, "flaky", None)
    log = today.values(today.read(face, "flaky"))["log"]
    assert log == ["in", f"work by {old.release}", "flaky by today"]


def test_a_migrated_thread_is_forked_at_an_old_checkpoint(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("approval-forked")["approval-forked"]
    face.migrate_thread("approval-forked")
    before_end = [state for state in made["history"] if state["next"] == ["end"]][-1]
    graph = graphs.graph_of("approval-forked", face.saver)
    base = today.config(
        "approval-forked", checkpoint_ns="", checkpoint_id=before_end["checkpoint_id"]
    )
    fork = face.update_state(graph, base, {"name": "today's"}, as_node="ask")
    last = face.invoke(graph, None, {"configurable": {**fork["configurable"], "actor": "today"}})

    assert last["log"][-1] == "end by today"
    assert today.read(face, "approval-forked")["history"][2:] == made["history"]
    assert_split(database, "approval-forked")


def test_a_migrated_thread_grows_past_what_one_document_holds(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("chat")
    face.migrate_thread("chat")
    message = HumanMessage("m" * 6 * MB, id="large")
    given = {"messages": [message], "name": "n" * 9 * MB, "log": ["l" * 4 * MB]}
    today.invoke(face, "chat", given)
    today.invoke(face.fresh(), "chat", {"messages": [HumanMessage("on", id="on")]})

    last = today.values(today.read(face.fresh(), "chat"))
    sizes = {name: len(str(last[name])) for name in ("messages", "name", "log")}
    assert all(
        sizes[name] >= size * MB for name, size in (("messages", 6), ("name", 9), ("log", 4))
    )
    assert_split(database, "chat")


def test_an_encrypted_thread_is_migrated(old: OldSaver, make_face: MakeFace, database: Db) -> None:
    key = "0123456789abcdef"
    old = old.with_options(aes_key=key)
    made = old.make("approval")["approval"]
    face = make_face(serde=EncryptedSerializer.from_pycryptodome_aes(key=key.encode()))
    before = rows(face, "approval")

    face.migrate_thread("approval")

    assert [counted(row) for row in rows(face, "approval")] == [counted(row) for row in before]
    assert today.read(face, "approval") == made
    types = {document["type"] for document in database.checkpoints.find({})}
    assert types == {"split:msgpack+aes"}
