"""A MongoDB-compatible server for machines that have none, in a temporary folder.

`python -m tests.embedded COMMAND ...` runs a command with MONGODB_URI set to a fresh server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

START_LIMIT_S = 60
STOP_LIMIT_S = 30  # longer than the keeper waits for the server
HERE = Path(__file__).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(keeper: subprocess.Popen[bytes], uri: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=500) as client:
        while keeper.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError):
                client.admin.command("ping")
                return
            time.sleep(0.1)
    raise RuntimeError(
        f"the embedded server did not start in {START_LIMIT_S} s; set MONGODB_URI to use a"
        " server of yours instead. If it ended by itself, the standard error has its log's end."
    )


@contextlib.contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server on a free port of 127.0.0.1 while the context is open.

    Yields:
        Its connection string. The process and its data are gone when the context ends, and
        also when this process ends in any other way.

    Raises:
        RuntimeError: The server did not start; its log's end is on the standard error.
    """
    port = _free_port()
    uri = f"mongodb://127.0.0.1:{port}/?directConnection=true"
    keeper = subprocess.Popen(
        [
            *(sys.executable, str(HERE / "keeper.py"), str(os.getpid())),
            *(sys.executable, str(HERE / "embedded_main.py")),
            *("--host", "127.0.0.1", "--port", str(port), "--storage-path", "{folder}/db"),
            *("--cache-size", "256M", "--enable-test-commands"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the tests first, and they end the server
    )
    try:
        _wait_until_ready(keeper, uri)
        yield uri
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(STOP_LIMIT_S)


def main(command: list[str]) -> int:
    """Run a command against a fresh server and return its exit code."""
    if not command:
        sys.exit("usage: python -m tests.embedded COMMAND ...")
    with embedded_server() as uri:
        return subprocess.run(command, env={**os.environ, "MONGODB_URI": uri}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
