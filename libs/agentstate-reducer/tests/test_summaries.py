"""Summaries in the place of what was pruned."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from chats import human, system, texts, turns
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    message_to_dict,
)

from agentstate_reducer import MessageReducer, ReducerConfig, default_summary_messages_factory
from agentstate_reducer.messages import read


class Summarizer:
    """Remembers what it was asked and says how much that was."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, messages: list[Any]) -> str:
        self.asked.append(texts(messages))
        return f"summary {len(self.asked)}"


def reducer(**settings: Any) -> MessageReducer:
    defaults: dict[str, Any] = {"min_messages": 4, "max_messages": 6, "inject_summary": True}
    return MessageReducer(config=ReducerConfig(**{**defaults, **settings}))


def test_a_summary_is_returned_and_not_put_in_unless_asked_for() -> None:
    outcome = reducer(summarize_fn=Summarizer(), inject_summary=False).reduce(turns(4))
    assert outcome.summary == "summary 1"
    assert outcome.surviving == turns(2, start=2)


def test_a_summary_stands_in_the_place_of_what_was_pruned() -> None:
    outcome = reducer(summarize_fn=Summarizer()).reduce([system(), *turns(4)])
    roles = [m["role"] for m in outcome.surviving]
    assert roles == ["system", "user", "assistant", "user", "assistant"][: len(roles)]
    assert texts(outcome.surviving)[1] == "Summary of 8 earlier messages: summary 1" or texts(
        outcome.surviving
    )[1].startswith("Summary of ")
    assert len(outcome.surviving) <= 6
    assert outcome.pruned == [m for m in turns(4) if m not in outcome.surviving]


def test_there_is_one_summary_and_the_next_takes_it_up() -> None:
    summarizer = Summarizer()
    r = reducer(summarize_fn=summarizer)
    first = r.reduce(turns(4))
    second = r.reduce(first.surviving, turns(2, start=4))
    said = texts(second.surviving)
    assert sum(text.startswith("Summary of") for text in said) == 1
    assert said.count("OK") == 1
    assert summarizer.asked[1][0].endswith("summary 1")
    assert said[0].endswith("summary 2")


def test_a_summary_is_never_among_the_pruned_or_handed_to_hooks() -> None:
    handed: list[str] = []
    r = reducer(summarize_fn=Summarizer(), on_prune=[lambda m, n: handed.extend(texts(m))])
    state: list[Any] = []
    pruned: list[str] = []
    for n in range(12):
        outcome = r.reduce(state, turns(1, start=n))
        state = outcome.surviving
        pruned.extend(texts(outcome.pruned))
    expected = texts(turns(12))
    assert pruned == expected[: len(pruned)]
    assert handed == pruned
    assert pruned + texts(state)[2:] == expected


def test_the_bound_includes_the_summary() -> None:
    r = reducer(summarize_fn=Summarizer(), min_messages=6)
    state: list[Any] = []
    for n in range(20):
        state = r.reduce(state, turns(1, start=n)).surviving
        assert len(state) <= 6


def test_the_same_pruned_messages_are_summarized_once_with_the_same_ids() -> None:
    summarizer = Summarizer()
    r = reducer(summarize_fn=summarizer)
    first, second = r.reduce(turns(4)), r.reduce(turns(4))
    assert len(summarizer.asked) == 1
    assert [m["id"] for m in first.surviving] == [m["id"] for m in second.surviving]
    other = reducer(summarize_fn=lambda m: "something else").reduce(turns(4))
    assert [m["id"] for m in other.surviving] == [m["id"] for m in first.surviving]


def test_an_async_summarizer_is_awaited_also_inside_a_running_loop() -> None:
    async def summarize(messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return f"{len(messages)} gone"

    async def main() -> str | None:
        return reducer(summarize_fn=summarize).reduce(turns(4)).summary

    assert reducer(summarize_fn=summarize).reduce(turns(4)).summary is not None
    assert asyncio.run(main()) is not None


@pytest.mark.parametrize("part", ["summarize_fn", "summary_message_factory"])
def test_a_failure_is_logged_and_the_pruning_done(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("no model today")

    settings = {"summarize_fn": Summarizer(), part: fail}
    with caplog.at_level(logging.WARNING):
        outcome = reducer(**settings).reduce(turns(4))
    assert outcome.surviving
    assert set(texts(outcome.surviving)) <= set(texts(turns(4)))
    assert "no model today" in caplog.text


def test_an_earlier_summary_outlives_a_failure() -> None:
    summarizer = Summarizer()
    r = reducer(summarize_fn=summarizer)
    state = r.reduce(turns(4)).surviving

    def fail(messages: list[Any]) -> str:
        raise RuntimeError

    r.config.summarize_fn = fail
    state = r.reduce(state, turns(2, start=4)).surviving
    assert texts(state)[0].endswith("summary 1")
    assert len(state) <= 6


@pytest.mark.parametrize("nothing", ["", None])
def test_no_summary_is_put_in_when_there_is_nothing_to_say(nothing: Any) -> None:
    outcome = reducer(summarize_fn=lambda m: nothing).reduce(turns(4))
    assert outcome.summary is None
    assert set(texts(outcome.surviving)) <= set(texts(turns(4)))


def test_a_summary_larger_than_expected_makes_more_go() -> None:
    r = reducer(
        min_messages=6,
        summarize_fn=lambda m: "s",
        summary_message_factory=lambda text, n: [human(text) for _ in range(4)],
    )
    outcome = r.reduce(turns(4))
    assert texts(outcome.surviving) == ["s"] * 4 + texts(turns(1, start=3))


def test_a_summary_that_cannot_fit_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    r = reducer(
        summarize_fn=lambda m: "s",
        summary_message_factory=lambda text, n: [human(text) for _ in range(9)],
    )
    outcome = r.reduce(turns(4))
    assert outcome.summary == "s"
    assert "s" not in texts(outcome.surviving)
    assert "does not fit" in caplog.text


def test_tokens_of_a_summary_count() -> None:
    config = ReducerConfig(
        max_tokens=100,
        token_counter=lambda m: len(m["content"]),
        summarize_fn=lambda m: "x" * 50,
        inject_summary=True,
        summary_message_factory=lambda text, n: [human(text)],
    )
    outcome = MessageReducer(config=config).reduce(turns(10))
    assert texts(outcome.surviving)[0] == "x" * 50
    assert sum(len(t) for t in texts(outcome.surviving)) <= 100


def test_langchain_messages_get_a_langchain_summary() -> None:
    messages = [c(str(i)) for i in range(4) for c in (HumanMessage, AIMessage)]
    kept = reducer(summarize_fn=Summarizer()).reduce(messages).surviving
    assert [type(m) for m in kept[:2]] == [HumanMessage, AIMessage]


def test_chunks_get_a_summary_of_whole_messages() -> None:
    messages = [c(content=str(i)) for i in range(4) for c in (HumanMessageChunk, AIMessageChunk)]
    kept = reducer(summarize_fn=Summarizer()).reduce(messages).surviving
    assert [type(m) for m in kept[:2]] == [HumanMessage, AIMessage]


@pytest.mark.parametrize("form", [message_to_dict, dumpd])
def test_langchain_dicts_get_a_summary_of_their_form(form: Any) -> None:
    messages = [form(c(str(i))) for i in range(4) for c in (HumanMessage, AIMessage)]
    r = reducer(summarize_fn=Summarizer())
    kept = r.reduce(messages).surviving
    assert [read(m).role for m in kept[:2]] == ["human", "ai"]
    assert kept[0].keys() == messages[0].keys()
    again = r.reduce(kept, messages).surviving
    assert sum(str(read(m).id).startswith("agentstate-summary-") for m in again) == 2


def test_dicts_with_a_type_get_a_summary_with_a_type() -> None:
    messages = [{"type": t, "content": str(i)} for i in range(4) for t in ("human", "ai")]
    kept = reducer(summarize_fn=Summarizer()).reduce(messages).surviving
    assert kept[0].keys() == {"type", "content", "id"}


def test_objects_of_another_kind_get_a_summary_like_them() -> None:
    class Said:
        def __init__(self, role: str, content: str) -> None:
            self.role, self.content, self.id = role, content, None

    messages = [Said(role, str(i)) for i in range(4) for role in ("user", "assistant")]
    kept = reducer(summarize_fn=Summarizer()).reduce(messages).surviving
    assert [type(m) for m in kept] == [Said] * len(kept)
    assert kept[0].content.endswith("summary 1")
    assert messages[0].content == "0"


def test_the_default_messages_alternate() -> None:
    first, second = default_summary_messages_factory("they met", 3)
    assert (read(first).role, read(second).role) == ("human", "ai")
    assert "they met" in first["content"]
    assert "3" in first["content"]
