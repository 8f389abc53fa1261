"""The graphs of the upgrade tests, and what a thread of theirs looks like from outside.

This module is imported twice: by the tests, with today's LangGraph, and by
`old_release.py`, with the LangGraph of an old release's day. So it keeps to what all
of them have, and both sides describe a thread with the very same code.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt


class State(TypedDict, total=False):
    """A state with every kind of reducer that old threads commonly hold."""

    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    name: str
    extra: Any


def _actor(config: RunnableConfig) -> str:
    """Who runs the node: so a log tells which release ran what."""
    return str(config["configurable"].get("actor", "nobody"))


def _reply(state: State, config: RunnableConfig) -> State:
    turn = len(state["messages"])
    return {
        "messages": [AIMessage(f"reply to {state['messages'][-1].content}", id=f"ai-{turn}")],
        "log": [f"reply by {_actor(config)}"],
        "total": 1,
    }


def _ask(state: State, config: RunnableConfig) -> State:
    answer = interrupt({"question": "what next?", "for": state.get("name")})
    return {"log": [f"ask by {_actor(config)}: {answer}"], "total": 10}


def _work(state: State, config: RunnableConfig) -> State:
    return {"log": [f"work by {_actor(config)}"], "total": 100}


def _end(state: State, config: RunnableConfig) -> State:
    return {"log": [f"end by {_actor(config)}"], "extra": {"ended": (1, 2)}}


def _flaky(state: State, config: RunnableConfig) -> State:
    if config["configurable"].get("fail"):
        raise RuntimeError("told to fail")
    return {"log": [f"flaky by {_actor(config)}"]}


def _fan_out(state: State) -> list[Send]:
    return [Send("item", {"name": name}) for name in ("a", "b", "c")]


def _item(state: State, config: RunnableConfig) -> State:
    name = state["name"]
    note = interrupt(f"item {name}?") if name == "b" else "-"
    return {"log": [f"item {name} by {_actor(config)}: {note}"], "total": 1}


def chat(checkpointer: Any = None) -> Any:
    """One node that answers: for threads of many finished turns."""
    graph = StateGraph(State)
    graph.add_node("reply", _reply)
    graph.add_node("end", _end)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=checkpointer)


def approval(checkpointer: Any = None) -> Any:
    """A node that asks beside one that works: pauses with a finished sibling's writes pending."""
    graph = StateGraph(State)
    graph.add_node("ask", _ask)
    graph.add_node("work", _work)
    graph.add_node("end", _end)
    for node in ("ask", "work"):
        graph.add_edge(START, node)
    graph.add_edge(["ask", "work"], "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=checkpointer)


def nested(checkpointer: Any = None) -> Any:
    """`approval` as a subgraph, so its namespace has checkpoints and an interrupt of its own."""
    graph = StateGraph(State)
    graph.add_node("before", _work)
    graph.add_node("child", approval())
    graph.add_node("after", _end)
    graph.add_edge(START, "before")
    graph.add_edge("before", "child")
    graph.add_edge("child", "after")
    graph.add_edge("after", END)
    return graph.compile(checkpointer=checkpointer)


def flaky(checkpointer: Any = None) -> Any:
    """A node that works, then one that fails on demand: leaves an error pending."""
    graph = StateGraph(State)
    graph.add_node("work", _work)
    graph.add_node("flaky", _flaky)
    graph.add_edge(START, "work")
    graph.add_edge("work", "flaky")
    graph.add_edge("flaky", END)
    return graph.compile(checkpointer=checkpointer)


def fanout(checkpointer: Any = None) -> Any:
    """Three Sends, the second of which asks: pauses with Sends in the checkpoint."""
    graph = StateGraph(State)
    graph.add_node("item", _item)
    graph.add_node("end", _end)
    graph.add_conditional_edges(START, _fan_out, ["item"])
    graph.add_edge("item", "end")
    graph.add_edge("end", END)
    return graph.compile(checkpointer=checkpointer)


GRAPHS = {graph.__name__: graph for graph in (chat, approval, nested, flaky, fanout)}


def graph_of(thread: str, checkpointer: Any) -> Any:
    """The graph that a thread's name begins with: `approval` for `approval-2` too."""
    return GRAPHS[thread.split("-")[0]](checkpointer)


def metadata_of(release: str) -> dict[str, Any]:
    """What an application puts into its config's metadata: values of several kinds."""
    return {
        "tenant": "blue",
        "release": release,
        "count": 7,
        "score": 1.0,
        "flag": True,
        "nothing": None,
        "labels": ["x", "y"],
        "user": {"id": 7, "profile": {"city": "Bath", "age": 40}},
        "dotted.key": "dot",
    }


def plain(value: Any) -> Any:
    """A value as JSON that keeps apart what JSON alone would not (tuple and list, say)."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, BaseMessage):
        return {"message": value.type, "id": value.id, "content": value.content}
    if isinstance(value, Mapping):
        return {"map": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [plain(item) for item in value]}
    if isinstance(value, set):
        return {"set": sorted(map(repr, value))}
    return {type(value).__name__: repr(value)}


def describe(snapshot: Any) -> dict[str, Any]:
    """What one state of a thread shows to the outside, ready for JSON.

    Left out is what LangGraph itself words differently from release to release.
    """
    return {
        "checkpoint_id": snapshot.config["configurable"]["checkpoint_id"],
        "parent": (snapshot.parent_config or {"configurable": {}})["configurable"].get(
            "checkpoint_id"
        ),
        "values": plain(dict(sorted(snapshot.values.items()))),
        "next": list(snapshot.next),
        "created_at": snapshot.created_at,
        "metadata": plain(dict(sorted(snapshot.metadata.items()))),
        "tasks": sorted((describe_task(task) for task in snapshot.tasks), key=repr),
    }


def describe_task(task: Any) -> dict[str, Any]:
    """One task of a state: its error, its interrupts, and its subgraph's state if asked for."""
    inner = task.state
    return {
        "id": task.id,
        "name": task.name,
        "error": None if task.error is None else repr(task.error),
        "interrupts": [[item.id, plain(item.value)] for item in task.interrupts],
        "state": describe(inner) if hasattr(inner, "values") and hasattr(inner, "next") else None,
    }


def report(state: Any, history: Iterable[Any]) -> dict[str, Any]:
    """A thread: its newest state with subgraphs' states in it, and its history, newest first."""
    return {"state": describe(state), "history": [describe(item) for item in history]}
