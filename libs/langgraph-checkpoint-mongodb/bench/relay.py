"""A TCP relay that counts the bytes and requests passing through it, and can delay requests.

It runs in a process of its own, so that the work of counting is not done by the process being
measured. A second port answers one JSON line to each command line: ``stats`` or ``latency MS``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from collections import deque
from dataclasses import asdict, dataclass
from typing import cast

OP_MSG, OP_QUERY = 2013, 2004
# What a MongoDB driver says before a connection does work, and all that a monitor ever says.
HANDSHAKE = {b"hello", b"isMaster", b"ismaster", b"saslStart", b"saslContinue", b"endSessions"}


@dataclass
class Counts:
    """Totals since the relay started, in bytes and in client-to-server turns."""

    sent: int = 0
    received: int = 0
    requests: int = 0


def mongo_command(chunk: bytes) -> bytes:
    """Name the command that a MongoDB wire message starts with (empty when it is none)."""
    if len(chunk) < 27:
        return b""
    opcode = int.from_bytes(chunk[12:16], "little")
    if opcode == OP_MSG:
        start = 26  # header 16, flags 4, section kind 1, document length 4, element type 1
    elif opcode == OP_QUERY:
        start = chunk.index(b"\0", 20) + 1 + 8 + 4 + 1
    else:
        return b""
    return chunk[start : chunk.index(b"\0", start)]


class Relay:
    """Shared state of all relayed connections."""

    def __init__(self, host: str, port: int, protocol: str) -> None:
        self.host, self.port, self.protocol = host, port, protocol
        self.counts = Counts()
        self.delay_s = 0.0


class Upstream(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.client.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.transport.close()

    def pause_writing(self) -> None:
        self.client.transport.pause_reading()

    def resume_writing(self) -> None:
        self.client.transport.resume_reading()


class Client(asyncio.Protocol):
    """The client's side of one connection: counts, delays and forwards."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.counting = relay.protocol != "mongodb"
        self.waiting: deque[bytes] = deque()
        self.due = 0  # how many of the waiting chunks have been delayed long enough
        self.upstream: Upstream | None = None
        self.client_spoke_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.pause_reading()
        self.connecting = asyncio.ensure_future(self.connect())

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, upstream = await loop.create_connection(
                lambda: Upstream(self), self.relay.host, self.relay.port
            )
        except OSError:  # the client sees what it would see without a relay
            self.transport.abort()
            raise
        self.upstream = upstream
        self.flush()
        if self.transport.is_closing():
            upstream.transport.close()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if not self.counting:
            self.counting = mongo_command(data) not in HANDSHAKE
        turn = not self.client_spoke_last
        self.client_spoke_last = True
        if self.counting:
            self.relay.counts.sent += len(data)
            self.relay.counts.requests += turn
        self.waiting.append(data)
        if self.relay.delay_s:
            asyncio.get_running_loop().call_later(self.relay.delay_s, self.forward)
        else:
            self.forward()

    def forward(self) -> None:
        self.due += 1
        self.flush()

    def flush(self) -> None:
        """Forward what is due; before the upstream connection is there, it waits."""
        # Bytes can be that early: up to Python 3.11.3 asyncio reads although reading is paused.
        while self.due and self.upstream is not None:
            self.due -= 1
            chunk = self.waiting.popleft()
            if not self.upstream.transport.is_closing():
                self.upstream.transport.write(chunk)

    def answered(self, data: bytes) -> None:
        self.client_spoke_last = False
        if self.counting:
            self.relay.counts.received += len(data)
        if not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.upstream is not None:
            self.upstream.transport.close()

    def pause_writing(self) -> None:
        if self.upstream is not None:
            self.upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.upstream is not None:
            self.upstream.transport.resume_reading()


async def control(relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the commands of one control connection."""
    while line := await reader.readline():
        word, *rest = line.decode().split()
        if word == "latency":
            relay.delay_s = float(rest[0]) / 1000
        elif word != "stats":
            raise ValueError(f"unknown relay command {word!r}")
        writer.write(json.dumps(asdict(relay.counts)).encode() + b"\n")
        await writer.drain()
    writer.close()


async def serve(relay: Relay) -> None:
    """Listen on two free local ports, print them as one JSON line, and run until ended."""
    loop = asyncio.get_running_loop()
    data = await loop.create_server(lambda: Client(relay), "127.0.0.1", 0)
    orders = await asyncio.start_server(lambda r, w: control(relay, r, w), "127.0.0.1", 0)
    ports = {
        "port": data.sockets[0].getsockname()[1],
        "control": orders.sockets[0].getsockname()[1],
    }
    print(json.dumps(ports), flush=True)
    await asyncio.gather(data.serve_forever(), orders.serve_forever())


def end_with_the_input() -> None:
    """End this process when whoever started it closes its input, or is gone."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Run a relay until standard input ends: ``python relay.py HOST PORT {mongodb,postgres}``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("protocol", choices=["mongodb", "postgres"])
    given = parser.parse_args()
    threading.Thread(target=end_with_the_input, daemon=True).start()
    asyncio.run(serve(Relay(given.host, given.port, given.protocol)))


if __name__ == "__main__":
    main()
