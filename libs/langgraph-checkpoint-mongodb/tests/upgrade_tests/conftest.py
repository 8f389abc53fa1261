"""Fixtures of the upgrade tests: an old release beside today's savers, on one database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from tests.upgrade_tests.rig import RELEASES, OldSaver, Rig, UnavailableError


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """The processes of the releases."""
    with Rig.open() as rig:
        yield rig


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """The old release that a test runs with."""
    version: str = request.param
    return version


@pytest.fixture
def old(rig: Rig, release: str, mongodb_uri: str, database: Database[dict[str, Any]]) -> OldSaver:
    """That release's saver on the test's database.

    Where it cannot be had, the test is skipped with the reason; under CI it fails.
    """
    try:
        process = rig.release(release)
    except UnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return OldSaver(process, mongodb_uri, database.name)
