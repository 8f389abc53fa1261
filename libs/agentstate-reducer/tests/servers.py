"""Servers for tests: given by the environment, or started here."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

SAVERS = Path(__file__).parents[2] / "langgraph-checkpoint-mongodb"

NO_MONGODB = (
    "no MongoDB: the embedded server (dev dependency secantusdb) and the MongoDB saver need "
    "Python 3.11 to 3.13; run the tests with one of those"
)
NO_POSTGRES = (
    "no PostgreSQL: set POSTGRES_URI, or run `python tests/with_postgres.py uv run pytest`, which "
    "starts the one that `apt-get install postgresql` brings"
)


@contextlib.contextmanager
def mongodb() -> Iterator[str]:
    """Yield the address of a MongoDB server, `MONGODB_URI` or an embedded one."""
    pytest.importorskip("langgraph.checkpoint.mongodb", reason=NO_MONGODB)
    given = os.environ.get("MONGODB_URI")
    if given:
        yield given
        return
    pytest.importorskip("secantus", reason=NO_MONGODB)
    # The savers' own. Not in pytest's `pythonpath`: there Python 3.10 would find the savers, too.
    sys.path.append(str(SAVERS))
    from tests.embedded import embedded_server

    with embedded_server() as uri:
        yield uri


def postgres_uri() -> str:
    """Return the address of a PostgreSQL server, or skip the test."""
    uri = os.environ.get("POSTGRES_URI")
    if not uri:
        pytest.skip(NO_POSTGRES)
    return uri


@contextlib.contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the address of an empty database, dropped afterwards."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    server, name = postgres_uri(), f"reducer_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


@contextlib.contextmanager
def mongodb_database(uri: str) -> Iterator[str]:
    """Yield the name of an unused database, dropped afterwards."""
    from pymongo import MongoClient

    name = f"reducer_{uuid.uuid4().hex[:12]}"
    try:
        yield name
    finally:
        with MongoClient[dict[str, object]](uri) as client:
            client.drop_database(name)
