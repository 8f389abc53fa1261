from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson import ObjectId
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from mongomock.filtering import filter_applies
from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
)
from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._database.port import Update, Updated, run
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS, DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, WHOLE
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.packing import pack_checkpoint
from langgraph.checkpoint.mongodb._layout.parts import digest
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._layout.states import DOOMED, UNPROVEN, VISIBLE
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.put import put
from langgraph.checkpoint.mongodb._operations.put_writes import put_writes
from tests.support import checkpoint, needs_delta_channels, thread
from tests.unit_tests.scripted import Asked, ScriptedPort
from tests.unit_tests.strategies import CODEC

MB = 1024 * 1024
LARGE = "x" * 2 * INLINE_VALUE_BYTES
V1, V2 = f"{1:032d}.{1:016d}", f"{2:032d}.{2:016d}"
PARENT = CheckpointKey("t", "", "1")
KEY = CheckpointKey("t", "", "2")
ENTRY = ManifestEntry("large", V1, len(LARGE) + 3)
INSERTED, UPDATED = Updated(1), Updated(0)
STOPPED = Updated(1, stopped=True)
PROOF = {"$unset": {UNPROVEN: ""}}


def parent_document() -> Document:
    """The document of the parent as it is stored."""
    type_, data = pack_checkpoint(CODEC, checkpoint({}, {"large": V1}), {})
    fields = {"layout": 2, "channels": [ENTRY.to_document()], "type": type_, "checkpoint": data}
    return {**PARENT.query(), **fields}


def put_second(
    port: ScriptedPort,
    values: Mapping[str, Any],
    versions: Mapping[str, Any],
    *,
    new: Mapping[str, Any] | None = None,
    metadata: Any = None,
    ttl: int | None = None,
) -> Any:
    """Put checkpoint 2 after checkpoint 1; `new` is every channel unless given."""
    made = checkpoint(values, versions, id="2")
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), ttl)
    new_versions: Any = versions if new is None else new
    metadata = metadata or {"step": 1}
    config = thread("t", checkpoint_id="1")
    return run(put(call, config, made, metadata, new_versions))


def knowing(
    *script: tuple[str, Any], parent: CheckpointInfo | None = None, **options: Any
) -> ScriptedPort:
    """A port whose memory knows the parent, which holds `large` at version 1."""
    port = ScriptedPort(*script, **options)
    port.memory.remember(PARENT, parent or CheckpointInfo(SPLIT, {"large": ENTRY}))
    return port


def committed(port: ScriptedPort) -> Document:
    """The fields, beside its key, that the last commit wrote."""
    (*_, one) = [
        document for one in port.asked if one.role == "checkpoints" for document in written(one)
    ]
    return {name: value for name, value in one.items() if name not in CheckpointKey._fields}


def written(asked: Asked) -> list[Document]:
    if asked.method == "insert":
        return list(asked.given)
    if asked.method != "update":
        return []
    return [one.update["$set"] for one in asked.given if "$set" in one.update]


def inserted(port: ScriptedPort) -> list[Document]:
    """The value documents and the pending writes that were inserted."""
    return [
        document
        for one in port.asked
        if one.method == "insert" and one.role != "checkpoints"
        for document in one.given
    ]


# ------------------------------------------------------------------ commands of a step


def test_a_step_of_small_channels_is_one_insert_of_one_document() -> None:
    port = knowing(("insert", []))
    put_second(port, {"small": 1}, {"small": V2})
    assert port.methods == ["checkpoints.insert"]
    (document,) = port.asked[0].given
    assert document.items() >= {**KEY.query(), "parent_checkpoint_id": "1", "layout": 2}.items()
    assert UNPROVEN not in document


def test_a_checkpoint_that_was_put_before_is_updated() -> None:
    port = knowing(("insert", [0]), ("update", UPDATED))
    put_second(port, {"small": 1}, {"small": V2})
    assert port.methods == ["checkpoints.insert", "checkpoints.update"]
    (update,) = port.asked[1].given
    assert (update.filter, update.upsert) == (KEY.query(), True)
    (document,) = port.asked[0].given
    assert document == {**KEY.query(), **update.update["$set"]}


def test_a_checkpoint_that_was_put_before_and_not_proven_then_is_seen_now() -> None:
    port = knowing(("insert", [0]), ("update", UPDATED))
    put_second(port, {"small": 1}, {"small": V2})
    (update,) = port.asked[1].given
    assert update.update["$unset"].keys() >= {UNPROVEN}


def test_a_checkpoint_that_vanishes_while_it_is_put_again_is_stored() -> None:
    port = knowing(("insert", [0]), ("update", INSERTED))
    put_second(port, {"small": 1}, {"small": V2})
    assert port.asked[1].given[0].upsert
    assert port.memory.info(KEY) is not None


def test_a_large_value_is_written_before_the_checkpoint_that_names_it() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2})
    assert port.methods == ["values.insert", "checkpoints.update"]
    assert [document["version"] for document in inserted(port)] == [V2]
    assert [entry["version"] for entry in committed(port)["channels"]] == [V2]


def test_a_large_value_that_did_not_change_is_not_written_again() -> None:
    port = knowing(("update", INSERTED))
    put_second(port, {"large": LARGE, "n": 2}, {"large": V1, "n": V2}, new={"n": V2})
    assert port.methods == ["checkpoints.update"]
    assert committed(port)["channels"] == [ENTRY.to_document()]


def test_the_put_after_a_put_asks_nothing() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2})
    port.play_on(("update", INSERTED))
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), None)
    third = checkpoint({"large": LARGE}, {"large": V2}, id="3")
    run(put(call, thread("t", checkpoint_id="2"), third, {}, {}))
    assert [entry["version"] for entry in committed(port)["channels"]] == [V2]


def test_a_put_answers_the_config_of_its_checkpoint() -> None:
    port = knowing(("insert", []))
    assert put_second(port, {}, {}) == {"configurable": KEY._asdict()}


def test_a_run_is_noted_where_it_can_be_found() -> None:
    port = knowing(("insert", []))
    put_second(port, {}, {}, metadata={"run_id": "r1"})
    assert committed(port)["run_id"] == "r1"


def test_values_that_are_not_written_are_not_named() -> None:
    port = knowing(("insert", AutoReconnect("gone")))
    with pytest.raises(AutoReconnect):
        put_second(port, {"large": LARGE}, {"large": V2})
    assert port.methods == ["values.insert"]
    assert port.memory.info(KEY) is None


@pytest.mark.parametrize(
    "script",
    [
        [("insert", AutoReconnect("gone"))],
        [("insert", [0]), ("update", AutoReconnect("gone"))],
    ],
    ids=["insert", "update"],
)
def test_a_commit_that_failed_is_not_remembered(script: list[tuple[str, Any]]) -> None:
    port = knowing(*script)
    with pytest.raises(AutoReconnect):
        put_second(port, {"small": 1}, {"small": V2})
    assert port.memory.info(KEY) is None


def test_a_commit_after_its_values_that_failed_is_not_remembered() -> None:
    port = knowing(("insert", []), ("update", AutoReconnect("gone")))
    with pytest.raises(AutoReconnect):
        put_second(port, {"large": LARGE}, {"large": V2})
    assert port.methods == ["values.insert", "checkpoints.update"]
    assert port.memory.info(KEY) is None


# ------------------------------------------------------------------ what is known of the parent


def first_put(port: ScriptedPort) -> None:
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), None)
    run(put(call, thread("t"), checkpoint({}, {}, id="1"), {}, {}))


def test_a_first_checkpoint_asks_once_whether_its_thread_is_new() -> None:
    port = ScriptedPort(("find", []), ("insert", []))
    first_put(port)
    assert port.asked[0].given == {"thread_id": "t"}
    assert committed(port)["layout"] == 2


def test_after_a_read_that_found_nothing_it_asks_nothing() -> None:
    port = ScriptedPort(("insert", []))
    port.memory.note_layout("t", SPLIT)
    first_put(port)
    assert port.methods == ["checkpoints.insert"]


def test_an_unknown_parent_is_read_from_the_primary() -> None:
    entries = [ENTRY.to_document()]
    port = ScriptedPort(("find", [parent_document()]), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    asked = port.asked[0]
    assert (asked.given, asked.options["primary"]) == (
        {**PARENT.query(), **VISIBLE},
        True,
    )
    assert committed(port)["channels"] == entries


def test_an_unknown_parent_of_the_whole_layout_is_read_for_what_the_graph_does_not_know() -> None:
    type_, data = JsonPlusSerializer().dumps_typed(checkpoint({"other": 1}, {"other": 1}))
    whole = {**PARENT.query(), "type": type_, "checkpoint": data}
    port = ScriptedPort(("find", [whole]), ("find", [whole]), ("insert", []))
    put_second(port, {"large": LARGE}, {"large": 2, "other": 1}, new={})
    assert port.asked[0].given == {**PARENT.query(), **VISIBLE}
    fields = committed(port)
    stored = JsonPlusSerializer().loads_typed((fields["type"], fields["checkpoint"]))
    assert stored["channel_values"] == {"large": LARGE, "other": 1}


def test_after_a_parent_that_is_not_there_everything_is_written() -> None:
    port = ScriptedPort(
        ("find", []),
        ("find", [{"layout": 2}]),
        ("insert", []),
        ("update", INSERTED),
        (
            "find",
            [{"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": f"{V1}@2"}],
        ),
        ("update", UPDATED),
    )
    put_second(port, {"large": LARGE}, {"large": V1}, new={})
    assert [document["channel"] for document in inserted(port)] == ["large"]


def test_a_thread_of_the_whole_layout_goes_on_in_it() -> None:
    port = knowing(("insert", []), parent=CheckpointInfo(WHOLE, {}))
    put_second(port, {"large": LARGE}, {"large": 2})
    fields = committed(port)
    assert ("layout" in fields, "channels" in fields, fields["type"]) == (False, False, "msgpack")
    stored = JsonPlusSerializer().loads_typed((fields["type"], fields["checkpoint"]))
    assert stored["channel_values"] == {"large": LARGE}
    remembered = port.memory.info(KEY)
    assert remembered is not None
    assert remembered.layout == WHOLE


# ------------------------------------------------------------------ relying on the parent


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


def taken(*script: tuple[str, Any]) -> ScriptedPort:
    """A port whose server has the value of `large` at version 2 already."""
    stored = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": V2}
    return knowing(("insert", [0]), *script, ("find", [stored]), ("update", UPDATED))


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


# ------------------------------------------------------------------ sizes


def test_nothing_is_written_when_one_channel_is_too_large() -> None:
    port = knowing()
    with pytest.raises(ChannelTooLargeError, match="its value document") as failed:
        put_second(port, {"fits": LARGE, "docs": "x" * 17 * MB}, {"fits": V2, "docs": V2})
    assert (failed.value.channel, failed.value.limit) == ("docs", 16 * MB)
    assert failed.value.size > 17 * MB
    assert port.asked == []


def test_a_document_may_be_exactly_as_large_as_the_limit() -> None:
    with pytest.raises(ChannelTooLargeError) as failed:
        put_second(knowing(limit=5), {"large": LARGE}, {"large": V2})
    size = failed.value.size
    exact = knowing(("insert", []), ("update", INSERTED), limit=size)
    put_second(exact, {"large": LARGE}, {"large": V2})
    with pytest.raises(ChannelTooLargeError):
        put_second(knowing(limit=size - 1), {"large": LARGE}, {"large": V2})


def test_an_item_of_the_input_that_is_too_large_is_named() -> None:
    port = knowing()
    values = {"__start__": {"small": 1, "docs": "x" * 17 * MB}}
    with pytest.raises(ChannelTooLargeError, match="docs"):
        put_second(port, values, {"__start__": V2})
    assert port.asked == []


def test_items_of_the_input_that_fit_one_by_one_are_stored() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    values = {"__start__": {"docs": b"x" * 9 * MB, "more": b"y" * 9 * MB}}
    put_second(port, values, {"__start__": V2})
    assert len(inserted(port)) == 3


def test_nothing_is_written_when_the_metadata_is_too_large() -> None:
    port = knowing()
    with pytest.raises(CheckpointTooLargeError, match="its metadata"):
        put_second(port, {"large": LARGE}, {"large": V2}, metadata={"log": "x" * 17 * MB})
    assert port.asked == []


def test_a_checkpoint_is_measured_with_the_mark_that_it_has_at_first() -> None:
    values, versions = {"large": LARGE}, {"large": V1}
    port = knowing(("update", INSERTED))
    put_second(port, values, versions, new={})
    at_first = {**KEY.query(), **committed(port), UNPROVEN: True}
    size = len(bson.encode({"_id": bson.ObjectId(), **at_first}))
    put_second(knowing(("update", INSERTED), limit=size), values, versions, new={})
    with pytest.raises(CheckpointTooLargeError) as failed:
        put_second(knowing(limit=size - 1), values, versions, new={})
    assert failed.value.size == size


def test_nothing_is_written_when_the_values_of_an_old_thread_are_too_large_together() -> None:
    port = knowing(parent=CheckpointInfo(WHOLE, {}))
    with pytest.raises(CheckpointTooLargeError, match="old layout"):
        put_second(port, {"a": "x" * 9 * MB, "b": "y" * 9 * MB}, {"a": 2, "b": 2})
    assert port.asked == []


# ------------------------------------------------------------------ TTL


def test_with_a_ttl_every_document_is_stamped_and_a_value_no_earlier_than_its_checkpoint() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2}, ttl=3600)
    assert inserted(port)[0]["created_at"] >= committed(port)["created_at"]


def test_without_a_ttl_nothing_is_stamped() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2})
    assert not any("created_at" in document for document in [*inserted(port), committed(port)])


def carried_with(stamped: datetime | None, ttl: int | None) -> ScriptedPort:
    """Carry a value whose stamp is known, and answer what was asked."""
    script: list[tuple[str, Any]] = [("update", UPDATED), ("update", UPDATED)]
    port = knowing(*script, parent=CheckpointInfo(SPLIT, {"large": ENTRY}, stamped))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=ttl)
    return port


def test_a_carried_value_whose_stamp_lies_in_the_past_is_stamped_anew() -> None:
    port = carried_with(wall_time() - timedelta(minutes=5), 3600)
    assert port.methods == ["values.update", "checkpoints.update"]
    (update,) = port.asked[0].given
    assert update.update["$set"]["created_at"] >= committed(port)["created_at"]


def test_only_what_has_a_stamp_is_stamped_anew() -> None:
    port = carried_with(wall_time() - timedelta(minutes=5), 3600)
    (update,) = port.asked[0].given
    assert update.filter["created_at"] == {"$exists": True}
    assert not update.upsert


def test_a_carried_value_whose_stamp_lies_ahead_is_left_alone() -> None:
    ahead = wall_time() + timedelta(seconds=50)
    port = knowing(("update", INSERTED), parent=CheckpointInfo(SPLIT, {"large": ENTRY}, ahead))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=3600)
    assert port.methods == ["checkpoints.update"]
    remembered = port.memory.info(KEY)
    assert remembered is not None
    assert remembered.stamped == ahead


def test_a_ttl_given_up_takes_the_stamps_of_carried_values_away() -> None:
    port = carried_with(wall_time() + timedelta(seconds=50), None)
    (update,) = port.asked[0].given
    assert update.update == {"$unset": {"created_at": ""}}


def test_a_value_that_never_expires_is_left_alone_when_a_ttl_begins() -> None:
    port = knowing(("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=3600)
    assert port.methods == ["checkpoints.update"]


def test_a_value_that_was_there_already_is_stamped_anew() -> None:
    port = taken(("update", UPDATED), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2}, ttl=3600)
    assert port.methods[:3] == ["values.insert", "values.update", "checkpoints.update"]


# ------------------------------------------------------------------ pending writes


def write(port: ScriptedPort, *writes: tuple[str, Any], ttl: int | None = None) -> None:
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), ttl)
    run(put_writes(call, thread("t", checkpoint_id="2"), writes, "task", "~path"))


def test_no_writes_ask_nothing() -> None:
    write(ScriptedPort())


def test_writes_are_one_insert_that_leaves_what_is_there() -> None:
    whole = [{"idx": 0}, {"idx": 1}]
    port = ScriptedPort(("insert", [0]), ("find", whole), ("delete", 0))
    write(port, ("a", 1), ("b", LARGE))
    assert [document["idx"] for document in inserted(port)] == [0, 1]
    assert port.asked[-1].given["attempt"] == inserted(port)[0]["attempt"]


def test_a_special_write_replaces_and_the_others_stay() -> None:
    port = ScriptedPort(("insert", []), ("update", UPDATED))
    write(port, ("a", 1), ("__error__", "e"))
    assert [document["idx"] for document in inserted(port)] == [0]
    (error,) = port.asked[1].given
    assert (list(error.update), error.filter["idx"]) == (["$set"], -1)
    assert error.upsert


def test_nothing_is_written_when_one_write_is_too_large() -> None:
    with pytest.raises(ChannelTooLargeError, match="pending write of task 'task'") as failed:
        write(ScriptedPort(), ("a", 1), ("docs", "x" * 17 * MB))
    assert failed.value.channel == "docs"


def test_writes_are_stamped_only_with_a_ttl() -> None:
    stamped, plain = ScriptedPort(("insert", [])), ScriptedPort(("insert", []))
    write(stamped, ("a", 1), ttl=60)
    write(plain, ("a", 1))
    assert "created_at" in inserted(stamped)[0]
    assert "created_at" not in inserted(plain)[0]


# ------------------------------------------------------------------ writes of the graph's input

DOCS = b"d" * MB


def put_input(port: ScriptedPort) -> None:
    """Put checkpoint 2 with an input of one large and one small item."""
    values = {"__start__": {"docs": DOCS, "small": 1}}
    put_second(port, values, {"__start__": V2})


def test_a_write_of_a_large_item_of_the_input_names_it() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_input(port)
    (entry,) = committed(port)["channels"]
    port.play_on(("insert", []))
    write(port, ("docs", DOCS), ("small", 1))
    docs, small = inserted(port)
    assert docs["value"] == b""
    assert (docs["stored"]["channel"], docs["stored"]["version"]) == ("__start__", V2)
    assert 0 < docs["stored"]["part"] < entry["parts"]
    assert (small["value"] != b"", "stored" in small) == (True, False)


@pytest.mark.parametrize("other", [b"D" * MB, bytearray(DOCS), DOCS + b"d"])
def test_a_write_that_differs_from_the_input_holds_its_value(other: Any) -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_input(port)
    port.play_on(("insert", []))
    write(port, ("docs", other))
    assert "stored" not in inserted(port)[0]


def test_a_write_to_a_checkpoint_that_is_not_known_holds_its_value() -> None:
    port = ScriptedPort(("insert", []))
    write(port, ("docs", DOCS))
    assert "stored" not in inserted(port)[0]


def test_a_write_waits_for_the_put_of_its_checkpoint_to_decide() -> None:
    port = ScriptedPort(("insert", []))
    with port.memory.input_in_flight(KEY) as in_flight:
        in_flight.digests = {digest(("bytes", DOCS)): ManifestEntry("__start__", V2, MB)}
        decided = threading.Timer(0.05, in_flight.done.set)
        decided.start()
        write(port, ("docs", DOCS))
        assert in_flight.done.is_set()
        decided.join()
    assert inserted(port)[0]["stored"]["version"] == V2


def test_a_small_write_waits_for_nothing() -> None:
    port = ScriptedPort(("insert", []))
    with port.memory.input_in_flight(KEY):
        write(port, ("small", 1))
    assert len(inserted(port)) == 1


def test_a_write_beside_a_put_that_failed_holds_its_value() -> None:
    port = knowing(("insert", AutoReconnect("gone")))
    with pytest.raises(AutoReconnect):
        put_input(port)
    port.play_on(("insert", []))
    write(port, ("docs", DOCS))
    assert "stored" not in inserted(port)[0]
