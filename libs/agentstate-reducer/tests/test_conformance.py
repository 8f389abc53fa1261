"""LangGraph's conformance suite: a wrapped saver does what the bare one does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import servers
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver


@asynccontextmanager
async def in_memory(uri: str) -> AsyncIterator[Any]:
    yield InMemorySaver()


@asynccontextmanager
async def sqlite(uri: str) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


@asynccontextmanager
async def mongodb(uri: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.mongodb import MongoDBSaver

    with servers.mongodb_database(uri) as name, MongoDBSaver.from_conn_string(uri, name) as saver:
        yield saver


@asynccontextmanager
async def async_mongodb(uri: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.mongodb import AsyncMongoDBSaver

    with servers.mongodb_database(uri) as name:
        async with AsyncMongoDBSaver.from_conn_string(uri, name) as saver:
            yield saver


@asynccontextmanager
async def async_postgres(uri: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    with servers.postgres_database() as database:
        async with AsyncPostgresSaver.from_conn_string(database) as saver:
            await saver.setup()
            yield saver


def handed_nothing(messages: list[Any], namespace: Any) -> None:
    raise AssertionError(f"the suite stores no conversation, and still {messages} was pruned")


async def results(open_saver: Any, uri: str, *, wrapped: bool) -> dict[str, Any]:
    """Run the suite; return for each capability whether it is there and what passed and failed."""

    @checkpointer_test(name=f"{open_saver.__name__}, {'wrapped' if wrapped else 'bare'}")
    async def make() -> AsyncGenerator[Any, None]:
        async with open_saver(uri) as saver:
            config = ReducerConfig(max_messages=6, on_prune=[handed_nothing])
            yield ReducingSaver(saver, MessageReducer(config=config)) if wrapped else saver

    report = await validate(make)
    return {
        name: (r.detected, r.passed, r.tests_passed, r.tests_failed, sorted(map(str, r.failures)))
        for name, r in report.results.items()
    }


@pytest.mark.parametrize("open_saver", [in_memory, sqlite, mongodb, async_mongodb, async_postgres])
async def test_a_wrapped_saver_has_the_capabilities_and_results_of_the_bare_one(
    open_saver: Any, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("mongodb_uri") if "mongodb" in open_saver.__name__ else ""
    bare = await results(open_saver, uri, wrapped=False)
    wrapped = await results(open_saver, uri, wrapped=True)
    assert wrapped == bare
    assert all(wrapped[name][:2] == (True, True) for name in ("put", "get_tuple", "put_writes"))
