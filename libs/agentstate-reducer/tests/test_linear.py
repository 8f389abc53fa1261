"""`reduce` does work in proportion to messages and tool calls."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from chats import ai, human, result, system

from agentstate_reducer import MessageReducer, ReducerConfig


def turns_with_tools(n: int) -> list[Any]:
    return [
        {**m, "id": f"{i}-{j}"}
        for i in range(n)
        for j, m in enumerate(
            (
                human("q"),
                ai("", calls=(f"a{i}", f"b{i}")),
                result(f"a{i}"),
                result(f"b{i}"),
                ai("r"),
            )
        )
    ]


def one_exchange(n: int) -> list[Any]:
    calls = tuple(f"c{i}" for i in range(n))
    return [human("q"), ai("", calls=calls), *(result(c) for c in calls), ai("done")]


def one_loop(n: int) -> list[Any]:
    return [human("q"), *(m for i in range(n) for m in (ai("", calls=(f"c{i}",)), result(f"c{i}")))]


def no_questions(n: int) -> list[Any]:
    return [m for i in range(n) for m in (ai("a"), system("s"), result("unknown"))]


def calls_made(function: Callable[[], Any]) -> int:
    """Count the calls of Python and C functions that a function makes."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # what is collected meanwhile, from other tests too, has calls of its own
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("shape", [turns_with_tools, one_exchange, one_loop, no_questions])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"on_prune": [lambda messages, namespace: None]},
        {"max_tokens": 100, "token_counter": lambda message: 1},
        {"summarize_fn": lambda messages: "s", "inject_summary": True},
    ],
    ids=["plain", "hooks", "tokens", "summaries"],
)
def test_twice_the_messages_are_twice_the_work(shape: Any, settings: dict[str, Any]) -> None:
    def work(n: int) -> int:
        messages = shape(n)
        reducer = MessageReducer(config=ReducerConfig(**settings))
        return calls_made(lambda: reducer.reduce(messages))

    work(10)  # so that nothing is done for the first time
    assert work(2000) < 2.2 * work(1000)
