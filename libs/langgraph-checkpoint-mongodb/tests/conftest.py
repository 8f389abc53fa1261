"""Fixtures that every test directory shares: a server, a database for each test, both savers."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.embedded import embedded_server
from tests.hypothesis_profile import examples

if TYPE_CHECKING:
    from tests.face import Face, Kind, MakeFace

# Tests that take one of these fixtures run in one worker, one after another: the fixture starts
# something expensive once (its parameter tells which), or switches what a whole server does.
TOGETHER = {"fail_command": "fail points", "release": "release {}", "running": "set of {}"}
EXIT_LIMIT_S = 60
STDERR = 2

# No deadline: machines differ. No example database: a run leaves no file behind. In CI the same
# examples each time, so that a change is blamed only for what it did.
hypothesis.settings.register_profile(
    "project",
    deadline=None,
    database=None,
    print_blob=True,
    derandomize="CI" in os.environ,
    max_examples=examples(100),
)
hypothesis.settings.load_profile("project")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together what workers must not do at the same time (`--dist loadgroup`)."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        taken = [fixture for fixture in TOGETHER if fixture in getattr(item, "fixturenames", ())]
        for fixture in taken[:1]:  # xdist makes a further group of two groups.
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            group = TOGETHER[fixture].format(parameters.get(fixture))
            item.add_marker(pytest.mark.xdist_group(group))


class Grouped:
    """Fails where the groups are lost on the way, as with pytest-xdist 3.8 and pytest 9.2."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Look for the mark that xdist leaves in the name of a test that is in a group."""
        if not getattr(config.option, "loadgroup", False):
            return
        for item in items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(
                    f"{item.nodeid} is to run in one worker with others, but this pytest and this"
                    " pytest-xdist do not group tests: install pytest<9.2."
                )


def pytest_configure(config: pytest.Config) -> None:
    """Look at the groups after everyone else."""
    config.pluginmanager.register(Grouped())


def pytest_unconfigure() -> None:
    """Bound the time that threads left behind can hold up the end of the run."""
    faulthandler.dump_traceback_later(EXIT_LIMIT_S, exit=True, file=STDERR)


@pytest.fixture(scope="session")
def mongodb_uri(pytestconfig: pytest.Config) -> Iterator[str]:
    """The server's connection string: MONGODB_URI, or that of an embedded server."""
    uri = os.environ.get("MONGODB_URI")
    if uri:
        yield uri
        return
    with contextlib.ExitStack() as stack:
        # What the server's keeper prints is for the terminal: it may outlive this process.
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            uri = stack.enter_context(embedded_server())
        yield uri


@pytest.fixture(scope="session")
def mongo_client(mongodb_uri: str) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client for looking at what was stored."""
    with MongoClient[dict[str, Any]](mongodb_uri) as client:
        yield client


@pytest.fixture
def database(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Database[dict[str, Any]]]:
    """A database of this test alone, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield mongo_client[name]
    mongo_client.drop_database(name)


@pytest.fixture(params=["sync", "async"])
def face_kind(request: pytest.FixtureRequest) -> Kind:
    """Which of the two savers the test runs on."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def make_face(
    face_kind: Kind, mongodb_uri: str, database: Database[dict[str, Any]]
) -> Iterator[MakeFace]:
    """Makes faces on the test's database; all are closed when the test ends."""
    # Here, so that tests of pure functions do not import both savers.
    from tests.face import Face

    with contextlib.ExitStack() as closing:

        def make(*, client_kwargs: Mapping[str, Any] | None = None, **saver_kwargs: Any) -> Face:
            return Face(
                face_kind,
                mongodb_uri,
                database.name,
                closing=closing,
                client_kwargs=client_kwargs,
                **saver_kwargs,
            )

        yield make


@pytest.fixture
def face(make_face: MakeFace) -> Face:
    """A face with the savers' defaults."""
    return make_face()
