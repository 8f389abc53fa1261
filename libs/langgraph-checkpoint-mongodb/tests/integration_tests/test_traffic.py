"""How many commands and bytes a step takes, counted where they leave."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from tests.face import Face, Kind, MakeFace
from tests.support import (
    LARGE_SIZE,
    MB,
    Chain,
    Command,
    CommandCounter,
    checkpoint,
    thread,
    values_of,
)

Data = Database[dict[str, Any]]

LARGE = b"v" * 100_000
STEPS = 20


# ---------------------------------------------------------------------- commands a step


def test_small_channels_take_one_command_a_step(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0, "b": "x" * 100})
    with counter.recording():
        for number in range(STEPS):
            chain.put({"a": number})
    assert counter.names == ["insert"] * STEPS
    assert {command.collection for command in counter.commands} == {"checkpoints"}


def test_the_first_small_checkpoint_takes_one_command_after_a_read(
    counted: Face, counter: CommandCounter
) -> None:
    chain = Chain(counted)
    counted.get_tuple(thread())
    with counter.recording():
        chain.put({"a": 0})
    assert counter.names == ["insert"]


def test_a_checkpoint_that_is_put_again_takes_two_commands_more(
    counted: Face, counter: CommandCounter
) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    counted.put(thread(), stored, {"step": 0}, {"a": 1})
    with counter.recording():
        counted.put(thread(), stored, {"step": 1}, {"a": 1})
    assert counter.names == ["insert", "insert", "update"]
    (row,) = counted.list(thread())
    assert row.metadata["step"] == 1


def test_small_changes_beside_large_channels_take_one_command_a_step(
    counted: Face, counter: CommandCounter
) -> None:
    chain = Chain(counted)
    chain.put({"a": 0, "docs": LARGE, "more": LARGE})
    with counter.recording():
        for number in range(STEPS):
            chain.put({"a": number})
    assert counter.names == ["update"] * STEPS


def test_large_channels_take_a_second_command(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0, "docs": LARGE, "more": LARGE})
    with counter.recording():
        for number in range(STEPS):
            chain.put({"a": number, "docs": LARGE + bytes([number]), "more": LARGE})
    assert counter.names == ["insert", "update"] * STEPS
    assert counter.commands[0].collection == "checkpoint_channel_values"


def test_the_values_are_sent_before_the_checkpoint(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0})
    with counter.recording():
        chain.put({"docs": LARGE})
    assert [command.collection for command in counter.commands] == [
        "checkpoint_channel_values",
        "checkpoints",
    ]


@pytest.mark.parametrize("writes", [[("a", 1)], [("a", LARGE), ("b", 2)], [("__error__", "e")]])
def test_pending_writes_take_one_command(
    counted: Face, counter: CommandCounter, writes: list[tuple[str, Any]]
) -> None:
    config = Chain(counted).put({"a": 0})
    with counter.recording():
        counted.put_writes(config, writes, "task")
    assert len(counter.names) == 1


def test_a_ttl_takes_no_further_command(make_face: MakeFace, counter: CommandCounter) -> None:
    chain = Chain(make_face(client_kwargs={"event_listeners": [counter]}, ttl=86_400))
    chain.put({"a": 0, "docs": LARGE})
    with counter.recording():
        for number in range(STEPS):
            chain.put({"a": number})
    assert counter.names == ["update"] * STEPS


def test_a_fresh_saver_asks_once_for_the_parent(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0, "docs": LARGE})
    chain.face = counted.fresh()
    chain.face.setup()
    with counter.recording():
        chain.put({"a": 1})
        chain.put({"a": 2})
    assert counter.names == ["find", "update", "update"]


def test_reading_spares_the_question_for_the_parent(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0, "docs": LARGE})
    chain.face = counted.fresh()
    chain.face.get_tuple(thread())
    with counter.recording():
        chain.put({"a": 1})
    assert counter.names == ["update"]


def test_the_size_limit_is_asked_once(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"a": 0})
    with counter.recording():
        for number in range(3):
            chain.put({"docs": bytes([number]) * (2 * MB)})
    # The driver's own command: a saver asks for the limit only when a document is large.
    assert counter.names == ["insert", "update"] * 3


# ---------------------------------------------------------------------- commands a read


@pytest.mark.parametrize("named", [True, False], ids=["a checkpoint", "the newest"])
def test_a_checkpoint_takes_two_reads(counted: Face, counter: CommandCounter, named: bool) -> None:
    config = Chain(counted).put({"a": 0, "docs": LARGE, "more": LARGE})
    counted.put_writes(config, [("a", 1)], "task")
    with counter.recording():
        found = counted.get_tuple(config if named else thread())
    assert counter.names == ["aggregate", "find"]
    assert counter.commands[1].collection == "checkpoint_channel_values"
    assert found is not None
    assert found.pending_writes == [("task", "a", 1)]


@pytest.mark.parametrize("named", [True, False], ids=["a checkpoint", "the newest"])
def test_a_checkpoint_whose_values_are_inline_takes_one(
    counted: Face, counter: CommandCounter, named: bool
) -> None:
    config = Chain(counted).put({"a": 0})
    counted.put_writes(config, [("a", 1)], "task")
    with counter.recording():
        found = counted.get_tuple(config if named else thread())
    assert counter.names == ["aggregate"]
    assert found is not None
    assert found.pending_writes == [("task", "a", 1)]


def test_whole_documents_are_read_without_a_projection(
    counted: Face, counter: CommandCounter
) -> None:
    config = Chain(counted).put({"a": 0, "docs": LARGE})
    counted.put_writes(config, [("a", 1)], "task")
    with counter.recording():
        counted.get_tuple(config)
        counted.list(thread())
    finds = [one for one in counter.commands if one.name == "find"]
    assert {one.collection for one in finds} == {
        "checkpoints",
        "checkpoint_channel_values",
        "checkpoint_writes",
    }
    # For one that leaves out a field, the server copies each document before it sends it.
    assert not any("projection" in one.document for one in finds)


def test_a_thread_that_is_not_there_takes_one_read(counted: Face, counter: CommandCounter) -> None:
    with counter.recording():
        assert counted.get_tuple(thread()) is None
    assert counter.names == ["aggregate"]


def fill(face: Face) -> None:
    chain = Chain(face)
    chain.put({"docs": LARGE})
    for number in range(29):
        config = chain.put({"a": number, "log": [number] * LARGE_SIZE})
        face.put_writes(config, [("a", number + 1)], f"task {number}")


def test_thirty_checkpoints_are_listed_in_four_commands(
    counted: Face, counter: CommandCounter
) -> None:
    fill(counted)
    with counter.recording():
        rows = counted.list(thread())
    assert len(rows) == 30
    assert len(counter.names) <= 4
    assert counter.names.count("getMore") == 0


@pytest.mark.parametrize("limit", [1, 30])
def test_a_filtered_listing_takes_two_commands_more(
    counted: Face, counter: CommandCounter, limit: int
) -> None:
    fill(counted)
    with counter.recording():
        rows = counted.list(thread(), filter={"source": "loop"}, limit=limit)
    assert len(rows) == limit
    assert len(counter.names) <= 6


def test_a_shared_value_is_fetched_once_a_page(counted: Face, counter: CommandCounter) -> None:
    chain = Chain(counted)
    chain.put({"docs": bytes(10 * MB)})
    for number in range(29):
        chain.put({"a": number})
    with counter.recording():
        rows = counted.list(thread())
    assert [len(row.checkpoint["channel_values"]["docs"]) for row in rows] == [10 * MB] * 30
    (values,) = [one for one in counter.commands if one.collection == "checkpoint_channel_values"]
    assert one_pair(values)


def one_pair(command: Command) -> bool:
    query = command.document["filter"]
    return isinstance(query["channel"], str) and isinstance(query["version"], str)


def test_rows_of_a_page_do_not_share_what_can_be_changed(face: Face) -> None:
    chain = Chain(face)
    chain.put({"docs": [LARGE]})
    chain.put({"a": 1})
    rows = face.list(thread())
    rows[0].checkpoint["channel_values"]["docs"].append("changed")
    assert rows[1].checkpoint["channel_values"]["docs"] == [LARGE]


# ---------------------------------------------------------------------- bytes a step


class Relay:
    """Passes a client's bytes on to the server, and counts those that the client sends."""

    def __init__(self, host: str, port: int) -> None:
        self.sent = 0
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=[client], daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(self._target) as server,
            selectors.DefaultSelector() as ready,
            contextlib.suppress(OSError),
        ):
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    source: Any = key.fileobj
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        self.sent += len(data)
                    key.data.sendall(data)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def relay(database: Data) -> Iterator[Relay]:
    address = database.client.address
    assert address is not None
    made = Relay(*address)
    yield made
    made.close()


@pytest.fixture
def metered(face_kind: Kind, relay: Relay, database: Data) -> Iterator[Face]:
    """A saver whose bytes go through the relay, without the driver's heartbeats."""
    uri = f"mongodb://127.0.0.1:{relay.port}/?directConnection=true"
    with contextlib.ExitStack() as closing:
        quiet = {"heartbeatFrequencyMS": 600_000}
        yield Face(face_kind, uri, database.name, closing=closing, client_kwargs=quiet)


# Each of the thirty has a version of its own, and each version is named twice.
@pytest.mark.parametrize(("channels", "most"), [(1, 2_000), (2, 2_000), (30, 7_000)])
def test_fifteen_megabytes_of_state_cost_a_few_kilobytes_a_step(
    metered: Face, relay: Relay, channels: int, most: int
) -> None:
    chain = Chain(metered)
    state = {f"docs {number}": bytes(15 * MB // channels) for number in range(channels)}
    chain.put({"a": 0, **state})
    assert relay.sent > 15 * MB
    before = relay.sent
    for number in range(STEPS):
        chain.put({"a": number})
    assert (relay.sent - before) / STEPS < most
    assert values_of(metered.fresh(), thread()) == chain.values


def test_an_unchanged_channel_is_stored_once(face: Face, database: Data) -> None:
    chain = Chain(face)
    chain.put({"docs": bytes(10 * MB)})
    for number in range(STEPS):
        chain.put({"a": number})
    stored = database.command("dbStats")["dataSize"]
    assert stored < 10 * MB + STEPS * 5_000
