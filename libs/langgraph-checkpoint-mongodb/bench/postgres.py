"""A private PostgreSQL cluster: made, started, and removed again."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.environments import MissingToolError

START_LIMIT_S = 60
ACCOUNTS = ("postgres", "nobody")  # whom root becomes: PostgreSQL refuses to run as root


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def binary(name: str) -> str:
    """Find one of PostgreSQL's programs, also where Debian hides them."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(debian[-1]) if debian else None)
    if not found:
        raise MissingToolError(
            f"PostgreSQL's {name!r} is not installed. On Debian: apt-get install postgresql-15 "
            "(macOS: brew install postgresql@15); or leave this peer out with --peers."
        )
    return found


def account() -> pwd.struct_passwd | None:
    """Return the account to run PostgreSQL as; None for the one we are."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise MissingToolError(f"PostgreSQL does not run as root, and no account of {ACCOUNTS} exists")


@contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """Run a fresh cluster on a free port of 127.0.0.1 and remove it at the end.

    Yields:
        Its version, and its port; it trusts the user ``bench`` on the database ``postgres``.
    """
    initdb, server = binary("initdb"), binary("postgres")
    owner = account()
    user, group = (owner.pw_uid, owner.pw_gid) if owner else (None, None)
    folder = Path(tempfile.mkdtemp(prefix="bench-postgres-"))
    try:
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data, port = folder / "data", free_port()
        made = subprocess.run(
            [initdb, "-D", str(data), "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            extra_groups=[] if owner else None,
            user=user,
            group=group,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr.strip()}")
        with (folder / "server.log").open("wb") as log:
            options = ["-c", "listen_addresses=127.0.0.1", "-p", str(port), "-k", str(folder)]
            process = subprocess.Popen(
                [server, "-D", str(data), *options],
                stdout=log,
                stderr=log,
                cwd=folder,
                extra_groups=[] if owner else None,
                user=user,
                group=group,
            )
        try:
            _wait(process, port, folder / "server.log")
            version = subprocess.run([server, "--version"], capture_output=True, text=True)
            yield version.stdout.strip(), port
        finally:
            process.send_signal(2)  # SIGINT: a fast shutdown
            process.wait(START_LIMIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
            continue
        return
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}")
