"""`as_langgraph_reducer` beside `add_messages`, and clients that send their whole transcript."""

from __future__ import annotations

from typing import Any

import pytest
from chats import ai, human, turns
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver
from agentstate_reducer.merging import merge


@pytest.mark.parametrize(
    "update",
    [
        "hi",
        ("user", "hi"),
        ("ai", "hi"),
        ["hi", ("assistant", "ho"), ["system", "be kind"]],
        ["user", "hi"],
        [{"role": "user", "content": "hi"}],
        HumanMessage("hi"),
    ],
    ids=repr,
)
def test_shorthand_is_taken_as_add_messages_takes_it(update: Any) -> None:
    ours: Any = MessageReducer(2, 20).as_langgraph_reducer()([], update)
    theirs: Any = add_messages([], update)
    said = [(m["role"] if isinstance(m, dict) else m.type, _content(m)) for m in ours]
    same = {"user": "human"}
    assert [(same.get(r, r), c) for r, c in said] == [(m.type, m.content) for m in theirs]


def _content(message: Any) -> Any:
    return message["content"] if isinstance(message, dict) else message.content


def test_shorthand_becomes_a_dict_among_dicts() -> None:
    state = MessageReducer(2, 20).as_langgraph_reducer()([human("a")], "b")
    assert state == [human("a"), {"role": "user", "content": "b"}]


@given(st.integers(1, 8), st.integers(0, 8), st.integers(0, 3))
def test_a_whole_transcript_gives_its_newest_turns(said: int, window: int, new: int) -> None:
    whole = turns(said + new)
    kept = turns(said)[max(0, 2 * (said - window)) :]
    assert merge(kept, [*whole, human("last", "last")])[-1]["id"] == "last"
    if kept:
        assert merge(kept, whole) == whole


def test_a_node_that_changes_an_older_message_moves_nothing() -> None:
    state = [*turns(2), AIMessage("", id="x", tool_calls=[{"name": "f", "args": {}, "id": "c"}])]
    update = [ToolMessage("r", tool_call_id="c", id="r"), {**ai("better"), "id": "a1"}]
    assert [m["id"] if isinstance(m, dict) else m.id for m in merge(state, update)] == [
        *("q0", "a0", "q1", "a1", "x", "r"),
    ]


def graph(inner: Any, **settings: Any) -> Any:
    def answer(state: Any) -> Any:
        asked = state["messages"][-1]
        return {"messages": [AIMessage(f"re {asked.content}", id=f"A{asked.id}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    reducer = MessageReducer(config=ReducerConfig(**settings))
    return builder.compile(checkpointer=ReducingSaver(inner, reducer))


@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "a process each turn"])
def test_a_client_that_sends_everything_again_finds_the_newest_turns(fresh: bool) -> None:
    inner, got = InMemorySaver(), []
    settings: dict[str, Any] = {"min_messages": 4, "max_messages": 6}
    settings["on_prune"] = [lambda messages, namespace: got.extend(m.id for m in messages)]
    config = {"configurable": {"thread_id": "t"}}
    app, said = graph(inner, **settings), []
    for n in range(10):
        app = graph(inner, **settings) if fresh else app
        said.append(HumanMessage(f"q{n}", id=f"H{n}"))
        app.invoke({"messages": list(said)}, config)
        said.append(AIMessage(f"re q{n}", id=f"AH{n}"))
        window = [m.id for m in app.get_state(config).values["messages"]]
        assert window == [m.id for m in said][-len(window) :]
    if not fresh:
        assert len(got) == len(set(got))


@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "a process each turn"])
def test_a_shortened_result_is_handed_over_once_and_whole(fresh: bool) -> None:
    inner, got = InMemorySaver(), []
    settings: dict[str, Any] = {
        "max_tokens": 3000,
        "token_counter": lambda m: len(m.content),
        "keep_results": 1,
        "on_prune": [lambda messages, namespace: got.extend(messages)],
    }
    config = {"configurable": {"thread_id": "t"}}
    app = graph(inner, **settings)
    for n in range(12):
        app = graph(inner, **settings) if fresh else app
        call = {"name": "look", "args": {}, "id": f"c{n}"}
        update = [
            HumanMessage(f"q{n}", id=f"H{n}"),
            AIMessage("", tool_calls=[call], id=f"U{n}"),
            ToolMessage("x" * 1000, tool_call_id=f"c{n}", id=f"R{n}"),
        ]
        app.invoke({"messages": update}, config)
    window = app.get_state(config).values["messages"]
    ids = [m.id for m in got]
    assert len(ids) == len(set(ids))
    whole = {m.id for m in window if "were removed here" not in m.content}
    assert set(ids) | whole == {f"{kind}{n}" for kind in ("H", "U", "R", "AR") for n in range(12)}
    assert all(len(m.content) == 1000 for m in got if m.type == "tool")
