"""Graphs whose state is 17 MB, each from another place; run as a program, resumes them.

`python -m tests.integration_tests.large_graphs URI DATABASE KIND` goes on with a thread of each
graph in a process of its own and prints their states' digests as JSON.
"""

from __future__ import annotations

import hashlib
import json
import operator
import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Any, TypedDict, cast

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from tests.face import Face, Kind
from tests.support import MB, thread

DOCS = "The quick brown fox. " * (7 * MB // 21)
TOOL_RESULT = random.Random(1).randbytes(10 * MB)
SENT = [random.Random(seed).randbytes(MB) for seed in range(17)]


class State(TypedDict, total=False):
    docs: str
    tool_result: bytes
    received: Annotated[list[str], operator.add]
    digests: list[str]


def digest(value: str | bytes) -> str:
    """What tells one large value from another."""
    data = value.encode() if isinstance(value, str) else value
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()}"


def _finish(state: State) -> State:
    large = [value for value in (state.get("docs"), state.get("tool_result")) if value is not None]
    return {"digests": [digest(value) for value in large] + sorted(state.get("received", []))}


def _receive(state: State) -> State:
    return {"received": [digest(state["tool_result"])]}


def _two_nodes() -> Any:
    graph = StateGraph(State)
    graph.add_node("read", lambda state: {"docs": DOCS})
    graph.add_node("call", lambda state: {"tool_result": TOOL_RESULT})
    graph.add_edge(START, "read")
    graph.add_edge("read", "call")
    graph.add_edge("call", "finish")
    return graph


def _one_node() -> Any:
    graph = StateGraph(State)
    graph.add_node("both", lambda state: {"docs": DOCS, "tool_result": TOOL_RESULT})
    graph.add_edge(START, "both")
    graph.add_edge("both", "finish")
    return graph


def _input() -> Any:
    graph = StateGraph(State)
    graph.add_edge(START, "finish")
    return graph


def _sends() -> Any:
    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {})
    graph.add_node("receive", _receive)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("receive", {"tool_result": one}) for one in SENT], ["receive"]
    )
    graph.add_edge("receive", "finish")
    return graph


WAYS: dict[str, Callable[[], Any]] = {
    "two nodes": _two_nodes,
    "one node": _one_node,
    "input": _input,
    "sends": _sends,
}


def build(way: str) -> Any:
    """The graph's builder; its last node tells what the state holds."""
    graph = WAYS[way]()
    graph.add_node("finish", _finish)
    graph.add_edge("finish", END)
    return graph


def compiled(face: Face, way: str) -> Any:
    """The graph, pausing when the 17 MB are in the state."""
    before = "receive" if way == "sends" else "finish"
    return face.compile(build(way), interrupt_before=[before])


def main(uri: str, db_name: str, kind: str) -> None:
    """Resume a thread of each graph with nothing but what the database holds."""
    with ExitStack() as closing:
        face = Face(cast(Kind, kind), uri, db_name, closing=closing)
        states = {way: face.invoke(compiled(face, way), None, thread(way)) for way in WAYS}
        print(json.dumps({way: state["digests"] for way, state in states.items()}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
