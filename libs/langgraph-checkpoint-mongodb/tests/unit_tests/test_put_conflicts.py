"""What a put does when its parent is not as it was read."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from mongomock.filtering import filter_applies

from langgraph.checkpoint.mongodb import (
    MissingChannelValueError,
)
from langgraph.checkpoint.mongodb._database.port import Update, Updated, run
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.states import DOOMED, UNPROVEN
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.put import put
from tests.support import checkpoint, needs_delta_channels, thread
from tests.unit_tests.puts import (
    ENTRY,
    INSERTED,
    KEY,
    LARGE,
    PARENT,
    UPDATED,
    V1,
    V2,
    committed,
    inserted,
    knowing,
    parent_document,
    put_second,
    taken,
)
from tests.unit_tests.scripted import ScriptedPort

STOPPED = Updated(1, stopped=True)

PROOF = {"$unset": {UNPROVEN: ""}}


def test_what_relies_on_its_parent_requires_it_in_the_same_command() -> None:
    port = knowing(("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    own, parent, proof = port.asked[-1].given
    assert own.update["$setOnInsert"] == {UNPROVEN: True}
    assert parent.required
    assert (proof.filter, proof.update) == ({**KEY.query(), DOOMED: None}, PROOF)


def test_a_parent_that_is_being_removed_does_not_count() -> None:
    port = knowing(("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    query = port.asked[-1].given[1].filter
    stored = {**PARENT.query(), "channels": [ENTRY.to_document()]}
    assert filter_applies(query, stored)  # type: ignore[no-untyped-call]
    doomed = {**stored, DOOMED: [ObjectId()]}
    assert not filter_applies(query, doomed)  # type: ignore[no-untyped-call]


def test_a_lost_parent_means_that_carried_values_are_written_under_own_keys() -> None:
    own = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": f"{V1}@2"}
    again = [("insert", []), ("update", UPDATED), ("find", [own]), ("update", UPDATED)]
    port = knowing(("update", STOPPED), ("find", []), *again)
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    assert [document["version"] for document in inserted(port)] == [f"{V1}@2"]
    assert [entry["version"] for entry in committed(port)["channels"]] == [f"{V1}@2"]
    assert UNPROVEN not in committed(port)
    assert proofs(port) == [len(port.asked) - 1]


def test_what_must_be_rebuilt_from_a_lost_parent_cannot_be_stored() -> None:
    port = knowing(
        ("update", STOPPED), ("find", []), ("delete", 1), parent=CheckpointInfo(SPLIT, {})
    )
    with pytest.raises(MissingChannelValueError) as failed:
        put_second(port, {}, {"log": V1}, metadata={COUNTERS: {"log": (1, 1)}})
    assert failed.value.missing == [("log", V1)]
    assert failed.value.cause == "deleted while written"
    assert (port.asked[-1].role, port.asked[-1].given) == ("checkpoints", KEY.query())
    assert port.memory.info(KEY) is None


def test_a_snapshot_that_went_with_a_lost_parent_is_named() -> None:
    held = {"log": ManifestEntry("log", V1, 10, snapshot=True)}
    port = knowing(
        ("update", STOPPED), ("find", []), ("delete", 1), parent=CheckpointInfo(SPLIT, held)
    )
    with pytest.raises(MissingChannelValueError) as failed:
        put_second(port, {}, {"log": V1}, new={})
    assert failed.value.missing == [("log", V1)]


def test_a_checkpoint_that_was_there_before_is_not_removed_by_a_put_that_fails() -> None:
    script = [("update", Updated(0, stopped=True)), ("find", [])]
    port = knowing(*script, parent=CheckpointInfo(SPLIT, {}))
    with pytest.raises(MissingChannelValueError):
        put_second(port, {}, {"log": V1}, metadata={COUNTERS: {"log": (1, 1)}})
    assert "checkpoints.delete" not in port.methods


def test_a_delta_channel_that_was_never_written_relies_on_nothing() -> None:
    port = knowing(("insert", []), parent=CheckpointInfo(SPLIT, {}))
    put_second(port, {}, {}, metadata={COUNTERS: {"log": (0, 1)}})
    assert port.methods == ["checkpoints.insert"]
    assert len(port.asked[-1].given) == 1


@needs_delta_channels
def test_a_snapshot_is_written_and_named_as_one() -> None:
    port = knowing(("insert", []), ("update", INSERTED), parent=CheckpointInfo(SPLIT, {}))
    put_second(port, {"log": DeltaSnapshot([1])}, {"log": V2})
    (entry,) = committed(port)["channels"]
    assert (entry["channel"], entry["snapshot"]) == ("log", True)


def begun(*script: tuple[str, Any]) -> ScriptedPort:
    port = ScriptedPort(*script)
    port.memory.note_layout("t", SPLIT)
    return port


def put_first_large(port: ScriptedPort) -> None:
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), None)
    made = checkpoint({"large": LARGE}, {"large": V1}, id="2")
    run(put(call, thread("t"), made, {}, {"large": V1}))


def proofs(port: ScriptedPort) -> list[int]:
    """Where, among what was asked, the mark of checkpoint 2 is taken off by itself."""
    proof = [Update({**KEY.query(), DOOMED: None}, PROOF)]
    return [place for place, one in enumerate(port.asked) if one.given == proof]


def test_the_first_checkpoint_of_a_thread_looks_whether_its_values_stayed() -> None:
    stored = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": V1}
    port = begun(("insert", []), ("update", INSERTED), ("find", [stored]), ("update", UPDATED))
    put_first_large(port)
    asked = port.asked[2]
    assert (asked.role, asked.options["primary"]) == ("values", True)
    assert "value" not in asked.options["projection"]


def test_the_first_checkpoint_of_a_thread_is_not_seen_before_its_values_are() -> None:
    stored = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": V1}
    port = begun(("insert", []), ("update", INSERTED), ("find", [stored]), ("update", UPDATED))
    put_first_large(port)
    assert port.methods == [
        *("values.insert", "checkpoints.update", "values.find", "checkpoints.update")
    ]
    (own,) = port.asked[1].given
    assert (own.update["$setOnInsert"], own.upsert) == ({UNPROVEN: True}, True)
    assert proofs(port) == [3]


def test_values_deleted_with_their_thread_while_it_began_are_written_again() -> None:
    stored = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": V1}
    port = begun(
        ("insert", []),
        ("update", INSERTED),
        ("find", []),
        ("find", []),
        ("insert", []),
        ("update", UPDATED),
        ("find", [stored]),
        ("update", UPDATED),
    )
    put_first_large(port)
    assert len(inserted(port)) == 2
    assert proofs(port) == [7]


def test_a_thread_that_is_deleted_all_the_time_is_given_up_without_a_trace() -> None:
    attempt = [("insert", []), ("update", INSERTED), ("find", []), ("find", [])]
    port = begun(*(5 * attempt), ("delete", 1))
    with pytest.raises(MissingChannelValueError) as failed:
        put_first_large(port)
    assert failed.value.missing == [("large", V1)]
    assert (port.asked[-1].role, port.asked[-1].given) == ("checkpoints", KEY.query())
    assert proofs(port) == []


def test_a_value_that_was_there_already_is_looked_at_before_its_checkpoint_is_seen() -> None:
    port = taken(("update", UPDATED), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2})
    asked = port.asked[3]
    assert (asked.role, asked.given[DOOMED]) == ("values", None)
    assert proofs(port) == [4]


def test_a_proof_that_finds_its_checkpoint_being_removed_does_not_count() -> None:
    missed, doomed = Updated(1, missed=1), {**KEY.query(), DOOMED: [ObjectId()]}
    parent = parent_document()
    found = [("find", [parent, doomed]), ("update_many", 1), ("find", [parent])]
    script = [("update", missed), *found]
    port = knowing(*script, ("update", UPDATED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    assert port.asked[2].options["update"] == {"$unset": {DOOMED: ""}}


def test_a_parent_that_was_changed_since_it_was_read_is_read_again() -> None:
    token = ObjectId()
    found = {**parent_document(), "rekeyed": token}
    port = knowing(("update", STOPPED), ("find", [found]), ("find", [found]), ("update", UPDATED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    assert port.methods == [
        "checkpoints.update",
        "checkpoints.find",
        "checkpoints.find",
        "checkpoints.update",
    ]
    assert port.asked[-1].given[1].filter["rekeyed"] == token
