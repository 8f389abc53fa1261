"""LangGraph's API server with our saver, in an environment of its own, for one test session.

The environment is made and cached by `uv run --isolated` from `requirements.txt`; this
library is in it as it stands in the checkout.
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
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = HERE.parents[1]
ENVIRONMENT_LIMIT_S = 180
START_LIMIT_S = 60
STOP_LIMIT_S = 20
REMEDY = (
    "Install uv (https://docs.astral.sh/uv/) and let it reach PyPI, or the mirror that "
    "UV_DEFAULT_INDEX names, once: it caches what it fetched."
)


class UnavailableError(Exception):
    """The server's environment cannot be made here; the message says why and what to do."""


def _uv_run() -> list[str]:
    """The command that runs something in the server's environment.

    Raises:
        UnavailableError: There is no uv, or it cannot make the environment.
    """
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise UnavailableError(f"uv was not found, which makes the environment. {REMEDY}")
    said = ""
    # What is cached needs no network; only what is missing is asked for.
    for network in (["--offline"], []):
        command = [
            *(uv, "run", "--quiet", *network, "--isolated", "--no-project"),
            *("--python", sys.executable),
            *("--with-requirements", str(HERE / "requirements.txt")),
            *("--with-editable", str(LIBRARY)),
        ]
        try:
            made = subprocess.run(
                [*command, "python", "-c", "import langgraph_api, langgraph_cli"],
                capture_output=True,
                text=True,
                timeout=ENVIRONMENT_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            said = f"nothing within {ENVIRONMENT_LIMIT_S} s"
            continue
        if made.returncode == 0:
            return command
        said = made.stderr.strip()[-1500:]
    raise UnavailableError(
        f"uv could not make the environment of LangGraph's API server. {REMEDY} It said: {said}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def api_server(mongodb_uri: str, database: str) -> Iterator[str]:
    """Run `langgraph dev` on the application in `app/`, with the saver on a database.

    Args:
        mongodb_uri: The MongoDB server.
        database: The database's name.

    Yields:
        The API server's URL.

    Raises:
        UnavailableError: Its environment cannot be made here.
        RuntimeError: It did not start; the message has what it said.
    """
    port = _free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LANG")},
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGSMITH_TRACING": "false",
        "MONGODB_URI": mongodb_uri,
        "MONGODB_DATABASE": database,
        "NO_COLOR": "1",
    }
    # Without --allow-blocking: the server raises when a saver blocks its event loop.
    command = [
        *(*_uv_run(), "langgraph", "dev", "--no-browser", "--no-reload"),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        # It keeps its own threads and runs in a folder beside langgraph.json.
        app = shutil.copytree(HERE / "app", Path(folder) / "app")
        process = subprocess.Popen(
            command,
            cwd=app,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # uv and its child are ended together
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _answers(process, url):
                log.seek(0)
                raise RuntimeError(f"LangGraph's API server did not start: {log.read()[-3000:]}")
            yield url
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the server answers; False if it ended, or took too long."""
    limit = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < limit:
        try:
            with urllib.request.urlopen(f"{url}/ok", timeout=5) as answer:  # noqa: S310
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)
    # Its children may outlive it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
