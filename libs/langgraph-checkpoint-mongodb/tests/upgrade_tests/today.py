"""Today's savers on the threads of the old releases, and what must hold of those."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo.database import Database

from tests.face import Face
from tests.upgrade_tests import graphs

WHOLE_CHECKPOINT = {
    *("_id", "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id"),
    *("type", "checkpoint", "metadata"),
}
PENDING_WRITE = {
    *("_id", "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx"),
    *("channel", "type", "value"),
}
WHOLE_CALL = {"attempt", "count"}  # On the writes of a call that stored several; read past before.


def config(thread: str, **more: Any) -> RunnableConfig:
    """The config of a thread; its nodes then log that they ran today."""
    return {"configurable": {"thread_id": thread, "actor": "today", **more}}


def invoke(face: Face, thread: str, input: Any, **more: Any) -> Any:
    """Run a thread on with today's saver; return the plain state."""
    graph = graphs.graph_of(thread, face.saver)
    return graphs.plain(face.invoke(graph, input, config(thread, **more)))


def read(face: Face, thread: str) -> dict[str, Any]:
    """How today's saver sees a thread, in the words of `OldSaver.read`."""
    graph, of_thread = graphs.graph_of(thread, face.saver), config(thread)
    state = face.get_state(graph, of_thread, subgraphs=True)
    return graphs.report(state, face.state_history(graph, of_thread))


def values(seen: dict[str, Any]) -> dict[str, Any]:
    """The newest state's values in a report, lists as lists."""
    return {
        channel: value["list"] if isinstance(value, dict) and set(value) == {"list"} else value
        for channel, value in seen["state"]["values"]["map"]
    }


def namespaces(database: Database[dict[str, Any]], thread: str) -> set[str]:
    """The namespaces in which a thread has checkpoints."""
    return set(database.checkpoints.distinct("checkpoint_ns", {"thread_id": thread}))


def assert_whole(
    database: Database[dict[str, Any]],
    thread: str,
    serde: SerializerProtocol | None = None,
    *,
    checkpoints: str = "checkpoints",
    writes: str = "checkpoint_writes",
) -> None:
    """Assert that a thread lies in the documents that the old releases read, in no others."""
    serde = serde or JsonPlusSerializer()
    of_thread = {"thread_id": thread}
    stored = [*database[checkpoints].find(of_thread)]
    assert stored
    for document in stored:
        assert set(document) == WHOLE_CHECKPOINT
        checkpoint = serde.loads_typed((document["type"], document["checkpoint"]))
        seen = checkpoint["versions_seen"].values()
        for versions in (checkpoint["channel_versions"], *seen):
            assert {type(version) for version in versions.values()} <= {int}
        assert set(checkpoint["channel_values"]) <= set(checkpoint["channel_versions"])
    for document in database[writes].find(of_thread):
        assert set(document) in (PENDING_WRITE, PENDING_WRITE | WHOLE_CALL)
    others = set(database.list_collection_names()) - {checkpoints, writes}
    assert {name: database[name].count_documents(of_thread) for name in others} == dict.fromkeys(
        others, 0
    )


def dump(database: Database[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Every document of a database, to see that nothing changed one."""
    names = sorted(database.list_collection_names())
    return {name: [*database[name].find(sort=[("_id", 1)])] for name in names}
