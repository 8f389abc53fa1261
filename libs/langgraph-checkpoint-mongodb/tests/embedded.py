"""A MongoDB-compatible server for machines that have none: one process, one temporary folder.

`python -m tests.embedded COMMAND ...` runs a command with MONGODB_URI set to a fresh server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

START_LIMIT_S = 60
STOP_LIMIT_S = 10


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], uri: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=500) as client:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError):
                client.admin.command("ping")
                return
            time.sleep(0.1)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(
        f"the embedded server did not start in {START_LIMIT_S} s; set MONGODB_URI to use a"
        f" server of yours instead. The end of its log:\n{tail}"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server on a free port of 127.0.0.1 while the context is open.

    Yields:
        Its connection string. The process and its data are gone when the context ends.

    Raises:
        RuntimeError: The server did not start; the message ends with its log.
    """
    port = _free_port()
    uri = f"mongodb://127.0.0.1:{port}/?directConnection=true"
    with tempfile.TemporaryDirectory(prefix="embedded-mongo-") as folder:
        log = Path(folder, "server.log")
        command = [sys.executable, "-m", "secantus", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--storage-path", str(Path(folder, "db")), "--enable-test-commands"]
        with log.open("wb") as sink:
            # Its own session: Ctrl-C ends the tests first, and they end the server.
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_ready(process, uri, log)
            yield uri
        finally:
            _stop(process)


def main(command: list[str]) -> int:
    """Run a command against a fresh server and return its exit code."""
    if not command:
        sys.exit("usage: python -m tests.embedded COMMAND ...")
    with embedded_server() as uri:
        return subprocess.run(command, env={**os.environ, "MONGODB_URI": uri}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
