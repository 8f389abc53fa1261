"""Counters of every kind, remembered counts, and how much of a list is read."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from chats import any_messages, turns, valid_chats
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.calls import call_aside
from agentstate_reducer.tokens import counts_lists, fingerprint


def test_counts_are_remembered_from_one_save_to_the_next() -> None:
    counted: Counter[str] = Counter()

    def count(message: Any) -> int:
        counted[message["id"]] += 1
        return 10

    reducer = MessageReducer(config=ReducerConfig(max_tokens=200, token_counter=count))
    state: list[Any] = []
    for n in range(200):
        state = reducer.reduce(state, turns(1, start=n)).surviving
    assert set(counted.values()) == {1}
    edited = {**state[-1], "content": "something else"}
    reducer.reduce([*state[:-1], edited])
    assert counted[edited["id"]] == 2


def test_a_stored_message_has_the_fingerprint_it_had() -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    serde = JsonPlusSerializer()
    call = {"name": "look", "args": {"at": [1, 2]}, "id": "c"}
    for message in (AIMessage("x", id="1", tool_calls=[call]), {"role": "user", "content": ["x"]}):
        again = serde.loads_typed(serde.dumps_typed(message))
        assert fingerprint([again]) == fingerprint([message])


async def test_a_counter_does_not_run_on_the_event_loop() -> None:
    threads: set[int] = set()

    def count(message: Any) -> int:
        threads.add(threading.get_ident())
        return 10

    reducer = MessageReducer(config=ReducerConfig(max_tokens=60, token_counter=count))
    await reducer.shortener.shorten(turns(10), call_aside)
    assert threads
    assert threading.get_ident() not in threads


async def test_an_async_counter_is_awaited() -> None:
    async def count(message: Any) -> int:
        await asyncio.sleep(0)
        return 10

    config = ReducerConfig(max_tokens=60, token_counter=count)
    outcome = await MessageReducer(config=config).shortener.shorten(turns(10), call_aside)
    assert outcome.surviving == turns(3, start=7)
    reduced = await asyncio.to_thread(MessageReducer(config=config).reduce, turns(10))
    assert reduced.surviving == turns(3, start=7)


def test_counters_of_lists_are_known_by_their_signature() -> None:
    model = FakeListChatModel(responses=[])
    assert counts_lists(count_tokens_approximately)
    assert counts_lists(model)
    assert counts_lists(model.get_num_tokens_from_messages)
    assert counts_lists(lambda messages: 1)
    assert not counts_lists(lambda message: 1)
    assert not counts_lists(len)
    assert not counts_lists(None)


def test_a_counter_of_lists_gets_calls_with_their_results() -> None:
    asked: list[list[str]] = []

    def count(messages: list[Any]) -> int:
        asked.append([message.type for message in messages])
        return 10 * len(messages)

    call = {"name": "look", "args": {}, "id": "c"}
    chat = [
        HumanMessage("q"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("r", tool_call_id="c"),
        AIMessage("a"),
    ]
    config = ReducerConfig(max_tokens=40, token_counter=count)
    assert MessageReducer(config=config).reduce(chat * 2).surviving == chat
    assert ["ai", "tool"] in asked
    assert ["tool"] not in asked


def test_langchains_own_count_holds() -> None:
    chat = [m for n in range(20) for m in (HumanMessage("words " * 10), AIMessage("ok"))]
    config = ReducerConfig(max_tokens=100, token_counter=count_tokens_approximately)
    kept = MessageReducer(config=config).reduce(chat).surviving
    assert kept
    assert count_tokens_approximately(kept) <= 100


def test_a_counter_that_returns_no_number_is_named() -> None:
    def bad(message: Any) -> Any:
        return "many"

    with pytest.raises(TypeError, match="token_counter bad returned a str"):
        MessageReducer(config=ReducerConfig(max_tokens=1, token_counter=bad)).reduce(turns(2))


class Seen(dict[str, Any]):
    """A message that knows whether it was looked at."""

    looked = False

    def get(self, *args: Any) -> Any:
        self.looked = True
        return super().get(*args)


def test_without_hooks_only_the_end_of_a_list_is_read() -> None:
    chat = [Seen(message) for message in turns(5000)]
    outcome = MessageReducer(10, 20).reduce(chat)
    assert len(outcome.surviving) == 10
    assert len(outcome.pruned) == 9990
    assert sum(message.looked for message in chat) < 100


@given(
    st.one_of(any_messages(60), valid_chats(20)),
    st.integers(0, 6),
    st.integers(0, 8),
    st.booleans(),
)
def test_reading_the_end_decides_as_reading_all(
    messages: list[Any], low: int, high: int, summarize: bool
) -> None:
    summary = {"summarize_fn": lambda gone: "s", "inject_summary": True}
    settings: dict[str, Any] = summary if summarize else {}
    config = ReducerConfig(min_messages=low, max_messages=high, **settings)
    whole = ReducerConfig(min_messages=low, max_messages=high, pin=lambda m: False, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentstate_reducer.shorten.LEAST_READ", 1)
        tail = MessageReducer(config=config).reduce(messages)
    every = MessageReducer(config=whole).reduce(messages)
    assert (tail.surviving, tail.pruned) == (every.surviving, every.pruned)
