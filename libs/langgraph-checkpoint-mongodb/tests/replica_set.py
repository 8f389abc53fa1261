"""Replica sets of real `mongod` processes whose members can be killed and started again.

`python -m tests.replica_set MEMBERS COMMAND ...` runs a command with MONGODB_URI set to a fresh
set. The binary is the one that MONGOD names, or `mongod` on the PATH, or one in
~/.cache/mongo-servers (MONGO_SERVERS_CACHE).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

START_LIMIT_S = 90
KEEPER = Path(__file__).with_name("group_keeper.py")
HOW_TO_GET_ONE = (
    "no mongod: set MONGOD to the binary of a MongoDB server (https://www.mongodb.com/try/download),"
    " put it on the PATH, or into ~/.cache/mongo-servers/<version>/"
)


def find_mongod() -> Path | None:
    """The `mongod` binary of this machine, None when there is none."""
    if named := os.environ.get("MONGOD"):
        return Path(named)
    if on_path := shutil.which("mongod"):
        return Path(on_path)
    default = Path.home() / ".cache" / "mongo-servers"
    cache = Path(os.environ.get("MONGO_SERVERS_CACHE", default))
    return next(iter(sorted(cache.glob("*/mongod"), reverse=True)), None)


class Member:
    """One `mongod`.

    Args:
        binary: The program.
        folder: Where its data and log are.
        port: Where it listens, on 127.0.0.1 only.
        group: The process group it belongs to.
    """

    def __init__(self, binary: Path, folder: Path, port: int, group: int) -> None:
        self._group = group
        self.host = f"127.0.0.1:{port}"
        self._log = folder / "server.log"
        (folder / "db").mkdir(parents=True)
        self._command = [
            *(str(binary), "--replSet", "rs0", "--bind_ip", "127.0.0.1", "--port", str(port)),
            *("--dbpath", str(folder / "db"), "--oplogSize", "64"),
            *("--wiredTigerCacheSizeGB", "0.25"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with the data it has, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                process_group=self._group,
            )

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def ask(self, *command: Any) -> dict[str, Any]:
        """Run a command on this member alone."""
        uri = f"mongodb://{self.host}/?directConnection=true"
        with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=500) as client:
            return client.admin.command(*command)

    def tail(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


class ReplicaSet:
    """A running set.

    Attributes:
        members: Its members, the killed ones included.
        uri: The connection string, write concern majority.
    """

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        hosts = ",".join(member.host for member in members)
        self.uri = f"mongodb://{hosts}/?replicaSet=rs0&w=majority&retryWrites=true"

    def initiate(self) -> None:
        """Make the members a set, and wait for a primary.

        Raises:
            RuntimeError: None was elected; the message ends with the first member's log.
        """
        configuration = {
            "_id": "rs0",
            "members": [{"_id": n, "host": one.host} for n, one in enumerate(self.members)],
            "settings": {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500},
        }
        self._wait_for(lambda: bool(self.members[0].ask("replSetInitiate", configuration)))
        self._wait_for(self._all_up)

    def mend(self) -> None:
        """Start the members that were killed, and wait for a primary.

        Raises:
            RuntimeError: None was elected; the message ends with the first member's log.
        """
        for member in self.members:
            member.start()
        self._wait_for(self._all_up)

    def _wait_for(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError):
                if reached():
                    return
            time.sleep(0.2)
        tail = self.members[0].tail()
        raise RuntimeError(f"the set was not up in {START_LIMIT_S} s. A log's end:\n{tail}")

    def _all_up(self) -> bool:
        states = [one["stateStr"] for one in self.members[0].ask("replSetGetStatus")["members"]]
        return states.count("PRIMARY") == 1 and set(states) <= {"PRIMARY", "SECONDARY"}

    def primary(self) -> Member:
        """The member that is the primary by its own word.

        Raises:
            RuntimeError: There is none.
        """
        for member in self.members:
            with contextlib.suppress(PyMongoError):
                if member.ask("hello")["isWritablePrimary"]:
                    return member
        raise RuntimeError("the set has no primary")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_sockets:
        probes = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def replica_set(binary: Path, count: int) -> Iterator[ReplicaSet]:
    """Run a replica set while the context is open; afterwards processes and data are gone.

    Args:
        binary: The `mongod` to run.
        count: How many members.

    Raises:
        RuntimeError: It did not come up.
    """
    with tempfile.TemporaryDirectory(prefix="replica-set-") as folder:
        keeper = subprocess.Popen(  # in case this process ends before it could kill the members
            [sys.executable, str(KEEPER), str(os.getpid()), folder],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        members = [
            Member(binary, Path(folder, str(number)), port, keeper.pid)
            for number, port in enumerate(_free_ports(count))
        ]
        try:
            for member in members:
                member.start()
            running = ReplicaSet(members)
            running.initiate()
            yield running
        finally:
            for member in members:
                member.kill()
            keeper.kill()
            keeper.communicate()


def main(arguments: list[str]) -> int:
    """Run a command against a fresh set and return its exit code."""
    binary = find_mongod()
    if len(arguments) < 2 or not arguments[0].isdecimal():
        sys.exit("usage: python -m tests.replica_set MEMBERS COMMAND ...")
    if binary is None:
        sys.exit(HOW_TO_GET_ONE)
    with replica_set(binary, int(arguments[0])) as running:
        environment = {**os.environ, "MONGODB_URI": running.uri}
        return subprocess.run(arguments[1:], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
