"""Long-term memory in a LangGraph store: what leaves the window is found again by a later run.

The chat below keeps six messages in its thread. Older turns go to a `BaseStore`, under the user's
namespace and under a stable key, so that a repeated delivery overwrites itself. Before it answers,
the node searches that store for what the question is about.

    uv run python examples/long_term_memory.py
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from agentstate_reducer import MessageReducer, PrunedMessages, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver


def remember_in(store: BaseStore) -> Callable[[PrunedMessages, Any], None]:
    """Return a hook that puts what was said into a store."""

    def remember(messages: PrunedMessages, namespace: Any) -> None:
        for key, message in zip(messages.keys, messages, strict=True):
            if message.content:
                store.put(namespace, key, {"who": message.type, "said": message.content})

    return remember


def recall(store: BaseStore, namespace: Any, question: str) -> list[str]:
    """Return what was said about the question's words; a real store would search by meaning."""
    words = set(re.findall(r"\w{4,}", question.lower()))
    found = store.search(namespace, limit=1000)
    return [
        item.value["said"]
        for item in found
        if item.value["who"] == "human" and words & set(item.value["said"].lower().split())
    ]


def build(saver: BaseCheckpointSaver[Any], store: BaseStore) -> Any:
    """Return a chat that answers from its window and from its memory."""

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        namespace = config["configurable"]["memory_namespace"]
        question = str(state["messages"][-1].content)
        found = recall(store, namespace, question) if question.endswith("?") else []
        return {"messages": [AIMessage(f"You said: {found[0]}" if found else "I see.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver, store=store)


def main() -> None:
    """Chat on one thread, then ask on another."""
    store = InMemoryStore()
    config = ReducerConfig(min_messages=2, max_messages=6, on_prune=[remember_in(store)])
    saver = ReducingSaver(InMemorySaver(), MessageReducer(config=config))
    chat = build(saver, store)

    def say(thread: str, text: str) -> str:
        where = {"thread_id": thread, "memory_namespace": ("memories", "kim")}
        state = chat.invoke({"messages": [HumanMessage(text)]}, {"configurable": where})
        return str(state["messages"][-1].content)

    say("monday", "my sister lives in Lisbon")
    for day in ("Tuesday", "Wednesday", "Thursday", "Friday"):
        say("monday", f"on {day} it rained")
    window = chat.get_state({"configurable": {"thread_id": "monday"}}).values["messages"]
    print(f"{len(window)} messages in the thread, {len(store.search(('memories',)))} in memory")
    print(say("friday", "where does my sister live?"))


if __name__ == "__main__":
    main()
