"""The saver as LangGraph's API server uses it: threads, runs, answers, copies, retention."""

from __future__ import annotations

import time
from typing import Any

import pytest
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import NotFoundError
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.upgrade_tests.rig import OldSaver

COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")
DB = Database[dict[str, Any]]
WAIT_LIMIT_S = 30


def new_thread(client: SyncLangGraphClient) -> str:
    thread_id: str = client.threads.create()["thread_id"]
    return thread_id


def run(client: SyncLangGraphClient, thread_id: str, graph: str, **options: Any) -> Any:
    """Run a graph to its end; return its state."""
    return client.runs.wait(thread_id, graph, **options)


def start(client: SyncLangGraphClient, thread_id: str, word: str) -> Any:
    """Begin a run, and do not wait for it."""
    given: dict[str, Any] = {"words": [word]}
    return client.runs.create(thread_id, "agent", input=given)


def talk(client: SyncLangGraphClient, thread_id: str, graph: str, channel: str, turns: int) -> Any:
    for turn in range(turns):
        run(client, thread_id, graph, input={channel: [f"turn {turn}"]})
    return state(client, thread_id)


def state(client: SyncLangGraphClient, thread_id: str, **options: Any) -> Any:
    return client.threads.get_state(thread_id, **options)["values"]


def counts(database: DB, thread_id: str) -> list[int]:
    return [database[name].count_documents({"thread_id": thread_id}) for name in COLLECTIONS]


def wait_for(what: Any) -> None:
    limit = time.monotonic() + WAIT_LIMIT_S
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.1)


def test_a_thread_goes_on_from_run_to_run(client: SyncLangGraphClient, served_database: DB) -> None:
    thread_id = new_thread(client)
    values = talk(client, thread_id, "agent", "words", 3)
    heard = [word for turn in range(3) for word in (f"turn {turn}", f"heard turn {turn}")]
    assert values == {"words": heard, "document": "turn 2" * 10_000}
    history: list[Any] = client.threads.get_history(thread_id, limit=100)
    assert history[0]["values"] == values
    assert len(history) == counts(served_database, thread_id)[0] == 9
    assert history[3]["values"]["words"] == heard[:4]


def test_a_run_streams_its_steps(client: SyncLangGraphClient) -> None:
    thread_id = new_thread(client)
    given: dict[str, Any] = {"words": ["hello"]}
    parts = [
        part
        for part in client.runs.stream(
            thread_id, "agent", input=given, stream_mode=["updates", "values"]
        )
        if part.event in ("updates", "values")
    ]
    assert [part.event for part in parts] == ["values", "updates", "values"]
    assert parts[1].data["say"]["words"] == ["heard hello"]
    assert parts[2].data == state(client, thread_id)


def test_a_question_in_a_subgraph_is_answered_run_by_run(client: SyncLangGraphClient) -> None:
    thread_id = new_thread(client)
    asked = run(client, thread_id, "asks", input={"words": []})
    assert [one["value"] for one in asked["__interrupt__"]] == ["first?"]
    asked = run(client, thread_id, "asks", command={"resume": "one"})
    assert [one["value"] for one in asked["__interrupt__"]] == ["second?"]
    waiting: Any = client.threads.get_state(thread_id, subgraphs=True)
    assert waiting["next"] == ["inner"]
    assert waiting["tasks"][0]["state"]["next"] == ["ask"]
    answered = run(client, thread_id, "asks", command={"resume": "two"})
    assert answered["words"] == ["one", "two"]


def test_a_paused_thread_is_pruned_and_answered(
    client: SyncLangGraphClient, saver: MongoDBSaver
) -> None:
    thread_id = new_thread(client)
    for turn in range(2):
        run(client, thread_id, "asks", input={"words": [f"turn {turn}"]})
        saver.prune([thread_id])
        run(client, thread_id, "asks", command={"resume": "one"})
        saver.prune([thread_id])
        answered = run(client, thread_id, "asks", command={"resume": "two"})
    assert answered["words"][-2:] == ["one", "two"]


def test_a_state_is_changed_and_forked(client: SyncLangGraphClient) -> None:
    thread_id = new_thread(client)
    talk(client, thread_id, "agent", "words", 2)
    rows: list[Any] = client.threads.get_history(thread_id, limit=100)
    (*_, first) = [
        row for row in rows if len(row["values"].get("words", [])) == 2 and not row["next"]
    ]
    client.threads.update_state(
        thread_id, {"words": ["changed"]}, as_node="say", checkpoint=first["checkpoint"]
    )
    assert state(client, thread_id)["words"] == ["turn 0", "heard turn 0", "changed"]
    forked = run(client, thread_id, "agent", input={"words": ["on"]})
    assert forked["words"] == ["turn 0", "heard turn 0", "changed", "on", "heard on"]


def test_a_copy_of_a_thread_stands_alone(client: SyncLangGraphClient, served_database: DB) -> None:
    thread_id = new_thread(client)
    before = talk(client, thread_id, "agent", "words", 2)
    known = set(served_database["checkpoints"].distinct("thread_id"))
    client.threads.copy(thread_id)
    (copy,) = set(served_database["checkpoints"].distinct("thread_id")) - known
    assert state(client, copy) == before
    client.threads.delete(thread_id)
    assert counts(served_database, thread_id) == [0, 0, 0]
    assert run(client, copy, "agent", input={"words": ["on"]})["words"][:4] == before["words"]
    with pytest.raises(NotFoundError):
        client.threads.get_state(thread_id)


def test_a_run_that_another_rolls_back_leaves_nothing(
    client: SyncLangGraphClient, served_database: DB
) -> None:
    thread_id = new_thread(client)
    run(client, thread_id, "agent", input={"words": ["first"]})
    slow = start(client, thread_id, "slow one")
    its_own = {"thread_id": thread_id, "run_id": slow["run_id"]}
    wait_for(lambda: served_database["checkpoints"].count_documents(its_own))
    done = run(
        client, thread_id, "agent", input={"words": ["instead"]}, multitask_strategy="rollback"
    )
    assert done["words"] == ["first", "heard first", "instead", "heard instead"]
    assert state(client, thread_id) == done
    wait_for(lambda: not served_database["checkpoints"].count_documents(its_own))


def test_a_run_that_another_interrupts_keeps_what_it_did(client: SyncLangGraphClient) -> None:
    thread_id = new_thread(client)
    slow = start(client, thread_id, "slow one")
    wait_for(lambda: client.runs.get(thread_id, slow["run_id"])["status"] == "running")
    wait_for(lambda: client.threads.get_history(thread_id))
    done = run(
        client, thread_id, "agent", input={"words": ["instead"]}, multitask_strategy="interrupt"
    )
    assert done["words"][-2:] == ["instead", "heard instead"]
    assert "slow one" in done["words"]


@pytest.mark.parametrize("graph", ["agent", "delta"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_run_is_deleted_and_the_state_of_the_others_stays_whole(
    client: SyncLangGraphClient, served_database: DB, graph: str, place: int
) -> None:
    channel = {"agent": "words", "delta": "log"}[graph]
    thread_id = new_thread(client)
    states = [talk(client, thread_id, graph, channel, 1) for _ in range(3)]
    runs = client.runs.list(thread_id)
    runs.sort(key=lambda one: one["created_at"])
    client.runs.delete(thread_id, runs[place]["run_id"])
    visible = {"thread_id": thread_id, "run_id": runs[place]["run_id"], "retained": None}
    assert served_database["checkpoints"].count_documents(visible) == 0
    expected = states[2] if place < 2 else states[1]
    assert state(client, thread_id) == expected
    after = run(client, thread_id, graph, input={channel: ["on"]})
    assert after[channel][:-1] == [*expected[channel], "on"]


def test_a_pruned_thread_of_a_delta_channel_is_whole_and_goes_on(
    client: SyncLangGraphClient, saver: MongoDBSaver
) -> None:
    thread_id = new_thread(client)
    before = talk(client, thread_id, "delta", "log", 3)
    assert len(before["log"]) == 6
    saver.prune([thread_id])
    assert state(client, thread_id) == before
    assert len(client.threads.get_history(thread_id, limit=100)) == 1
    after = run(client, thread_id, "delta", input={"log": ["on"]})
    assert after["log"] == [*before["log"], "on", "noted 7"]


def test_a_delta_channel_whose_ancestors_are_gone_is_an_error_and_stays_as_it_is(
    client: SyncLangGraphClient, served_database: DB
) -> None:
    thread_id = new_thread(client)
    talk(client, thread_id, "delta", "log", 3)
    row = client.threads.get_history(thread_id, limit=1)[0]
    older = {"$lt": row["checkpoint"]["checkpoint_id"]}
    served_database["checkpoints"].delete_many({"thread_id": thread_id, "checkpoint_id": older})
    failed = run(client, thread_id, "delta", input={"log": ["on"]}, raise_error=False)
    assert "MissingChannelValueError" in str(failed)
    assert counts(served_database, thread_id)[0] == 1


@pytest.mark.parametrize("how", ["delete", "prune"])
def test_a_deleted_thread_leaves_nothing(
    client: SyncLangGraphClient, served_database: DB, how: str
) -> None:
    kept, thread_id = new_thread(client), new_thread(client)
    for one in (kept, thread_id):
        talk(client, one, "agent", "words", 2)
    before = counts(served_database, kept)
    if how == "delete":
        client.threads.delete(thread_id)
    else:
        client.threads.prune([thread_id])
    assert counts(served_database, thread_id) == [0, 0, 0]
    assert counts(served_database, kept) == before


def test_a_thread_of_an_older_release_goes_on_once_it_is_migrated(
    client: SyncLangGraphClient, saver: MongoDBSaver, served_database: DB, old_saver: OldSaver
) -> None:
    """The server counts versions in strings, and the older release did in whole numbers."""
    old_saver.make("chat")
    thread_id: str = client.threads.create(graph_id="chat")["thread_id"]
    for name in COLLECTIONS[:2]:
        served_database[name].update_many({"thread_id": "chat"}, {"$set": {"thread_id": thread_id}})
    before = state(client, thread_id)
    assert before["total"] == 2
    given: dict[str, Any] = {"messages": [{"role": "user", "content": "on"}]}
    failed = run(client, thread_id, "chat", input=given, raise_error=False)
    assert "'>' not supported between instances of 'str' and 'int'" in str(failed)
    assert state(client, thread_id) == before

    assert saver.migrate_thread(thread_id) > 0

    assert state(client, thread_id) == before
    after = run(client, thread_id, "chat", input=given)
    assert after["log"] == [*before["log"], "reply 5", "end"]
    assert len(client.threads.get_history(thread_id, limit=100)) == 12
