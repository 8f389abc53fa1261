"""What the published releases do with a thread in the split layout: refuse it, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command
from pymongo.database import Database

from tests.face import Face, MakeFace
from tests.upgrade_tests import today
from tests.upgrade_tests.rig import OldReleaseError, OldSaver

Db = Database[dict[str, Any]]
LARGE = "large " * 5000
REFUSED = [
    {"type": "NotImplementedError", "message": f"Unknown serialization type: {type_}"}
    for type_ in ("split:msgpack", "split-zlib")
]

# What an application may do with a thread; each begins by reading it.
ATTEMPTS: list[Callable[[OldSaver, str], Any]] = [
    lambda old, thread: old.read(thread),
    lambda old, thread: old.invoke(thread, None),
    lambda old, thread: old.invoke(thread, {"resume": "yes"}),
    lambda old, thread: old.invoke(thread, {"name": "new", "log": []}),
    lambda old, thread: old.update(thread, {"name": "new"}, as_node="work"),
]


def make_split(face: Face, thread: str, text: str) -> None:
    """Pause a thread of today's: an interrupt pending, a finished sibling's writes stored."""
    today.invoke(face, thread, {"log": [text], "messages": [HumanMessage(text, id="m")]})


def describe(refused: pytest.ExceptionInfo[OldReleaseError]) -> dict[str, str]:
    """The old release's error as `OldSaver.list` has it."""
    return {"type": refused.value.type, "message": refused.value.message}


def manifests(database: Db, thread: str) -> list[int]:
    """How many values each checkpoint of a thread has outside of it."""
    found = database.checkpoints.find({"thread_id": thread}, {"channels": 1, "layout": 1})
    documents = [*found]
    assert {document["layout"] for document in documents} == {2}
    return [len(document["channels"]) for document in documents]


def test_an_old_release_refuses_split_threads_and_changes_nothing(
    old: OldSaver, face: Face, database: Db
) -> None:
    threads = [f"{graph}-{size}" for graph in ("approval", "nested") for size in ("large", "small")]
    for thread in threads:
        make_split(face, thread, LARGE if thread.endswith("large") else "small")
        assert any(manifests(database, thread)) is thread.endswith("large")
    stored = today.dump(database)

    for thread in threads:
        for attempt in ATTEMPTS:
            with pytest.raises(OldReleaseError) as refused:
                attempt(old, thread)
            assert describe(refused) in REFUSED
    assert today.dump(database) == stored

    for thread in threads:
        today.invoke(face.fresh(), thread, Command(resume="today"))
        assert "ask by today: today" in today.values(today.read(face, thread))["log"]


def test_a_listing_by_an_old_release_stops_at_the_first_split_checkpoint(
    old: OldSaver, face: Face
) -> None:
    old.make("chat-older")
    make_split(face, "nested-large", LARGE)
    make_split(face, "nested-small", "small")
    old.make("chat-newer")

    for thread in ("nested-large", "nested-small"):
        for listed in (old.list(thread), old.list(thread, limit=1)):
            assert not listed["found"]
            assert listed["error"] in REFUSED
    across = old.list(None)
    assert across["error"] in REFUSED
    assert {thread for thread, _ in across["found"]} == {"chat-newer"}
    for thread in ("chat-older", "chat-newer"):
        of_thread = old.list(thread)
        assert (len(of_thread["found"]), of_thread["error"]) == (8, None)


def test_whole_threads_beside_split_ones_go_on_with_the_old_release(
    old: OldSaver, face: Face, database: Db
) -> None:
    old.make("approval")
    make_split(face, "approval-split", LARGE)
    stored = [doc for doc in today.dump(database)["checkpoints"] if "layout" in doc]

    old.invoke("approval", {"resume": "yes"})
    make_split(face, "approval-split", "again")

    today.assert_whole(database, "approval")
    now = [doc for doc in today.dump(database)["checkpoints"] if "layout" in doc]
    assert now[: len(stored)] == stored


def test_an_encrypting_old_release_refuses_an_encrypted_split_thread(
    old: OldSaver, make_face: MakeFace, database: Db
) -> None:
    key = "0123456789abcdef"
    face = make_face(serde=EncryptedSerializer.from_pycryptodome_aes(key=key.encode()))
    make_split(face, "approval", LARGE)
    stored = today.dump(database)

    with pytest.raises(OldReleaseError) as refused:
        old.with_options(aes_key=key).read("approval")

    assert describe(refused) in REFUSED
    assert today.dump(database) == stored


def test_a_thread_that_an_old_release_deleted_begins_anew(
    old: OldSaver, face: Face, database: Db
) -> None:
    """It does not know the channel values and leaves them behind: nothing reads them again."""
    make_split(face, "approval", LARGE)

    old.delete("approval")

    assert face.get_tuple(today.config("approval")) is None
    left = today.dump(database)
    assert not left["checkpoints"]
    assert left["checkpoint_channel_values"]
    today.invoke(face, "approval", {"log": ["anew"]})
    today.invoke(face, "approval", Command(resume="yes"))
    log = today.values(today.read(face.fresh(), "approval"))["log"]
    assert log == ["anew", "ask by today: yes", "work by today", "end by today"]
