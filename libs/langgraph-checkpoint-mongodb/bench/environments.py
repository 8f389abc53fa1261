"""An environment for each peer, made once and kept outside the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

LIBRARY = Path(__file__).parent.parent
LIBRARY_NAME = "langgraph-checkpoint-mongodb"
# The same LangGraph and drivers for all; what they resolved to stands in the result.
COMMON = ["langgraph", "langgraph-checkpoint", "langchain"]
REQUIREMENTS = {
    "ours": [*COMMON, "pymongo"],
    "0.5.1": [*COMMON, "pymongo", "langgraph-checkpoint-mongodb==0.5.1"],
    "postgres": [*COMMON, "langgraph-checkpoint-postgres", "psycopg[binary]", "psycopg-pool"],
    "memory": COMMON,
}


class MissingToolError(RuntimeError):
    """Something the benchmark needs is not installed; the message says how to get it."""


def uv() -> str:
    """Return the path of uv, which ``uv run`` tells in ``UV``."""
    found = os.environ.get("UV") or shutil.which("uv")
    if not found:
        raise MissingToolError("uv is not installed: python -m pip install uv")
    return found


def home() -> Path:
    """Return the folder where environments are kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "langgraph-checkpoint-mongodb-bench"


def interpreter(peer: str) -> Path:
    """Return the interpreter of a peer's environment, which `prepare` makes.

    Args:
        peer: A key of `REQUIREMENTS`.
    """
    wanted = "\n".join([sys.version, *REQUIREMENTS[peer]])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:10]
    return home() / f"{peer}-{digest}" / "bin" / "python"


def prepare(peer: str, *, fresh: bool = False) -> None:
    """Make a peer's environment when needed, and install this checkout as it is now in ours.

    Args:
        peer: A key of `REQUIREMENTS`.
        fresh: Make it anew, with the newest versions.

    Raises:
        MissingToolError: When uv is missing or cannot install the peer.
    """
    python = interpreter(peer)
    ready = python.parents[1] / "ready"
    install = [uv(), "pip", "install", "-q", "--python", str(python)]
    if fresh or not ready.exists():
        _run([uv(), "venv", "-q", "--clear", "--python", sys.executable, str(python.parents[1])])
        _run([*install, *REQUIREMENTS[peer]])
        ready.touch()
    if peer == "ours":  # a copy: the checkout may change while the benchmark runs
        _run([*install, "--reinstall-package", LIBRARY_NAME, str(LIBRARY)])


def _run(command: list[str]) -> None:
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise MissingToolError(f"{' '.join(command)}\n{done.stderr.strip()}")
