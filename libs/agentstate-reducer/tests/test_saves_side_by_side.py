"""A graph and its subgraph save the same messages at the same time: each goes to a hook once."""

import asyncio
import threading
import time
from collections import Counter

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver


class Slow(InMemorySaver):
    def put(self, *args):
        time.sleep(0.05)
        return super().put(*args)

    async def aput(self, *args):
        await asyncio.sleep(0.05)
        return InMemorySaver.put(self, *args)


def arguments(namespace):
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {
        "messages": [HumanMessage(f"q{i}", id=f"q{i}") for i in range(8)]
    }
    checkpoint["channel_versions"] = {"messages": "1"}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    return config, checkpoint, {}, {"messages": "1"}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_namespaces_of_a_thread_that_save_together_hand_over_once(kind):
    got = Counter()
    settings = ReducerConfig(
        min_messages=2,
        max_messages=4,
        on_prune=[lambda messages, _: got.update(m.content for m in messages)],
    )
    saver = ReducingSaver(Slow(), MessageReducer(config=settings))
    namespaces = ["", "agent:1", "agent:2"]
    if kind == "sync":
        threads = [
            threading.Thread(target=saver.put, args=arguments(namespace))
            for namespace in namespaces
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:

        async def together():
            await asyncio.gather(*(saver.aput(*arguments(name)) for name in namespaces))

        asyncio.run(together())
    assert got == Counter({f"q{i}": 1 for i in range(6)})


@pytest.mark.parametrize("called_every", [1, 3])
@pytest.mark.parametrize("new_process_each_turn", [False, True])
def test_a_subgraph_with_a_memory_of_its_own_hands_over_once(new_process_each_turn, called_every):
    got, inner = Counter(), InMemorySaver()

    def hook(messages, namespace):
        got.update(m.content for m in messages)

    def build():
        settings = ReducerConfig(min_messages=4, max_messages=8, on_prune=[hook])
        child = StateGraph(MessagesState)
        child.add_node("think", lambda state: {"messages": [AIMessage(f"t{len(said)}")]})
        child.add_edge(START, "think")
        parent = StateGraph(MessagesState)
        parent.add_node("child", child.compile(checkpointer=True))
        parent.add_node("answer", lambda state: {"messages": [AIMessage(f"a{len(said)}")]})
        parent.add_conditional_edges(
            START, lambda state: "child" if len(said) % called_every == 0 else "answer"
        )
        parent.add_edge("child", "answer")
        return parent.compile(checkpointer=ReducingSaver(inner, MessageReducer(config=settings)))

    said: list[str] = []
    config = {"configurable": {"thread_id": "t"}}
    graph = build()
    for number in range(40):
        graph = build() if new_process_each_turn else graph
        said.append(f"q{number}")
        graph.invoke({"messages": [HumanMessage(said[-1])]}, config)
    kept = {m.content for m in graph.get_state(config).values["messages"]}
    assert {text for text, count in got.items() if count > 1} == set()
    assert set(said) <= kept | set(got)
