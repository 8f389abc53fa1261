"""The benchmark counts and judges right; what it measures is its own affair."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable

import bson
import pytest

from bench.relay import Client, Relay, control, mongo_command
from bench.run import Contestant, Outcome
from bench.targets import verdicts

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def command(name: str) -> bytes:
    """A MongoDB wire message with one command."""
    body = struct.pack("<IB", 0, 0) + bson.encode({name: 1, "$db": "any"})
    return struct.pack("<IIII", 16 + len(body), 1, 0, 2013) + body


async def counted(protocol: str, talk: Talk, delay_s: float = 0) -> dict[str, int]:
    """What a relay before an echo server counts of a talk through it."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        relay = Relay("127.0.0.1", server.sockets[0].getsockname()[1], protocol)
        relay.delay_s = delay_s
        async with await loop.create_server(lambda: Client(relay), "127.0.0.1", 0) as front:
            port = front.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await talk(reader, writer)
            writer.close()
            await writer.wait_closed()
        async with await asyncio.start_server(
            lambda r, w: control(relay, r, w), "127.0.0.1", 0
        ) as orders:
            port = orders.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"stats\n")
            counts: dict[str, int] = json.loads(await reader.readline())
            writer.close()
            await writer.wait_closed()
    return counts


def exchange(*messages: bytes) -> Talk:
    """Send each message and wait for its echo."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for message in messages:
            writer.write(message)
            assert await reader.readexactly(len(message)) == message

    return talk


@pytest.mark.parametrize("delay_s", [0, 0.001])
async def test_relay_counts_bytes_both_ways_and_requests(delay_s: float) -> None:
    counts = await counted("postgres", exchange(b"one", b"three"), delay_s)
    assert counts == {"sent": 8, "received": 8, "requests": 2}


async def test_relay_leaves_out_the_handshake_of_a_mongodb_connection() -> None:
    find = command("find")
    counts = await counted("mongodb", exchange(command("hello"), find, find))
    assert counts == {"sent": 2 * len(find), "received": 2 * len(find), "requests": 2}


async def test_relay_counts_nothing_of_a_monitor() -> None:
    counts = await counted("mongodb", exchange(command("hello"), command("hello")))
    assert counts == {"sent": 0, "received": 0, "requests": 0}


def test_a_wire_message_names_its_command() -> None:
    assert mongo_command(command("insert")) == b"insert"
    assert mongo_command(b"too short") == b""


def test_a_promise_about_a_count_is_judged_on_the_median() -> None:
    ours = Outcome("W1", Contestant("ours", "sync"), {"sent_per_step": [4000, 6000, 9000]})
    (verdict,) = verdicts([ours])
    assert not verdict.met
    assert verdict.missed_by == pytest.approx(1.2)


def test_the_best_turn_of_a_rate_is_the_highest() -> None:
    runs = {"node_steps_per_s": [300.0, 400.0], "node_steps_per_s_at_5ms": [200.0, 100.0]}
    ours = Outcome("W6", Contestant("ours", "sync"), {**runs, "cpu_ms_per_step": [2.0, 1.0]})
    assert ours.value("node_steps_per_s") == 400
    assert ours.value("node_steps_per_s_at_5ms") == 200
    assert ours.value("cpu_ms_per_step") == 1


def test_a_ratio_of_times_compares_the_best_turns() -> None:
    ours = Outcome("W2", Contestant("ours", "async"), {"ms_per_turn": [40, 15, 30]})
    theirs = Outcome("W2", Contestant("0.5.1", "async"), {"ms_per_turn": [20, 10, 90]})
    assert ours.ratio("ms_per_turn", theirs) == pytest.approx(1.5)
