"""Runs a server for as long as the process that asked for it lives, whatever ends that process.

    python keeper.py OWNER COMMAND ...

OWNER is the asking process's id, and `{folder}` in the command stands for a temporary folder. The
owner holds the other end of standard input. When it closes that, or is gone (even by SIGKILL), the
server is ended and its folder removed. If the server ended before, or did not end when told to,
the end of its log is printed on the standard error.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

STOP_LIMIT_S = 10
LOG_TAIL = 8000


def wait_for_the_end(server: subprocess.Popen[bytes], owner: int) -> None:
    """Return when the owner let go of the server or is gone, or when the server has ended."""
    # Not only the pipe: a forked child of the owner may hold it open.
    while server.poll() is None and os.getppid() == owner:
        if select.select([sys.stdin], [], [], 0.5)[0]:
            return


def stop(server: subprocess.Popen[bytes]) -> str:
    """End the server; return what went wrong, if anything did."""
    if server.poll() is not None:
        return f"ended by itself, with status {server.returncode}"
    server.terminate()
    try:
        server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGABRT)  # one that faulthandler watches logs its stacks
    else:
        return ""
    try:
        server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    return f"did not end within {STOP_LIMIT_S} s"


def main(owner: int, command: list[str]) -> None:
    """Keep one server."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(
        prefix="embedded-mongo-", ignore_cleanup_errors=True
    ) as folder:
        log = Path(folder, "server.log")
        with log.open("wb") as sink:
            server = subprocess.Popen(
                [part.replace("{folder}", folder) for part in command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_the_end(server, owner)
        finally:
            if wrong := stop(server):
                tail = log.read_text(errors="replace")[-LOG_TAIL:]
                sys.stderr.write(f"The embedded server {wrong}. Its log's end:\n{tail}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
