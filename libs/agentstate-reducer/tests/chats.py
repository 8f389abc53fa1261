"""Conversations for tests: short ways to say them, and strategies that invent them."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

from agentstate_reducer.messages import field

Message = dict[str, Any]


def human(text: str, id_: str | None = None) -> Message:
    return _with_id({"role": "user", "content": text}, id_)


def ai(text: str, id_: str | None = None, *, calls: tuple[str, ...] = ()) -> Message:
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c, "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for c in calls
        ]
    return _with_id(message, id_)


def result(call: str, text: str = "found", id_: str | None = None) -> Message:
    return _with_id({"role": "tool", "tool_call_id": call, "content": text}, id_)


def system(text: str = "be kind", id_: str | None = None) -> Message:
    return _with_id({"role": "system", "content": text}, id_)


def turns(count: int, start: int = 0) -> list[Message]:
    """Return questions with their answers, two messages a turn, with ids."""
    return list(
        itertools.chain.from_iterable(
            (human(f"question {i}", f"q{i}"), ai(f"answer {i}", f"a{i}"))
            for i in range(start, start + count)
        )
    )


def texts(messages: list[Any]) -> list[str]:
    return [field(m, "content") for m in messages]


def _with_id(message: Message, id_: str | None) -> Message:
    return message if id_ is None else {**message, "id": id_}


CALL_IDS = st.sampled_from(["c1", "c2", "c3", "c4", "c5"])

ANY_MESSAGE = st.one_of(
    st.just(lambda: human("h")),
    st.just(lambda: ai("a")),
    st.just(lambda: system()),
    st.just(lambda: {"role": "developer", "content": "d"}),
    st.just(lambda: {"role": "critic", "content": "c"}),
    st.just(lambda: {"role": "function", "name": "f", "content": "r"}),
    st.just(lambda: {"role": "assistant", "content": "", "function_call": {"name": "f"}}),
    st.lists(CALL_IDS, min_size=1, max_size=3, unique=True).map(
        lambda calls: lambda: ai("", calls=tuple(calls))
    ),
    CALL_IDS.map(lambda call: lambda: result(call)),
)


@st.composite
def any_messages(draw: st.DrawFn, max_size: int = 30) -> list[Message]:
    """Any sequence of roles, calls and results, with distinct ids."""
    makers = draw(st.lists(ANY_MESSAGE, max_size=max_size))
    return [{**make(), "id": f"m{i}"} for i, make in enumerate(makers)]


@st.composite
def valid_chats(draw: st.DrawFn, max_turns: int = 8) -> list[Message]:
    """A conversation as an agent leaves it, broken off anywhere."""
    messages: list[Message] = [system()] if draw(st.booleans()) else []
    number = itertools.count()
    for _ in range(draw(st.integers(0, max_turns))):
        messages.append(human("h"))
        for _ in range(draw(st.integers(0, 4))):
            calls = tuple(f"c{next(number)}" for _ in range(draw(st.integers(1, 3))))
            messages.append(ai("", calls=calls))
            messages.extend(result(call) for call in draw(st.permutations(calls)))
        messages.append(ai("a"))
    end = draw(st.integers(0, len(messages)))
    return [{**m, "id": f"m{i}"} for i, m in enumerate(messages[:end])]
