"""Servers and relays that a run needs, started and ended with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.environments import MissingToolError
from bench.postgres import cluster
from tests.embedded import embedded_server

RUNNER = Path(__file__).resolve().parents[4] / "shared" / "servers" / "mongo"
REAL_VERSIONS = ("6.0", "7.0")  # first the one that runs natively: times through Wine say less


@dataclass(frozen=True)
class Server:
    """A server, straight and through its relay.

    Attributes:
        name: What it is, version included.
        comparable: Whether its figures may stand beside the peers'.
        uri: Its address.
        relayed: The same through the relay.
        control: The relay's control port.
    """

    name: str
    comparable: bool
    uri: str
    relayed: str
    control: int

    def latency(self, milliseconds: float) -> None:
        """Let the relay delay each request by so many milliseconds."""
        with socket.create_connection(("127.0.0.1", self.control)) as link:
            link.sendall(f"latency {milliseconds}\n".encode())
            link.makefile().readline()


@contextmanager
def _relay(host: str, port: int, protocol: str) -> Iterator[tuple[int, int]]:
    command = [sys.executable, str(Path(__file__).with_name("relay.py")), host, str(port), protocol]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            ports = json.loads(process.stdout.readline() if process.stdout else "{}")
            yield ports["port"], ports["control"]
        finally:
            process.terminate()


@contextmanager
def mongodb() -> Iterator[Server]:
    """Give a MongoDB: ``MONGODB_URI``, else the repository runner's, else the embedded one."""
    with ExitStack() as stack:
        uri = os.environ.get("MONGODB_URI")
        real = True
        if not uri and RUNNER.exists():
            uri = stack.enter_context(_from_runner())
        if not uri:
            uri, real = stack.enter_context(embedded_server()), False
        parts = urlsplit(uri)
        if parts.scheme != "mongodb" or "," in parts.netloc or not parts.hostname:
            raise MissingToolError(
                "MONGODB_URI must name one server without TLS, as bytes are counted on the way; "
                f"it is {uri}"
            )
        host, port = parts.hostname, parts.port or 27017
        relayed, control = stack.enter_context(_relay(host, port, "mongodb"))
        netloc = parts.netloc.replace(f"{host}:{port}", f"127.0.0.1:{relayed}")
        if f":{relayed}" not in netloc:
            netloc += f":{relayed}"
        query = parts.query if "directConnection" in parts.query else "directConnection=true"
        through = parts._replace(netloc=netloc, path=parts.path or "/", query=query).geturl()
        name = ("MongoDB " if real else "SecantusDB, answering as MongoDB ") + _version(uri)
        yield Server(name, real, uri, through, control)


def _version(uri: str) -> str:
    from pymongo import MongoClient

    with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=5000) as client:
        return str(client.server_info()["version"])


@contextmanager
def _from_runner() -> Iterator[str]:
    """Use a real server that is already up, else start one for the run."""
    listing = subprocess.run([str(RUNNER), "list"], capture_output=True, text=True, check=True)
    up = dict(line.split(maxsplit=1) for line in listing.stdout.splitlines())
    for version in REAL_VERSIONS:
        if up.get(version, "-") != "-":
            yield up[version]
            return
    version = REAL_VERSIONS[0]
    started = subprocess.run([str(RUNNER), "up", version], capture_output=True, text=True)
    if started.returncode:
        raise MissingToolError(f"MongoDB {version} did not start: {started.stderr.strip()}")
    try:
        yield started.stdout.split()[-1]
    finally:
        subprocess.run([str(RUNNER), "down", version], capture_output=True, check=False)


@contextmanager
def postgres() -> Iterator[Server]:
    """Give a private PostgreSQL behind a relay."""
    with cluster() as (name, port), _relay("127.0.0.1", port, "postgres") as (relayed, control):
        address = "postgresql://bench@127.0.0.1:{}/postgres"
        yield Server(name, True, address.format(port), address.format(relayed), control)
