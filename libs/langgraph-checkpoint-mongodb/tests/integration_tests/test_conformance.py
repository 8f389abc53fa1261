"""LangGraph's own conformance suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import CapabilityReport
from pymongo.database import Database

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver
from tests.face import Kind


@pytest.fixture
async def report(
    face_kind: Kind, mongodb_uri: str, database: Database[dict[str, Any]]
) -> CapabilityReport:
    """What the suite says of one of the savers."""

    @checkpointer_test(name=face_kind)
    async def saver() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        if face_kind == "sync":
            with MongoDBSaver.from_conn_string(mongodb_uri, database.name) as made:
                yield made
        else:
            async with AsyncMongoDBSaver.from_conn_string(mongodb_uri, database.name) as other:
                yield other

    return await validate(saver)


async def test_every_capability_is_there_and_conforms(report: CapabilityReport) -> None:
    failures = {name: result.failures for name, result in report.results.items()}
    assert failures == {capability.value: [] for capability in Capability}
    assert all(result.detected and result.passed for result in report.results.values())
