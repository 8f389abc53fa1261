from __future__ import annotations

from typing import Any

import bson
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
)
from langgraph.checkpoint.mongodb._database.port import run
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, WHOLE
from langgraph.checkpoint.mongodb._layout.states import UNPROVEN, VISIBLE
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.put import put
from tests.support import checkpoint, thread
from tests.unit_tests.puts import (
    ENTRY,
    INSERTED,
    KEY,
    LARGE,
    MB,
    PARENT,
    UPDATED,
    V1,
    V2,
    committed,
    inserted,
    knowing,
    parent_document,
    put_second,
)
from tests.unit_tests.scripted import ScriptedPort


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
