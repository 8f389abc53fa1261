"""Long-term memory: a store that is filled and looked in, and the namespace of a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from chats import texts, turns
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from threads import Remember, Run, reducing

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver, memory_namespace, recall, remember_in

ALL = texts(turns(10))


def test_what_is_pruned_is_in_the_store_once() -> None:
    store = InMemoryStore()
    for settings in ({}, {"dedupe_on_prune": False}):
        for n in range(5):
            Run(reducing(InMemorySaver(), remember_in(store), **settings)).say(*turns(n + 1))
    found = store.search(("memories", "kim"), limit=100)
    assert sorted(item.value["content"] for item in found) == sorted(ALL[:8])
    assert {item.value["role"] for item in found} == {"human", "ai"}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_model_recalls_what_left_the_window(kind: str) -> None:
    store, inner = InMemoryStore(), InMemorySaver()
    reducer = MessageReducer(
        config=ReducerConfig(min_messages=2, max_messages=4, on_prune=[remember_in(store)])
    )
    tool = recall(store, reducer, limit=100)
    assert list(tool.args) == ["query"]

    def call(state: Any) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done")]}
        asked = {"name": "recall", "args": {"query": "question"}, "id": "c1"}
        return {"messages": [AIMessage("", tool_calls=[asked])]}

    builder = StateGraph(MessagesState)
    builder.add_node("call", call)
    builder.add_node("tools", ToolNode([tool]))
    builder.add_edge(START, "call")
    builder.add_edge("call", "tools")
    graph = builder.compile(checkpointer=ReducingSaver(inner, reducer))
    config: Any = {"configurable": {"thread_id": "t"}}
    for n in range(3):
        question = {"messages": [("user", f"question {n}")]}
        if kind == "sync":
            result = graph.invoke(question, config)
        else:
            result = asyncio.run(graph.ainvoke(question, config))
    assert "human: question 0" in result["messages"][-1].content


@dataclass
class Context:
    user: str


def test_a_namespace_may_be_made_of_config_and_runtime_context() -> None:
    hook = Remember()
    reducer = MessageReducer(
        config=ReducerConfig(
            min_messages=2,
            max_messages=4,
            on_prune=[hook],
            namespace=lambda config, context: (config["configurable"]["app"], context.user),
        )
    )
    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("yes")]})
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=ReducingSaver(InMemorySaver(), reducer))
    config: Any = {"configurable": {"thread_id": "t", "app": "shop"}}
    for _ in range(5):
        graph.invoke({"messages": [("user", "hi")]}, config, context=Context("kim"))
    assert {namespace for _, namespace in hook.batches} == {("shop", "kim")}


def test_a_namespace_that_fails_does_not_fail_a_save(caplog: pytest.LogCaptureFixture) -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook, namespace=lambda config, context: context.user)
    Run(saver).say(*turns(4))
    assert {namespace for _, namespace in hook.batches} == {("memories", "t")}
    assert len([r for r in caplog.records if "namespace failed" in r.getMessage()]) == 1


def test_the_namespace_of_a_config() -> None:
    assert memory_namespace(None, {"configurable": {"thread_id": "t"}}) == ("memories", "t")
    assert memory_namespace(None, None) is None
