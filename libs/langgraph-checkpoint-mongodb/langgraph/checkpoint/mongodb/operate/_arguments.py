"""What the command line is given: a connection, times, a place to go on from."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from langgraph.checkpoint.mongodb.errors import MongoDBSaverError
from langgraph.checkpoint.mongodb.operate._verify import Verified
from langgraph.checkpoint.mongodb.saver import MongoDBSaver
from langgraph.checkpoint.mongodb.utils import DRIVER_METADATA

__all__ = ["FAILED", "FOUND", "Connection", "Place", "time_of"]

FOUND, FAILED = 1, 2
"""Exit statuses: something is wrong with what is stored; the command itself failed."""

# A thread's place is noted after so many.
_NOTE_EVERY = 100

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Connection:
    """What all commands share: the saver, made when it is needed."""

    def __init__(self, uri: str | None, arguments: dict[str, Any], serde: str | None) -> None:
        self._uri, self._arguments, self._serde = uri, arguments, serde

    @contextmanager
    def saver(self) -> Iterator[MongoDBSaver]:
        """A saver that makes no index; what goes wrong ends the command with a message."""
        try:
            if self._serde:
                self._arguments["serde"] = _imported(self._serde)
            with MongoClient[Any](self._uri, driver=DRIVER_METADATA) as client:
                yield MongoDBSaver(client, **self._arguments, create_indexes=False)
        except (PyMongoError, MongoDBSaverError, ValueError, ImportError) as error:
            typer.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
            raise typer.Exit(FAILED) from error


def _imported(name: str) -> Any:
    """A serializer by `module:name`, called if it is a function or a class."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"Invalid serializer {name!r}: expected module:name.")
    sys.path.insert(0, "")
    found = getattr(importlib.import_module(module), attribute)
    return found() if callable(found) else found


class Place:
    """How far a verification has come, in a file."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._noted = file, 0
        self.after: str | None = None
        self.findings = 0
        if file and file.exists():
            noted = json.loads(file.read_text())
            self.after, self.findings = noted["after"], noted["findings"]

    def note(self, verified: Verified, *, now: bool = False) -> None:
        """Write it down, now and then."""
        if self._file is None or verified.last is None:
            return
        if now or verified.threads >= self._noted + _NOTE_EVERY:
            self._noted = verified.threads
            noted = {"after": verified.last, "findings": self.findings}
            self._file.write_text(json.dumps(noted))

    def done(self) -> None:
        """Begin anew the next time."""
        if self._file:
            self._file.unlink(missing_ok=True)


def time_of(text: str | None) -> timedelta | None:
    """A time as `30d`.

    Raises:
        ValueError: It is something else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if not match:
        raise ValueError(f"Invalid time {text!r}: expected a number and s, m, h, d or w, as 30d.")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
