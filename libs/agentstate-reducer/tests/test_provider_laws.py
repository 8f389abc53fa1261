"""A transcript that a provider takes is still taken when it was pruned, in each provider's form."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import convert_to_messages

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.messages import content_of


@dataclass
class Step:
    """One answer of the model that calls tools: the calls, and whether it thought before."""

    calls: list[str]
    thinks: bool


@dataclass
class Turn:
    question: str
    steps: list[Step]
    answer: str | None


@st.composite
def chats(draw: st.DrawFn) -> list[Turn]:
    """Turns as an agent leaves them; the last may wait for its answer."""
    number = itertools.count()
    turns = []
    for n in range(draw(st.integers(1, 6))):
        # Claude thinks at the beginning of a turn or nowhere, and perhaps between the calls.
        thinks = draw(st.booleans())
        steps = [
            Step(
                [f"c{next(number)}" for _ in range(draw(st.integers(1, 3)))],
                thinks and (i == 0 or draw(st.booleans())),
            )
            for i in range(draw(st.integers(0, 4)))
        ]
        turns.append(Turn(f"q{n}", steps, f"a{n}"))
    if draw(st.booleans()):
        turns[-1].answer = None
    return turns


def anthropic(turns: list[Turn]) -> list[Any]:
    messages: list[Any] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn.question})
        for step in turn.steps:
            thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
            uses = [{"type": "tool_use", "id": c, "name": "f", "input": {}} for c in step.calls]
            results = [
                {"type": "tool_result", "tool_use_id": c, "content": "r"} for c in step.calls
            ]
            messages.append({"role": "assistant", "content": thought * step.thinks + uses})
            messages.append({"role": "user", "content": results})
        if turn.answer is not None:
            messages.append({"role": "assistant", "content": turn.answer})
    return messages


def merged_by_langchain(turns: list[Turn]) -> list[Any]:
    return convert_to_messages(anthropic(turns))


def bedrock(turns: list[Turn]) -> list[Any]:
    messages: list[Any] = []
    for turn in turns:
        messages.append({"role": "user", "content": [{"text": turn.question}]})
        for step in turn.steps:
            uses = [{"toolUse": {"toolUseId": c, "name": "f", "input": {}}} for c in step.calls]
            results = [{"toolResult": {"toolUseId": c, "content": []}} for c in step.calls]
            messages.append({"role": "assistant", "content": uses})
            messages.append({"role": "user", "content": results})
        if turn.answer is not None:
            messages.append({"role": "assistant", "content": [{"text": turn.answer}]})
    return messages


def gemini(turns: list[Turn]) -> list[Any]:
    """Without ids, as the API gives them: a call is answered by the next message."""
    messages: list[Any] = []
    for turn in turns:
        messages.append({"role": "user", "parts": [{"text": turn.question}]})
        for step in turn.steps:
            calls = [{"functionCall": {"name": c, "args": {}}} for c in step.calls]
            results = [{"functionResponse": {"name": c, "response": {}}} for c in step.calls]
            messages.append({"role": "model", "parts": calls})
            messages.append({"role": "user", "parts": results})
        if turn.answer is not None:
            messages.append({"role": "model", "parts": [{"text": turn.answer}]})
    return messages


def responses(turns: list[Turn]) -> list[Any]:
    items: list[Any] = []
    for turn in turns:
        items.append({"role": "user", "content": turn.question})
        for step in turn.steps:
            if step.thinks:
                items.append({"type": "reasoning", "id": f"rs_{step.calls[0]}", "summary": []})
            calls = [{"type": "function_call", "call_id": c, "name": "f"} for c in step.calls]
            items += [{**call, "rs": step.thinks} for call in calls]
            items += [
                {"type": "function_call_output", "call_id": c, "output": "r"} for c in step.calls
            ]
        if turn.answer is not None:
            items.append({"type": "message", "role": "assistant", "content": turn.answer})
    return items


def kinds(message: Any) -> tuple[str, bool, list[str], list[str], bool]:
    """Return who speaks, whether in words, the calls, the results, and whether it thinks."""
    role = message.get("role") if isinstance(message, dict) else message.type
    role = {"assistant": "ai", "model": "ai", "human": "user"}.get(role, role)
    content = content_of(message)
    if isinstance(content, str):
        return role, True, [], [], False
    calls, results, words, thinks = [], [], False, False
    for block in content:
        words = words or "text" in block
        thinks = thinks or block.get("type") == "thinking"
        if block.get("type") == "tool_use":
            calls.append(block["id"])
        elif block.get("type") == "tool_result":
            results.append(block["tool_use_id"])
        for key, into in (
            ("toolUse", calls),
            ("toolResult", results),
            ("functionCall", calls),
            ("functionResponse", results),
        ):
            if key in block:
                into.append(block[key].get("toolUseId") or block[key].get("name"))
    return role, words, calls, results, thinks


def refused(messages: list[Any]) -> str | None:
    """Say why Anthropic, Bedrock and Gemini would refuse messages; the strictest of each rule."""
    read = [kinds(message) for message in messages]
    if read and not (read[0][0] == "user" and not read[0][3]):
        return "the first message is no question"
    for before, after in itertools.pairwise(read):
        if before[0] == after[0]:
            return "two messages in a row are of the same side"
        if before[2] != after[3]:
            return f"calls {before[2]} are followed by the results {after[3]}"
    if read and read[-1][2]:
        return "the last calls have no results"
    return None


def thinking_lost(whole: list[Any], kept: list[Any]) -> bool:
    """Tell whether the turn that goes on began with thinking and does not any more."""

    def first(messages: list[Any]) -> bool | None:
        read = [kinds(message) for message in messages]
        questions = [i for i, message in enumerate(read) if message[0] == "user" and message[1]]
        answers = [message for message in read[questions[-1] :] if message[0] == "ai"]
        return answers[0][4] if answers and answers[-1][2] else None

    return bool(first(whole)) and not first(kept)


def refused_by_responses(items: list[Any]) -> str | None:
    """Say why OpenAI's Responses API would refuse items."""
    called = {item["call_id"] for item in items if item.get("type") == "function_call"}
    answered = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    if called != answered:
        return f"calls {called} and outputs {answered}"
    for i, item in enumerate(items):
        kind = item.get("type")
        if kind == "reasoning" and (i + 1 == len(items) or items[i + 1].get("type") == "message"):
            return "reasoning without the item that followed it"
        if kind == "function_call" and item["rs"]:
            before = items[i - 1].get("type") if i else None
            if before not in ("reasoning", "function_call"):
                return "a call without its reasoning"
    return None


FORMS = [anthropic, merged_by_langchain, bedrock, gemini]
WINDOWS = st.tuples(st.integers(0, 12), st.integers(1, 12))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@given(turns=chats(), window=WINDOWS)
def test_what_was_valid_stays_valid(
    form: Callable[[list[Turn]], list[Any]], turns: list[Turn], window: tuple[int, int]
) -> None:
    messages = form(turns)
    assert refused(messages) is None
    outcome = MessageReducer(*window).reduce(messages)
    assert refused(outcome.surviving) is None
    if outcome.surviving:
        assert not thinking_lost(messages, outcome.surviving)
    left = {id(message) for message in outcome.surviving}
    assert [m for m in messages if id(m) in left] == outcome.surviving
    assert [m for m in messages if id(m) not in left] == outcome.pruned


@given(chats(), WINDOWS)
def test_items_of_the_responses_api_stay_valid(turns: list[Turn], window: tuple[int, int]) -> None:
    items = responses(turns)
    assert refused_by_responses(items) is None
    kept = MessageReducer(*window).reduce(items).surviving
    assert refused_by_responses(kept) is None
    if turns[-1].answer is None:
        assert kept[-1] is items[-1]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@given(turns=chats(), window=WINDOWS, data=st.data())
def test_with_pinned_messages_it_stays_valid_too(
    form: Callable[[list[Turn]], list[Any]],
    turns: list[Turn],
    window: tuple[int, int],
    data: st.DataObject,
) -> None:
    messages = form(turns)
    chosen = data.draw(st.sets(st.integers(0, len(messages) - 1), max_size=3))
    pinned = {id(messages[i]) for i in chosen}
    low, high = window
    config = ReducerConfig(min_messages=low, max_messages=high, pin=lambda m: id(m) in pinned)
    kept = MessageReducer(config=config).reduce(messages).surviving
    assert pinned <= {id(message) for message in kept}
    assert refused(kept) is None
