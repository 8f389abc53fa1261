"""Fixtures of the tests on LangGraph's API server: one server for all, and a client."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from pymongo import MongoClient
from pymongo.database import Database

from langgraph.checkpoint.mongodb import MongoDBSaver
from tests.server_tests.api_server import UnavailableError, api_server
from tests.upgrade_tests.rig import OldSaver, Rig
from tests.upgrade_tests.rig import UnavailableError as ReleaseUnavailableError

ANSWER_LIMIT_S = 60
DB = Database[dict[str, Any]]


@pytest.fixture(scope="session")
def served_database(
    mongo_client: MongoClient[dict[str, Any]],
) -> Iterator[DB]:
    """The database of the server's saver, dropped at the end."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield mongo_client[name]
    mongo_client.drop_database(name)


@pytest.fixture(scope="session")
def server_url(mongodb_uri: str, served_database: DB) -> Iterator[str]:
    """The API server.

    Where its environment cannot be made, the tests are skipped with the reason; under CI they
    fail.
    """
    try:
        server = api_server(mongodb_uri, served_database.name)
        url = server.__enter__()
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield url
    finally:
        server.__exit__(None, None, None)


@pytest.fixture
def client(server_url: str) -> Iterator[SyncLangGraphClient]:
    """LangGraph's SDK on the server."""
    with get_sync_client(url=server_url, timeout=ANSWER_LIMIT_S) as client:
        yield client


@pytest.fixture
def saver(server_url: str, mongo_client: MongoClient[Any], served_database: DB) -> MongoDBSaver:
    """A saver beside the server's, as a nightly job has it."""
    return MongoDBSaver(mongo_client, served_database.name)


@pytest.fixture
def old_saver(mongodb_uri: str, served_database: DB) -> Iterator[OldSaver]:
    """The saver of release 0.5.1 on the server's database."""
    with Rig.open() as rig:
        try:
            process = rig.release("0.5.1")
        except ReleaseUnavailableError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        yield OldSaver(process, mongodb_uri, served_database.name)
