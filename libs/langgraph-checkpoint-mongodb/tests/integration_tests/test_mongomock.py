"""Both savers on the clients that people test their own applications with."""

from __future__ import annotations

import asyncio
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, ChannelTooLargeError, MongoDBSaver
from tests.face import Kind
from tests.support import LARGE_SIZE, MB, Chain, thread

# mongomock knows no other way to tell the time than one that Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

DATABASE = "mocked"
LARGE = b"v" * LARGE_SIZE
MANY = {f"small {place}": f"{place:03}" * 130 for place in range(200)}
STEP: Any = {"source": "loop", "step": 0}


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    docs: str


class Mocked:
    """A saver on a mocked client, with synchronous methods."""

    def __init__(self, kind: Kind, **saver_kwargs: Any) -> None:
        self.kind = kind
        self._runner = asyncio.Runner()
        self.saver: Any
        if kind == "sync":
            import mongomock

            self.saver = MongoDBSaver(mongomock.MongoClient(), DATABASE, **saver_kwargs)
        else:
            self.saver = self.run(self._open(saver_kwargs))

    async def _open(self, saver_kwargs: dict[str, Any]) -> AsyncMongoDBSaver:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from mongomock_motor import AsyncMongoMockClient

        client: Any = AsyncMongoMockClient()
        return AsyncMongoDBSaver(client, DATABASE, **saver_kwargs)

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def __call__(self, of: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the saver or of a graph by its sync name."""
        if self.kind == "sync":
            return getattr(of, method)(*args, **kwargs)
        return self.run(getattr(of, f"a{method}")(*args, **kwargs))

    def list(self, config: Any, **kwargs: Any) -> list[Any]:
        if self.kind == "sync":
            return [*self.saver.list(config, **kwargs)]

        async def listed() -> list[Any]:
            return [row async for row in self.saver.alist(config, **kwargs)]

        rows: list[Any] = self.run(listed())
        return rows

    def count(self, collection: str) -> int:
        """How many documents a collection of the saver's database holds."""
        counted = self.saver.client[DATABASE][collection].count_documents({})
        found: int = counted if self.kind == "sync" else self.run(counted)
        return found

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        return self.saver.get_next_version(current, channel)

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self(self.saver, "put", config, checkpoint, metadata, new_versions)

    def store(self, values: dict[str, Any], config: Any = None, **metadata: Any) -> Any:
        """Put one checkpoint, a thread's first or the one after another."""
        return Chain(self, config=config).put(values, metadata=metadata)

    def close(self) -> None:
        self._runner.close()


@pytest.fixture
def mocked(face_kind: Kind) -> Iterator[Mocked]:
    made = Mocked(face_kind)
    yield made
    made.close()


def test_a_checkpoint_is_stored_and_read(mocked: Mocked) -> None:
    values = {"few": 1, "docs": LARGE, "more": [LARGE]}
    config = mocked.store(values)
    found = mocked(mocked.saver, "get_tuple", thread())
    assert found.config == config
    assert found.checkpoint["channel_values"] == values
    assert found.metadata == STEP


def test_an_unchanged_large_value_is_carried_over(mocked: Mocked) -> None:
    chain = Chain(mocked)
    chain.put({"docs": LARGE, "few": 1})
    assert mocked.count("checkpoint_channel_values") == 1
    chain.put({"few": 2})
    rows = mocked.list(thread())
    assert [row.checkpoint["channel_values"]["few"] for row in rows] == [2, 1]
    assert all(row.checkpoint["channel_values"]["docs"] == LARGE for row in rows)
    assert mocked.count("checkpoint_channel_values") == 1


def test_values_that_grow_and_many_small_ones_are_read_as_they_were_put(mocked: Mocked) -> None:
    chain = Chain(mocked)
    put = [(chain.put({"list": ["x" * LARGE_SIZE] * 3, **MANY}), dict(chain.values))]
    for number in range(12):
        # Every third is a fork from the one before.
        changes = {"list": [*chain.values["list"], f"{number}" * 3000], f"small {number}": "new"}
        fork = Chain(mocked, config=chain.config) if number % 3 == 2 else chain
        fork.values, fork.versions = dict(chain.values), dict(chain.versions)
        put.append((fork.put(changes), dict(fork.values)))
    for config, values in put:
        found = mocked(mocked.saver, "get_tuple", config)
        assert found.checkpoint["channel_values"] == values
    before = mocked.count("checkpoint_channel_values")
    mocked(mocked.saver, "prune", ["t"])
    assert 5 < mocked.count("checkpoint_channel_values") < before
    assert [row.checkpoint["channel_values"] for row in mocked.list(thread())] == [put[-1][1]]


def test_pending_writes_are_stored_and_read_in_order(mocked: Mocked) -> None:
    config = mocked.store({"a": 1})
    mocked(mocked.saver, "put_writes", config, [("a", 2), ("b", LARGE)], "two", "~2")
    mocked(mocked.saver, "put_writes", config, [("a", 1)], "one", "~1")
    mocked(mocked.saver, "put_writes", config, [("a", "again")], "one", "~1")
    mocked(mocked.saver, "put_writes", config, [("__error__", "first")], "one")
    mocked(mocked.saver, "put_writes", config, [("__error__", "second")], "one")
    found = mocked(mocked.saver, "get_tuple", config)
    assert [value for _, _, value in found.pending_writes] == ["second", 1, 2, LARGE]


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"limit": 2}, [4, 3]),
        ({"filter": {"step": 3}}, [3]),
        ({"filter": {"who": "ann"}}, [2]),
        ({"filter": {"who": "ann", "step": 1}}, []),
    ],
)
def test_checkpoints_are_listed(mocked: Mocked, given: dict[str, Any], steps: list[int]) -> None:
    config = thread()
    for step in range(5):
        config = mocked.store(
            {"a": step}, config, step=step, **({"who": "ann"} if step == 2 else {})
        )
    assert [row.metadata["step"] for row in mocked.list(thread(), **given)] == steps
    assert len(mocked.list(None, **given)) == len(steps)


def test_a_thread_is_deleted(mocked: Mocked) -> None:
    config = mocked.store({"a": LARGE})
    mocked(mocked.saver, "put_writes", config, [("a", 1)], "task")
    mocked(mocked.saver, "delete_thread", "t")
    assert mocked(mocked.saver, "get_tuple", thread()) is None
    assert mocked.list(None) == []


def test_a_large_input_is_stored_in_parts(mocked: Mocked) -> None:
    values = {"__start__": {name: bytes([ord(name)]) * (5 * MB) for name in "abcd"}}
    config = mocked.store(values)
    found = mocked(mocked.saver, "get_tuple", config)
    assert found.checkpoint["channel_values"] == values


def test_a_channel_that_no_server_takes_is_refused(mocked: Mocked) -> None:
    with pytest.raises(ChannelTooLargeError):
        mocked.store({"a": bytes(17 * MB)})
    assert mocked.list(None) == []


def build(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"log": [f"got {interrupt('name?')}"]})
    graph.add_node("end", lambda state: {"log": [f"docs {len(state['docs'])}"]})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=saver)


def test_a_graph_with_an_interrupt_runs(mocked: Mocked) -> None:
    graph = build(mocked.saver)
    paused = mocked(graph, "invoke", {"log": ["in"], "docs": "d" * 10_000}, thread())
    assert [one.value for one in paused["__interrupt__"]] == ["name?"]
    done = mocked(graph, "invoke", Command(resume="Ann"), thread())
    assert done["log"] == ["in", "got Ann", "docs 10000"]
    state = mocked(graph, "get_state", thread())
    assert (state.next, state.values) == ((), done)


@pytest.mark.parametrize("ttl", [None, 60])
def test_the_savers_can_be_made_again_on_one_client(face_kind: Kind, ttl: int | None) -> None:
    mocked = Mocked(face_kind, ttl=60)
    mocked.store({"a": LARGE})
    again: Callable[..., Any] = type(mocked.saver)
    mocked.saver = again(mocked.saver.client, DATABASE, ttl=ttl)
    mocked.store({"a": LARGE}, thread("other"))
    assert len(mocked.list(None)) == 2
    mocked.close()
