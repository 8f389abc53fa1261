"""Run a command with a private PostgreSQL server, whose address is in POSTGRES_URI.

    python tests/with_postgres.py uv run pytest

The server listens on a free port of 127.0.0.1, keeps its data in a temporary directory, and is gone
when the command ends. PostgreSQL's programs are looked for on the PATH and where Debian's package
`postgresql` puts them. PostgreSQL refuses to run as root; started as root, this runs it as
`postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HELP = (
    "with_postgres: PostgreSQL is not installed: found no initdb. On Debian and Ubuntu, "
    "`apt-get install postgresql`; or set POSTGRES_URI to a server of your own."
)


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    programs = find_programs()
    if programs is None:
        print(HELP, file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        user = unprivileged_user()
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data = Path(folder, "data")
        port = free_port()
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        fast = f"{options} -c fsync=off"  # nothing here outlives the command
        run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"],
            folder,
            user,
        )
        server = [programs / "pg_ctl", "-D", data, "-w", "-l", Path(folder, "log")]
        run([*server, "-o", fast, "start"], folder, user)
        try:
            return run_command(command, f"postgresql://postgres@127.0.0.1:{port}/postgres")
        finally:
            run([*server, "-m", "immediate", "stop"], folder, user)


def find_programs() -> Path | None:
    """Return the directory of initdb and pg_ctl, of the newest release found."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(installed, key=lambda p: float(p.parts[-3]), default=None)
    return None if newest is None else newest.parent


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return whom to run the server as; `None` for the user who runs this."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SystemExit("with_postgres: started as root, and there is no user `postgres` or `nobody`")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run(command: list[str | Path], folder: str, user: pwd.struct_passwd | None) -> None:
    """Run one of PostgreSQL's programs; its output is shown if it fails."""
    log = Path(folder, "output")
    with log.open("w") as output:
        who = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        )
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "LC_ALL": "C"},
            check=False,
            **who,  # type: ignore[arg-type]  # the user to run as, if it is another
        )
    if done.returncode:
        print(log.read_text(), file=sys.stderr)
        raise SystemExit(f"with_postgres: {command[0]} failed")


def run_command(command: list[str], uri: str) -> int:
    child = subprocess.Popen(command, env={**os.environ, "POSTGRES_URI": uri})
    # The command decides what an interrupt means; the server is stopped after it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: child.send_signal(received))
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
