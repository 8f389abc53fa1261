"""The shapes of messages that are understood."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from chats import texts
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
    message_to_dict,
)

from agentstate_reducer import MessageReducer
from agentstate_reducer.keys import turn_digest
from agentstate_reducer.messages import UnknownMessageShape, read

CALL = {"name": "look", "args": {"at": 1}, "id": "c1"}


class Ours(HumanMessage):
    pass


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"role": "user"}, "human"),
        ({"role": "Assistant"}, "ai"),
        ({"role": "agent"}, "ai"),
        ({"role": "developer"}, "developer"),
        ({"type": "human"}, "human"),
        ({"type": "function_call_output", "call_id": "c"}, "tool"),
        (HumanMessage("x"), "human"),
        (HumanMessageChunk(content="x"), "human"),
        (AIMessageChunk(content="x"), "ai"),
        (ToolMessageChunk(content="x", tool_call_id="c"), "tool"),
        (SystemMessage("x"), "system"),
        (FunctionMessage("x", name="f"), "function"),
        (ChatMessage("x", role="assistant"), "ai"),
        (ChatMessage("x", role="critic"), "critic"),
        (RemoveMessage(id="x"), "remove"),
        (Ours("x"), "human"),
        (message_to_dict(AIMessage("x")), "ai"),
        (dumpd(ToolMessage("x", tool_call_id="c")), "tool"),
        (SimpleNamespace(role="user", content="x"), "human"),
    ],
)
def test_roles(message: Any, role: str) -> None:
    assert read(message).role == role


@pytest.mark.parametrize("message", [3, "hi", None, {}, {"role": ""}, {"role": 3}, object()])
def test_what_has_no_role_is_refused(message: Any) -> None:
    with pytest.raises(UnknownMessageShape, match=type(message).__name__):
        read(message)


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[CALL], id="m"),
        AIMessageChunk(
            content="",
            id="m",
            tool_call_chunks=[{"name": "look", "args": "", "id": "c1", "index": 0}],
        ),
        AIMessage(
            "", id="m", invalid_tool_calls=[{"name": "l", "args": "{", "id": "c1", "error": ""}]
        ),
        AIMessage("", id="m", additional_kwargs={"tool_calls": [{"id": "c1", "function": {}}]}),
        message_to_dict(AIMessage("", tool_calls=[CALL], id="m")),
        dumpd(AIMessage("", tool_calls=[CALL], id="m")),
        {"role": "assistant", "id": "m", "tool_calls": [{"id": "c1", "function": {"name": "l"}}]},
        {"role": "assistant", "id": "m", "tool_calls": [SimpleNamespace(id="c1", name="l")]},
    ],
)
def test_tool_calls_and_ids_are_found_in_every_form(message: Any) -> None:
    facts = read(message)
    assert facts.calls == ("c1",)
    assert facts.id == "m"


@pytest.mark.parametrize(
    "form", [lambda m: m, message_to_dict, dumpd], ids=["object", "dict", "dumpd"]
)
def test_exchanges_are_pruned_whole_in_every_form(form: Any) -> None:
    def chat(n: int) -> list[BaseMessage]:
        call = {**CALL, "id": f"c{n}"}
        return [
            HumanMessage(f"q{n}", id=f"q{n}"),
            AIMessage("", tool_calls=[call], id=f"a{n}"),
            ToolMessage("r", tool_call_id=f"c{n}", id=f"r{n}"),
        ]

    outcome = MessageReducer(3, 5).reduce([form(m) for n in range(3) for m in chat(n)])
    assert [read(m).id for m in outcome.surviving] == ["q2", "a2", "r2"]


def test_a_stored_message_has_the_digest_it_had() -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    serde = JsonPlusSerializer()
    for message in (
        AIMessage([{"type": "text", "text": "x"}], tool_calls=[{**CALL, "args": {"a": (1, 2)}}]),
        HumanMessage("x", id="m"),
        {"role": "user", "content": ["x", {"type": "image_url", "image_url": {"url": "u"}}]},
    ):
        again = serde.loads_typed(serde.dumps_typed(message))
        assert turn_digest(again, "n") == turn_digest(message, "n")


def test_a_digest_tells_content_id_calls_and_namespace_apart() -> None:
    messages = [
        HumanMessage("x", id="1"),
        HumanMessage("y", id="1"),
        HumanMessage("x", id="2"),
        AIMessage("x", id="1"),
        AIMessage("x", id="1", tool_calls=[CALL]),
        ToolMessage("x", id="1", tool_call_id="c1"),
        ToolMessage("x", id="1", tool_call_id="c2"),
    ]
    assert len({turn_digest(m, n) for m in messages for n in ("a", "b")}) == 14


def test_langchain_messages_stay_the_objects_they_were() -> None:
    messages = [HumanMessage(str(i)) for i in range(5)]
    outcome = MessageReducer(2, 3).reduce(messages)
    assert texts(outcome.surviving) == ["3", "4"]
    assert outcome.surviving[0] is messages[3]


def test_the_core_imports_no_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys, agentstate_reducer as a;"
        "a.MessageReducer(1, 2).reduce([{'role': 'user', 'content': str(i)} for i in range(9)]);"
        "bad = {'langchain_core', 'langgraph', 'pydantic', 'tiktoken'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
