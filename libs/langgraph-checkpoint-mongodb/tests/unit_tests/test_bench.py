"""The benchmark counts and judges right; what it measures is its own affair."""

import asyncio
import importlib.util
import io
import json
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable

import bson
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from matplotlib.figure import Figure
from rich.console import Console

if importlib.util.find_spec("langgraph.channels.delta") is None:
    pytest.skip(
        "the benchmark measures delta channels: install langgraph>=1.2 to run its tests",
        allow_module_level=True,
    )

from bench import docs, relay
from bench.plan import TITLES, passes
from bench.plots import PLOTS
from bench.relay import Client, Relay, control, mongo_command
from bench.report import Report
from bench.run import Contestant, Outcome
from bench.targets import Found, verdicts
from bench.workloads import WORKLOADS
from bench.workloads.agents import ScriptedModel

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def command(name: str) -> bytes:
    """A MongoDB wire message with one command."""
    body = struct.pack("<IB", 0, 0) + bson.encode({name: 1, "$db": "any"})
    return struct.pack("<IIII", 16 + len(body), 1, 0, 2013) + body


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
    await writer.wait_closed()


async def all_ended() -> None:
    """Wait until the servers' side of every connection is closed."""
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


async def counted(protocol: str, talk: Talk, delay_s: float = 0) -> dict[str, int]:
    """What a relay before an echo server counts of a talk through it."""
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


def test_relay_ends_with_whoever_started_it() -> None:
    command = [sys.executable, relay.__file__, "127.0.0.1", "1", "mongodb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdin.close()
        assert process.wait(60) == 0


class Paused(asyncio.Transport):
    """A client's connection that is read from although its reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.received = asyncio.Queue[bytes]()
        self.closed = False

    def pause_reading(self) -> None:
        """As asyncio's does while a connection is being made, on some Pythons: nothing."""

    def resume_reading(self) -> None:
        """Nothing to do."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.received.put_nowait(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


@pytest.mark.parametrize("delay_s", [0, 0.001])
async def test_relay_forwards_what_comes_before_the_upstream_connection(delay_s: float) -> None:
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        relay = Relay("127.0.0.1", server.sockets[0].getsockname()[1], "postgres")
        relay.delay_s = delay_s
        client, transport = Client(relay), Paused()
        client.connection_made(transport)
        client.data_received(b"early")
        client.data_received(b"bird")
        await client.connecting
        answer = b""
        while len(answer) < len(b"earlybird"):
            answer += await transport.received.get()
        assert answer == b"earlybird"
        client.connection_lost(None)
        await all_ended()


async def test_relay_closes_a_connection_that_the_upstream_refuses() -> None:
    with socket.socket() as bound:  # listens to nobody
        bound.bind(("127.0.0.1", 0))
        client, transport = Client(Relay("127.0.0.1", bound.getsockname()[1], "postgres")), Paused()
        client.connection_made(transport)
        with pytest.raises(ConnectionRefusedError):
            await client.connecting
        assert transport.closed


async def test_relay_closes_the_upstream_connection_of_a_client_that_left_early() -> None:
    received = []

    async def until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(until_the_end, "127.0.0.1", 0) as server:
        client = Client(Relay("127.0.0.1", server.sockets[0].getsockname()[1], "postgres"))
        transport = Paused()
        client.connection_made(transport)
        client.data_received(b"bye")
        transport.close()
        client.connection_lost(None)
        await client.connecting
        await all_ended()
    assert received == [b"bye"]


def test_a_wire_message_names_its_command() -> None:
    assert mongo_command(command("insert")) == b"insert"
    assert mongo_command(b"too short") == b""


def test_a_promise_about_a_count_is_judged_on_the_median() -> None:
    ours = Outcome("W1", Contestant("ours", "sync"), {"sent_per_step": [4000, 6000, 9000]})
    (verdict,) = verdicts([ours])
    assert not verdict.met
    assert verdict.missed_by == pytest.approx(1.2)


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_keeps_its_figures_whole_in_a_narrow_terminal(width: int) -> None:
    report = Report(quick=True, servers={})
    values = iter(range(101, 1000))
    for peer in ("ours", "0.5.1", "postgres", "memory"):
        for face in ("sync", "async"):
            runs = {
                "node_steps_per_s_at_5ms": [float(next(values))],
                "sent_per_step": [next(values) * 1e6],
            }
            report.add([Outcome("W6", Contestant(peer, face), runs)])
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    report.show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert max(len(line) for line in shown.splitlines()) <= width
    numbers = re.findall(r"(?<![\d.x])1\d\d\b", shown)
    assert sorted({*numbers}) == [str(number) for number in range(101, 117)]
    assert len(re.findall(r"\(x\d\.\d\d\)", shown)) == 1 + 6


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


def test_every_workload_has_a_title_and_is_run() -> None:
    assert list(TITLES) == list(WORKLOADS)
    assert all(passes(workload, quick=False, turns=5) for workload in TITLES)


def test_a_figure_may_be_promised_against_another_one_of_ours() -> None:
    runs = {
        "list_sent_per_turn": [21.0],
        "delta_sent_per_turn": [10.0],
        "list_read_ms": [3.0],
        "delta_read_ms": [4.0],
    }
    judged = verdicts([Outcome("W13", Contestant("ours", "sync"), runs)])
    assert [(one.target.figure, one.met) for one in judged] == [
        ("list_sent_per_turn", False),
        ("list_read_ms", True),
    ]


def test_what_is_drawn_stands_in_no_table() -> None:
    runs = {"sent_per_turn": [12_000.0], "point_sent_20": [345_000.0]}
    sweep = {"point_get_ms_20_1": [1.0]}
    report = Report(quick=True, servers={})
    ours = Contestant("ours", "sync")
    report.add([Outcome("W2", ours, runs), Outcome("W4c", ours, sweep)])
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    report.show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "12 kB" in shown
    assert "345" not in shown
    assert "W4c" not in shown
    page = "\n".join(docs._figures(report.outcomes))
    assert "sent per turn" in page
    assert "point" not in page
    assert "W4c" not in page


def lines_drawn(plot: str, outcomes: list[Outcome]) -> list[int]:
    """How many lines each panel of a plot shows."""
    figure = Figure()
    PLOTS[plot](figure, Found(outcomes), "#000000")
    return [len(axes.lines) for axes in figure.axes]


def test_a_plot_has_a_line_for_each_peer_that_was_measured() -> None:
    turns = {f"point_sent_{turn}": [13_000.0 + turn] for turn in range(20, 201, 20)}
    delta = {f"point_delta_sent_{turn}": [8_000.0] for turn in range(20, 201, 20)}
    sweep = {f"point_get_ms_200_{count}": [1.0] for count in (1, 10)}
    ours, theirs = Contestant("ours", "sync"), Contestant("postgres", "sync")
    chats = [Outcome("W2", ours, turns), Outcome("W2", theirs, turns), Outcome("W13", ours, delta)]
    assert lines_drawn("turns", chats) == [3, 0]
    assert lines_drawn("many-channels", [Outcome("W4c", ours, sweep)]) == [0, 1, *[0] * 6]
    assert lines_drawn("turns", []) == [0, 0]


def test_the_page_shows_every_plot() -> None:
    page = "".join(docs._plots())
    for name in PLOTS:
        assert page.count(f'"benchmarks/{name}-dark.svg"') == 1
        assert page.count(f'"benchmarks/{name}-light.svg"') == 1


def test_the_scripted_model_calls_three_tools_and_then_answers() -> None:
    model = ScriptedModel()
    asked = [HumanMessage("a question")]
    first = model.invoke(asked)
    assert isinstance(first, AIMessage)
    assert [call["name"] for call in first.tool_calls] == ["search", "search", "download"]
    results = [ToolMessage("found", tool_call_id=call["id"]) for call in first.tool_calls]
    last = model.invoke([*asked, first, *results])
    assert isinstance(last, AIMessage)
    assert last.text
    assert not last.tool_calls
