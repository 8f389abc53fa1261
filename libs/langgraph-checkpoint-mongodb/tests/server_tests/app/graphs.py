"""Graphs that LangGraph's API server serves in the tests."""

import asyncio
import itertools
import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt


class Words(TypedDict):
    """A list, and a value too large to lie in the checkpoint."""

    words: Annotated[list[str], operator.add]
    document: str


async def say(state: Words) -> dict[str, Any]:
    """Answer, and take a moment if asked to."""
    if state["words"][-1].startswith("slow"):
        await asyncio.sleep(20)
    return {"words": [f"heard {state['words'][-1]}"], "document": state["words"][-1] * 10_000}


agent = StateGraph(Words).add_node("say", say).add_edge(START, "say").compile()


def ask(state: Words) -> dict[str, Any]:
    """Ask a person twice."""
    first = interrupt("first?")
    return {"words": [first, interrupt("second?")]}


_inner = StateGraph(Words).add_node("ask", ask).add_edge(START, "ask").compile()
asks = StateGraph(Words).add_node("inner", _inner).add_edge(START, "inner").compile()


def extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """The reducer of a delta channel."""
    return [*state, *itertools.chain.from_iterable(writes)]


class Log(TypedDict):
    """A delta channel."""

    log: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=50)]


delta = (
    StateGraph(Log)
    .add_node("note", lambda state: {"log": [f"noted {len(state['log'])}"]})
    .add_edge(START, "note")
    .compile()
)


class Chat(TypedDict, total=False):
    """What `chat` of the upgrade tests has, as an application has it that was upgraded."""

    messages: Annotated[list[Any], add_messages]
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    name: str
    extra: Any


chat = (
    StateGraph(Chat)
    .add_node("reply", lambda state: {"log": [f"reply {len(state['messages'])}"], "total": 1})
    .add_node("end", lambda state: {"log": ["end"]})
    .add_edge(START, "reply")
    .add_edge("reply", "end")
    .compile()
)
