"""Fixtures for tests that look at, or tamper with, the server itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from langgraph.checkpoint.mongodb._layout import growing, pieces
from langgraph.checkpoint.mongodb._layout import plan as planning
from tests.face import Face, MakeFace
from tests.support import CommandCounter

COMMAND_NOT_FOUND = 59


class FailCommand(Protocol):
    """Makes the server fail commands of one client while a context is open."""

    def __call__(
        self,
        commands: Sequence[str],
        *,
        app_name: str,
        mode: str | dict[str, int] = "alwaysOn",
        **data: Any,
    ) -> AbstractContextManager[None]:
        """Switch the fail point on, and off again when the context ends.

        Args:
            commands: Names of the commands to fail, as `find`.
            app_name: The `appname` of the client whose commands fail; give the client one of
                its own, so that no other test is hit.
            mode: `alwaysOn`, `{"times": n}` for the first n, or `{"skip": n}` for all after n.
            **data: What happens, as the server names it: `errorCode`, `errorLabels`,
                `closeConnection`, `blockConnection` and `blockTimeMS`, `writeConcernError`.
        """
        ...


@pytest.fixture
def counter() -> CommandCounter:
    """Records a client's commands, once it is among its `event_listeners`."""
    return CommandCounter()


@pytest.fixture
def counted(make_face: MakeFace, counter: CommandCounter) -> Face:
    """A saver whose commands are counted, its indexes made."""
    face = make_face(client_kwargs={"event_listeners": [counter]})
    face.setup()
    return face


@pytest.fixture
def fail_command(mongo_client: MongoClient[dict[str, Any]]) -> FailCommand:
    """The server's `failCommand`; skips where the server was started without test commands."""

    def configure(mode: str | dict[str, int], **data: Any) -> None:
        try:
            point = {"configureFailPoint": "failCommand", "mode": mode, "data": data}
            mongo_client.admin.command(point)
        except OperationFailure as error:
            if error.code != COMMAND_NOT_FOUND:
                raise
            pytest.skip(
                "the server has no fail points: start mongod with"
                " --setParameter enableTestCommands=1"
            )

    @contextlib.contextmanager
    def failing(
        commands: Sequence[str],
        *,
        app_name: str,
        mode: str | dict[str, int] = "alwaysOn",
        **data: Any,
    ) -> Any:
        configure(mode, failCommands=list(commands), appName=app_name, **data)
        try:
            yield
        finally:
            configure("off")

    return failing


@pytest.fixture
def small_limits() -> Iterator[None]:
    """Few items make pieces, merges and bundles, and what is large is still large."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(growing, "MAX_PIECES", 3)
        patched.setattr(growing, "PIECE_BYTES", 200)
        patched.setattr(planning, "MAX_PIECES", 3)
        patched.setattr(planning, "INLINE_VALUE_BYTES", 60)
        patched.setattr(planning, "INLINE_TOTAL_BYTES", 60)
        patched.setattr(planning, "BUNDLED_INLINE_BYTES", 30)
        patched.setattr(planning, "RECENT_VALUE_BYTES", 110)
        patched.setattr(planning, "RECENT_TOTAL_BYTES", 50)
        patched.setattr(pieces, "TAILS_TOTAL_BYTES", 80)
        patched.setattr(growing.cut_value, "__kwdefaults__", {"most_tail": 40})
        yield


@pytest.fixture
def mongod(mongo_client: MongoClient[dict[str, Any]]) -> None:
    """Skips on servers that only imitate MongoDB: they plan queries in their own way."""
    if not mongo_client.admin.command("buildInfo")["gitVersion"].strip("0"):
        pytest.skip("the server is an emulation: set MONGODB_URI to a MongoDB server")


@pytest.fixture
def ttl_monitor(mongod: None, mongo_client: MongoClient[dict[str, Any]]) -> None:
    """Skips where the server looks for expired documents more rarely than every second."""
    asked = mongo_client.admin.command({"getParameter": 1, "ttlMonitorSleepSecs": 1})
    if asked["ttlMonitorSleepSecs"] > 1:
        pytest.skip("slow TTL monitor: start mongod with --setParameter ttlMonitorSleepSecs=1")
