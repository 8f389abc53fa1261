"""Summaries in the place of what was pruned."""

from __future__ import annotations

import asyncio
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

from agentstate_reducer import (
    MessageReducer,
    ReducerConfig,
    default_summary_messages_factory,
    resolve_token_counter,
)
from agentstate_reducer.calls import call_aside
from agentstate_reducer.messages import read
from agentstate_reducer.tokens import MESSAGE_OVERHEAD

ONE_TURN = ["user", "assistant"]


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


def heading(count: int) -> str:
    return f"[Summary of {count} earlier messages, made by the program: not the user's words]\n"


def test_a_summary_stands_in_the_place_of_what_was_pruned() -> None:
    outcome = reducer(summarize_fn=Summarizer()).reduce([system(), *turns(4)])
    assert [m["role"] for m in outcome.surviving] == ["system", "user", "assistant", *ONE_TURN]
    assert texts(outcome.surviving) == [
        "be kind",
        heading(6) + "summary 1",
        "OK",
        "question 3",
        "answer 3",
    ]
    assert outcome.pruned == turns(3)


def test_the_count_it_names_is_that_of_all_messages_it_covers() -> None:
    r = reducer(summarize_fn=Summarizer())
    state: list[Any] = []
    pruned = 0
    for n in range(12):
        outcome = r.reduce(state, turns(1, start=n))
        state = outcome.surviving
        pruned += len(outcome.pruned)
        if pruned:
            assert texts(state)[0].startswith(heading(pruned))
    assert pruned + len(state) - 2 == 24


def test_there_is_one_summary_and_the_next_takes_it_up() -> None:
    summarizer = Summarizer()
    r = reducer(summarize_fn=summarizer)
    first = r.reduce(turns(4))
    second = r.reduce(first.surviving, turns(2, start=4))
    said = texts(second.surviving)
    assert sum("[Summary of" in text for text in said) == 1
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


class Unsteady:
    """Fails, or answers nothing, the first times; then says all it was told so far."""

    def __init__(self, times: int, answer: Any) -> None:
        self.left, self.answer = times, answer

    def __call__(self, messages: list[Any]) -> Any:
        self.left -= 1
        if self.left < 0:
            return " ".join(texts(messages))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


NOTHING = [RuntimeError("no model today"), "", None, " \n", 3]


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_no_fact_is_in_neither_window_nor_summary(
    nothing: Any, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    r = reducer(summarize_fn=Unsteady(times, nothing))
    state: list[Any] = []
    for n in range(12):
        state = r.reduce(state, turns(1, start=n)).surviving
        there = " ".join(texts(state))
        assert all(text in there for text in texts(turns(n + 1)))
    assert len(state) <= 6
    assert "summary of" in caplog.text


def test_a_failed_summary_is_asked_for_again_at_once() -> None:
    r = reducer(summarize_fn=Unsteady(2, ""), summary_retries=2)
    assert len(r.reduce(turns(4)).surviving) <= 6


def test_without_retries_it_is_asked_for_at_the_next_call() -> None:
    r = reducer(summarize_fn=Unsteady(1, ""), summary_retries=0)
    assert r.reduce(turns(4)).surviving == turns(4)
    assert r.reduce(turns(4)).pruned == turns(3)


@pytest.mark.parametrize("part", ["summarize_fn", "summary_message_factory"])
def test_what_never_works_does_not_let_the_list_grow_for_ever(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> Any:
        raise RuntimeError("no model today")

    r = reducer(**{"summarize_fn": Summarizer(), part: fail})
    state: list[Any] = []
    pruned: list[Any] = []
    for n in range(20):
        outcome = r.reduce(state, turns(1, start=n))
        state = outcome.surviving
        pruned += outcome.pruned
        assert len(state) <= 12
    assert pruned + state == turns(20)
    assert "no model today" in caplog.text
    assert "pruned without one" in caplog.text


def test_an_earlier_summary_outlives_a_failure() -> None:
    r = reducer(summarize_fn=Summarizer())
    state = r.reduce(turns(4)).surviving
    r.config.summarize_fn = Unsteady(100, RuntimeError())
    for n in range(4, 12):
        state = r.reduce(state, turns(1, start=n)).surviving
        assert texts(state)[0].endswith("summary 1")


def test_an_answer_that_is_a_message_gives_its_text() -> None:
    for answer in (
        AIMessage("they met"),
        {"role": "assistant", "content": [{"type": "text", "text": "they met"}]},
        AIMessage([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "they met"}]),
    ):
        outcome = reducer(summarize_fn=lambda m, answer=answer: answer).reduce(turns(4))
        assert outcome.summary == "they met"


class Model:
    """A chat model that keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[str] = []
        self.how: list[str] = []
        self.answers = list(answers)

    def invoke(self, prompt: str) -> Any:
        self.how.append("invoke")
        return self._answer(prompt)

    async def ainvoke(self, prompt: str) -> Any:
        self.how.append("ainvoke")
        return self._answer(prompt)

    def _answer(self, prompt: str) -> Any:
        self.asked.append(prompt)
        return AIMessage(self.answers.pop(0) if self.answers else f"summary {len(self.asked)}")


def test_a_model_extends_the_last_summary() -> None:
    model = Model("they met in Rome")
    r = MessageReducer(config=ReducerConfig(min_messages=4, max_messages=6, summarize=model))
    first = r.reduce(turns(4))
    assert texts(first.surviving)[0] == heading(6) + "they met in Rome"
    assert "user: question 0\nassistant: answer 0\n" in model.asked[0]
    second = r.reduce(first.surviving, turns(2, start=4))
    assert "<present_summary>\nthey met in Rome\n</present_summary>" in model.asked[1]
    assert "question 0" not in model.asked[1]
    assert "assistant: answer 3" in model.asked[1]
    assert texts(second.surviving)[0] == heading(10) + "summary 2"
    assert model.how == ["invoke", "invoke"]


async def test_a_model_is_awaited_in_async_code() -> None:
    model = Model()
    config = ReducerConfig(min_messages=4, max_messages=6, summarize=model)
    outcome = await MessageReducer(config=config).shortener.shorten(turns(4), call_aside)
    assert outcome.summary == "summary 1"
    assert model.how == ["ainvoke"]


def test_a_summary_that_is_too_long_is_shortened_and_then_cut() -> None:
    long = "word " * 500
    model = Model(long, "short")
    config = ReducerConfig(min_messages=4, max_messages=6, summarize=model, max_summary_tokens=50)
    assert MessageReducer(config=config).reduce(turns(4)).summary == "short"
    assert "no more than 50 tokens" in model.asked[0]
    assert long.strip() in model.asked[1]
    text = reducer(summarize_fn=lambda m: long, max_summary_tokens=50).reduce(turns(4)).summary
    assert text is not None
    assert text.startswith("word word")
    assert text.endswith(" [...]")
    assert resolve_token_counter()(human(text)) <= 50 + MESSAGE_OVERHEAD


def test_langchain_knows_a_summary_by_its_own_mark() -> None:
    messages = [c(str(i)) for i in range(4) for c in (HumanMessage, AIMessage)]
    kept = reducer(summarize_fn=Summarizer()).reduce(messages).surviving
    assert kept[0].additional_kwargs == {"lc_source": "summarization"}


def test_gemini_and_bedrock_get_a_summary_of_their_form() -> None:
    gemini = [{"role": r, "parts": [{"text": "x"}]} for _ in range(4) for r in ("user", "model")]
    kept = reducer(summarize_fn=Summarizer()).reduce(gemini).surviving
    assert kept[0]["role"] == "user"
    assert kept[0]["parts"] == [{"text": heading(6) + "summary 1"}]
    assert (kept[1]["role"], kept[1]["parts"]) == ("model", [{"text": "OK"}])
    bedrock = [{"role": r, "content": [{"text": "x"}]} for _ in range(4) for r in ONE_TURN]
    kept = reducer(summarize_fn=Summarizer()).reduce(bedrock).surviving
    assert kept[0]["content"] == [{"text": heading(6) + "summary 1"}]


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
