"""Threads of the published releases, opened, resumed, continued and forked by today's savers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command
from pymongo.database import Database

from tests.face import Face, MakeFace
from tests.support import LARGE_SIZE
from tests.upgrade_tests import graphs, today
from tests.upgrade_tests.rig import OldReleaseError, OldSaver

FILTERS: list[tuple[dict[str, Any], int]] = [
    ({"step": 1}, 1),
    ({"source": "loop", "count": 7.0}, 6),
    ({"score": 1}, 8),
    ({"flag": True}, 8),
    ({"dotted.key": "dot"}, 8),
    ({"nothing": None}, 8),
    ({"labels": ["x", "y"]}, 8),
    ({"user": {"profile": {"age": 40, "city": "Bath"}, "id": 7.0}}, 8),
    ({"tenant": "red"}, 0),
]
KINDS = ("chat", "approval", "approval-forked", "nested", "fanout", "flaky")
Db = Database[dict[str, Any]]


def test_every_state_of_every_thread_reads_as_the_old_release_reports_it(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make(*KINDS)
    stored = dump_of_threads(database)

    assert {thread: today.read(face, thread) for thread in KINDS} == made
    assert dump_of_threads(database) == stored, "reading changed a document"


def test_its_checkpoints_are_listed_as_the_old_release_lists_them(
    old: OldSaver, face: Face
) -> None:
    old.make("chat", "nested")

    for thread in ("chat", "nested", None):
        of_thread = None if thread is None else today.config(thread)
        rows = face.list(of_thread)
        listed = [
            [row.config["configurable"][key] for key in ("thread_id", "checkpoint_id")]
            for row in rows
        ]
        assert listed == old.list(thread)["found"]


def test_filters_find_its_checkpoints_by_value(old: OldSaver, face: Face) -> None:
    old.make("chat")
    every = face.list(today.config("chat"))
    assert len(every) == 8

    for wanted, count in FILTERS:
        found = face.list(today.config("chat"), filter=wanted)

        assert found == [row for row in every if matches(row.metadata, wanted)]
        if old.release == "0.5.1" and wanted.keys() & {"labels", "user"}:
            assert found == []  # it keeps only plain values of a config's metadata
        else:
            assert len(found) == count, wanted


def test_a_finished_thread_goes_on_turn_by_turn_with_either_release(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("chat")

    today.invoke(face, "chat", {"messages": [HumanMessage("3", id="3")], "extra": {"a": (1,)}})
    today.assert_whole(database, "chat")
    assert old.read("chat") == today.read(face, "chat")
    old.invoke("chat", {"messages": [["human", "4"]], "name": "four"})
    seen = today.read(face.fresh(), "chat")
    assert seen == old.read("chat")
    today.invoke(face, "chat", {"messages": [HumanMessage("5", id="5")]})
    today.assert_whole(database, "chat")

    seen = today.read(face, "chat")
    assert seen == old.read("chat")
    last = today.values(seen)
    assert last["log"] == [
        f"{node} by {actor}"
        for actor in (old.release, old.release, "today", old.release, "today")
        for node in ("reply", "end")
    ]
    assert (last["total"], last["name"]) == (5, "four")
    contents = [message["content"] for message in last["messages"]]
    asked = ("hello", "and again", "3", "4", "5")
    assert contents == [text for ask in asked for text in (ask, f"reply to {ask}")]


def test_an_interrupt_that_one_release_left_pending_is_resumed_by_the_other(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("approval")

    today.invoke(face, "approval", Command(resume="yes"))
    today.assert_whole(database, "approval")
    assert old.read("approval") == today.read(face, "approval")

    today.invoke(face, "approval", {"name": "second"})
    today.assert_whole(database, "approval")
    assert old.read("approval") == today.read(face, "approval")
    old.invoke("approval", {"resume": "and again"})

    seen = today.read(face.fresh(), "approval")
    assert seen == old.read("approval")
    assert seen["state"]["next"] == []
    # `work` had finished each time when the thread paused, and was not run again.
    assert today.values(seen)["log"] == [
        "in",
        "ask by today: yes",
        f"work by {old.release}",
        "end by today",
        f"ask by {old.release}: and again",
        "work by today",
        f"end by {old.release}",
    ]


def test_a_fork_at_an_old_checkpoint_leaves_the_other_branches_as_they_were(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("approval-forked")["approval-forked"]
    before_end = [state for state in made["history"] if state["next"] == ["end"]][-1]
    graph = graphs.graph_of("approval-forked", face.saver)

    base = today.config(
        "approval-forked", checkpoint_ns="", checkpoint_id=before_end["checkpoint_id"]
    )
    fork = face.update_state(graph, base, {"name": "today's"}, as_node="ask")
    branch: RunnableConfig = {"configurable": {**fork["configurable"], "actor": "today"}}
    last = face.invoke(graph, None, branch)

    today.assert_whole(database, "approval-forked")
    assert last["name"] == "today's"
    assert last["log"][-1] == "end by today"
    seen = today.read(face, "approval-forked")
    assert old.read("approval-forked") == seen
    assert seen["history"][2:] == made["history"]
    assert [state["parent"] for state in seen["history"][:2]] == [
        seen["history"][1]["checkpoint_id"],
        before_end["checkpoint_id"],
    ]


def test_a_subgraphs_interrupt_is_resumed_and_its_next_turn_stays_whole_in_a_new_namespace(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("nested")["nested"]
    assert made["state"]["tasks"][0]["state"]["tasks"], "the subgraph itself is paused"
    old_namespaces = today.namespaces(database, "nested")

    today.invoke(face, "nested", Command(resume="inner"))
    today.assert_whole(database, "nested")
    assert today.namespaces(database, "nested") == old_namespaces
    assert old.read("nested") == today.read(face, "nested")

    today.invoke(face, "nested", {"name": "again"})
    assert len(today.namespaces(database, "nested") - old_namespaces) == 1
    today.assert_whole(database, "nested")
    seen = today.read(face.fresh(), "nested")
    assert seen["state"]["tasks"][0]["interrupts"]
    assert old.read("nested") == seen

    old.invoke("nested", {"resume": "inner again"})
    seen = today.read(face.fresh(), "nested")
    assert old.read("nested") == seen
    log = today.values(seen)["log"]
    assert "ask by today: inner" in log
    assert f"ask by {old.release}: inner again" in log
    assert seen["state"]["next"] == []


def test_a_subgraph_that_the_old_graph_did_not_have_stays_whole_from_its_first_checkpoint(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("chat")
    graph = graphs.nested(face.saver)  # the application was changed along with the release

    face.invoke(graph, {"name": "changed"}, today.config("chat"))
    today.assert_whole(database, "chat")
    last = face.invoke(graph, Command(resume="yes"), today.config("chat"))

    assert len(today.namespaces(database, "chat")) == 2
    today.assert_whole(database, "chat")
    assert "ask by today: yes" in last["log"]
    assert old.list("chat")["error"] is None


def test_pending_sends_are_resumed_and_the_finished_ones_are_not_run_again(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("fanout")

    today.invoke(face, "fanout", Command(resume="yes"))

    today.assert_whole(database, "fanout")
    seen = today.read(face, "fanout")
    assert old.read("fanout") == seen
    assert today.values(seen)["log"] == [
        "in",
        f"item a by {old.release}: -",
        "item b by today: yes",
        f"item c by {old.release}: -",
        "end by today",
    ]


def test_a_turn_that_failed_with_one_release_goes_on_with_the_other(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("flaky")["flaky"]
    assert any(task["error"] for task in made["state"]["tasks"])
    today.invoke(face, "flaky", None)
    today.assert_whole(database, "flaky")
    assert old.read("flaky") == today.read(face, "flaky")

    with pytest.raises(RuntimeError, match="told to fail"):
        today.invoke(face, "flaky", {"name": "second"}, fail=True)
    today.assert_whole(database, "flaky")
    assert old.read("flaky") == today.read(face, "flaky")
    old.invoke("flaky", None)

    seen = today.read(face, "flaky")
    assert seen == old.read("flaky")
    assert today.values(seen)["log"] == [
        "in",
        f"work by {old.release}",
        "flaky by today",
        "work by today",
        f"flaky by {old.release}",
    ]


def test_a_thread_that_an_old_process_begins_meanwhile_goes_on_whole(
    old: OldSaver, face: Face, database: Db
) -> None:
    """Both releases run side by side for a while in a rolling deployment."""
    assert face.get_tuple(today.config("chat-empty")) is None
    today.invoke(face, "chat-split", {"messages": [HumanMessage("x" * LARGE_SIZE)]})
    face.delete_thread("chat-split")
    old.make("chat-empty", "chat-split")

    for thread in ("chat-empty", "chat-split"):
        today.invoke(face, thread, {"messages": [HumanMessage("3", id="3")]})

        today.assert_whole(database, thread)
        assert old.read(thread) == today.read(face, thread)


def test_deleting_an_old_thread_leaves_nothing_of_it_and_all_of_the_others(
    old: OldSaver, face: Face, database: Db
) -> None:
    made = old.make("approval", "approval-other", "nested")

    face.delete_thread("nested")
    face.delete_thread("approval")

    assert {doc["thread_id"] for docs in today.dump(database).values() for doc in docs} == {
        "approval-other"
    }
    assert old.read("approval-other") == made["approval-other"]


def test_an_encrypted_thread_is_read_filtered_continued_and_read_back(
    old: OldSaver, make_face: MakeFace, database: Db
) -> None:
    """Release 0.2.2 leaves metadata in clear, and refuses what all later releases encrypt."""
    key = "0123456789abcdef"
    serde = EncryptedSerializer.from_pycryptodome_aes(key=key.encode())
    old = old.with_options(aes_key=key)
    made = old.make("approval")["approval"]
    face = make_face(serde=serde)

    assert today.read(face, "approval") == made
    wanted = {"source": "loop", "tenant": "blue"}
    assert len(face.list(today.config("approval"), filter=wanted)) == 1
    today.invoke(face, "approval", Command(resume="yes"))

    today.assert_whole(database, "approval", serde)
    types = {doc["type"] for docs in today.dump(database).values() for doc in docs}
    assert all(type_.endswith("+aes") for type_ in types), types
    if old.release == "0.2.2":
        with pytest.raises(OldReleaseError, match="Unknown serialization type: msgpack\\+aes"):
            old.read("approval")
    else:
        assert old.read("approval") == today.read(face, "approval")


@pytest.mark.parametrize("release", ["0.2.2"], indirect=True)
def test_a_thread_of_the_former_async_saver_goes_on_under_its_collection_names(
    old: OldSaver, make_face: MakeFace, database: Db
) -> None:
    """That saver, which 0.3.0 dropped, had defaults of its own for the names."""
    names = ("checkpoints_aio", "checkpoint_writes_aio")
    made = old.make_async("nested")
    face = make_face(checkpoint_collection_name=names[0], writes_collection_name=names[1])

    assert today.read(face, "nested") == made
    today.invoke(face, "nested", Command(resume="yes"))

    today.assert_whole(database, "nested", checkpoints=names[0], writes=names[1])
    assert today.read(face, "nested")["state"]["next"] == []


def matches(metadata: Any, wanted: dict[str, Any]) -> bool:
    """Whether the metadata has the values: what is absent counts as None, as everywhere."""
    return all(metadata.get(key) == value for key, value in wanted.items())


def dump_of_threads(database: Db) -> dict[str, list[dict[str, Any]]]:
    """The documents of the two collections that an old release knows."""
    return {name: today.dump(database)[name] for name in ("checkpoints", "checkpoint_writes")}
