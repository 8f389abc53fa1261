"""The published releases, each in an environment of its own, ready to answer requests.

An environment is made and cached by `uv run --isolated` from the pinned requirements in
`releases/`; another file there is another release under test. Inside an environment
`old_release.py` reads requests from its standard input, one process a release for the
whole test session.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RELEASES = tuple(path.stem for path in sorted((HERE / "releases").glob("*.txt"), reverse=True))
START_LIMIT_S = 240  # within the time that a test may take
ANSWER_LIMIT_S = 60
REMEDY = (
    "Install uv (https://docs.astral.sh/uv/) and let it reach PyPI, or the mirror that "
    "UV_DEFAULT_INDEX names, once: it caches what it fetched."
)


class UnavailableError(Exception):
    """The environment of a release cannot be made here; the message says why and what to do."""


class OldReleaseError(Exception):
    """The old release raised.

    Attributes:
        type: The name of the exception's class over there.
        message: Its text.
    """

    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


class OldRelease:
    """A running process of one release."""

    def __init__(self, release: str) -> None:
        """Start it.

        Args:
            release: A version with a file in `releases/`.

        Raises:
            UnavailableError: There is no uv, or it cannot make the environment.
        """
        self.release = release
        uv = os.environ.get("UV") or shutil.which("uv")
        if uv is None:
            raise UnavailableError(f"uv was not found, which makes the old environments. {REMEDY}")
        # What is cached needs no network; only what is missing is asked for.
        for network in (["--offline"], []):
            self._start([uv, "run", "--quiet", *network])
            if versions := self._read(START_LIMIT_S):
                break
            failure = self.close()
        else:
            raise UnavailableError(
                f"uv could not make the environment of release {release}. {REMEDY} "
                f"It said: {failure[-1500:]}"
            )
        self.versions: dict[str, str] = versions
        if versions["release"] != release:
            self.close()
            raise RuntimeError(f"The environment of {release} has {versions['release']}.")

    def _start(self, uv_run: list[str]) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("LANG")
        }  # no tracing over there, and no settings meant for the tests themselves
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [
                *uv_run,
                *("--isolated", "--no-project", "--python", sys.executable),
                *("--with-requirements", str(HERE / "releases" / f"{self.release}.txt")),
                # -E and -s: nothing of the caller's own packages.
                *("python", "-E", "-s", str(HERE / "old_release.py")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
            start_new_session=True,  # uv and its child can then be ended together
        )

    def _read(self, limit_s: float) -> Any:
        """Read one answer; None if the process ended or was ended at the limit."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(limit_s, self._kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        return json.loads(line) if line else None

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)

    def call(self, request: list[Any]) -> Any:
        """Send a request; return its result.

        Raises:
            OldReleaseError: The release raised.
            RuntimeError: The process died, or did not answer in time.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._read(ANSWER_LIMIT_S)
        if answer is None:
            raise RuntimeError(f"Release {self.release} gave no answer. It said: {self.close()}")
        if "error" in answer:
            raise OldReleaseError(**answer["error"])
        return answer["result"]

    def close(self) -> str:
        """End the process; return what it wrote to its standard error."""
        if self._log.closed:
            return ""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.seek(0)
        said = self._log.read()
        self._log.close()
        return said


class Rig:
    """The releases that were asked for so far in this session."""

    def __init__(self) -> None:
        self._running: dict[str, OldRelease | UnavailableError] = {}

    def release(self, release: str) -> OldRelease:
        """Return the process of a release, started at its first use.

        Raises:
            UnavailableError: It cannot be started; said again at each use, tried once.
        """
        if release not in self._running:
            try:
                self._running[release] = OldRelease(release)
            except UnavailableError as error:
                self._running[release] = error
        found = self._running[release]
        if isinstance(found, UnavailableError):
            raise found
        return found

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[Rig]:
        """Make a rig, and end its processes at the end."""
        rig = cls()
        try:
            yield rig
        finally:
            for process in rig._running.values():
                if isinstance(process, OldRelease):
                    process.close()


class OldSaver:
    """An old release's saver on one database: `old_release.Commands` from outside."""

    def __init__(self, process: OldRelease, uri: str, database: str, **options: Any) -> None:
        """Bind a release's process to a database.

        Args:
            process: The release.
            uri: The server's connection string.
            database: The database's name.
            **options: Those of `Commands`.
        """
        self.release = process.release
        self._process = process
        self._uri, self._database, self._options = uri, database, options

    def _call(self, name: str, **arguments: Any) -> Any:
        return self._process.call([self._uri, self._database, self._options, name, arguments])

    def with_options(self, **options: Any) -> OldSaver:
        """Return one on the same database with these options."""
        return OldSaver(self._process, self._uri, self._database, **options)

    def make(self, *threads: str) -> dict[str, Any]:
        """Make threads; return how the release sees each."""
        made: dict[str, Any] = self._call("make", threads=threads)
        return made

    def make_async(self, thread: str) -> dict[str, Any]:
        """Make a thread with the release's async saver; return how that sees it."""
        seen: dict[str, Any] = self._call("make_async", thread=thread)
        return seen

    def read(self, thread: str) -> dict[str, Any]:
        """Return how the release sees a thread."""
        seen: dict[str, Any] = self._call("read", thread=thread)
        return seen

    def invoke(self, thread: str, input: Any, **config: Any) -> Any:
        """Run a thread on; return the plain state. `input` is as in `Commands.invoke`."""
        return self._call("invoke", thread=thread, input=input, **config)

    def update(self, thread: str, values: dict[str, Any], as_node: str | None = None) -> None:
        """Change a thread's state."""
        self._call("update", thread=thread, values=values, as_node=as_node)

    def list(self, thread: str | None, **options: Any) -> dict[str, Any]:
        """List checkpoints until the end or an error; both are in the answer."""
        listed: dict[str, Any] = self._call("list", thread=thread, **options)
        return listed

    def delete(self, thread: str) -> None:
        """Delete a thread."""
        self._call("delete", thread=thread)
