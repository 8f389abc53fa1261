"""What is sent and stored for values that grow."""

from __future__ import annotations

import re
from typing import Any

import bson
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.face import Face, MakeFace
from tests.integration_tests.growing_threads import AES_KEY, LARGE, Data, chat, many, message
from tests.support import Chain, CommandCounter, contents, thread, values_of


def test_a_turn_of_a_long_chat_sends_what_is_new(counted: Face, counter: CommandCounter) -> None:
    chain = chat(counted, 60)
    with counter.recording():
        for turn in range(60, 80):
            chain.put({"question": turn})
            for number in (2 * turn, 2 * turn + 1):
                chain.put({"messages": [*chain.values["messages"], message(number)]})
    sent = sum(command.size for command in counter.commands) / 20
    assert len(str(chain.values["messages"])) > 90_000
    assert sent < 11_000
    assert len(counter.commands) / 20 <= 3.6


def test_another_process_goes_on_sending_what_is_new(
    counted: Face, counter: CommandCounter
) -> None:
    chain = chat(counted, 60)
    for known in ("read", "not read"):
        chain.face = counted.fresh()
        chain.face.setup()
        if known == "read":
            chain.face.get_tuple(thread())
        with counter.recording():
            chain.put({"messages": [*chain.values["messages"], message(500)]})
        assert sum(command.size for command in counter.commands) < 8_000
        assert values_of(chain.face, thread()) == chain.values


def test_a_history_receives_each_piece_once(counted: Face, counter: CommandCounter) -> None:
    chat(counted, 40)
    with counter.recording():
        rows = counted.list(thread())
    assert len(rows) == 121
    asked = [one for one in counter.commands if one.collection == "checkpoint_channel_values"]
    wanted = re.findall(r"'\$in': \[([\d, None]+)\]", str([one.document for one in asked]))
    numbers = [one for group in wanted for one in group.split(", ") if one != "None"]
    assert len(numbers) == len(set(numbers)) > 5


def test_after_a_prune_at_every_turn_little_more_than_the_value_is_stored(
    face: Face, database: Data
) -> None:
    chain = Chain(face)
    for turn in range(150):
        chain.put({"messages": [*chain.values.get("messages", []), message(turn, 1500)]})
        if turn % 10 == 9:
            face.prune(["t"])
    stored = sum(len(bson.encode(one)) for found in contents(database).values() for one in found)
    newest = len(JsonPlusSerializer().dumps_typed(chain.values["messages"])[1])
    assert stored < 1.5 * newest


def test_without_encryption_a_chat_could_be_read(face: Face, database: Data) -> None:
    chat(face, 10)
    stored = b"".join(one["value"] for one in database["checkpoint_channel_values"].find({}))
    assert b"00003" in stored


def test_encrypted_pieces_show_nothing_and_grow_as_well(
    make_face: MakeFace, database: Data, counter: CommandCounter
) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(key=AES_KEY)
    face = make_face(serde=serde, client_kwargs={"event_listeners": [counter]})
    chain = chat(face, 40)
    with counter.recording():
        chain.put({"messages": [*chain.values["messages"], message(500)]})
    assert sum(command.size for command in counter.commands) < 8_000
    face = make_face(serde=serde)
    assert values_of(face, thread()) == chain.values
    # Equal pieces of two threads do not show either.
    chat(face, 40, thread_id="other")
    everything = bson.encode({"all": [*contents(database).values()]})
    assert b"00003" not in everything
    documents = [*database["checkpoint_channel_values"].find({})]
    values = [one["value"] for one in documents]
    assert len(set(values)) == len(values) > 10
    assert {one["type"] for one in documents} == {"bytes+aes"}
    assert len({one.get("part") for one in documents}) == len(documents)


class Reversed(JsonPlusSerializer):
    """A serializer whose bytes are not LangGraph's."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        type_, data = super().dumps_typed(obj)
        return type_, bytes(data)[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0], data[1][::-1]))


def test_values_of_another_serializer_are_stored_whole(make_face: MakeFace, database: Data) -> None:
    face = make_face(serde=Reversed())
    chain = chat(face, 10)
    assert values_of(face, thread()) == chain.values
    assert database["checkpoints"].count_documents({"channels.pieces": {"$exists": True}}) == 0


def test_many_small_values_are_read_in_two_commands(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put(many(1000, 200))
    face = counted.fresh()
    face.setup()
    with counter.recording():
        assert values_of(face, thread()) == chain.values
    assert counter.names == ["aggregate", "find"]
    assert sum(command.size for command in counter.commands) < 1200


def test_a_step_that_changes_one_of_many_sends_little(
    counted: Face, counter: CommandCounter
) -> None:
    chain = Chain(counted)
    chain.put(many(1000, 200))
    with counter.recording():
        for number in range(50):
            chain.put({f"channel_{number:04}": f"changed {number}" * 15})
    assert sum(command.size for command in counter.commands) / 50 < 40_000
    assert len(counter.commands) < 60
    assert values_of(counted.fresh(), thread()) == chain.values


def test_values_leave_a_bundle_and_come_back(face: Face) -> None:
    chain = Chain(face)
    chain.put(many(400, 400))
    chain.put({"channel_0000": "x" * LARGE, "channel_0001": [message(1)] * 10})
    chain.put({}, drop=["channel_0002"])
    assert values_of(face.fresh(), thread()) == chain.values
    chain.face = face.fresh()
    chain.put({"channel_0002": "back", "channel_0000": "small"})
    chain.put({"other": 1})
    assert values_of(face, thread()) == chain.values


def test_a_bundle_that_is_mostly_old_is_written_anew(face: Face, database: Data) -> None:
    chain = Chain(face)
    chain.put(many(300, 400))
    for number in range(6):
        chain.put(dict.fromkeys(many(300, 400), f"{number}" * 300))
    face.prune(["t"])
    stored = sum(len(one["value"]) for one in database["checkpoint_channel_values"].find({}))
    assert stored < 2.5 * 300 * 320
    assert values_of(face, thread()) == chain.values


def test_a_value_that_changes_with_every_step_costs_one_command(
    counted: Face, counter: CommandCounter
) -> None:
    chain = Chain(counted)
    for number in range(3):
        chain.put({"scratch": f"{number}" * LARGE})
    with counter.recording():
        for number in range(10):
            chain.put({"scratch": f"{number}" * LARGE})
    assert len(counter.commands) == 10
    # When it stays, it is stored once, and not sent again.
    with counter.recording():
        for number in range(10):
            chain.put({"n": number})
    assert sum(command.size for command in counter.commands) < LARGE + 10 * 2000
    assert values_of(counted.fresh(), thread()) == chain.values
