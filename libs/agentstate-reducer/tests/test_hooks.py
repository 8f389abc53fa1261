"""Handing pruned turns to hooks from `reduce`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from chats import ai, human, texts, turns

from agentstate_reducer import MessageReducer, PrunedMessages, ReducerConfig
from agentstate_reducer.delivery import Remembered


class Hook:
    """Remembers what it was handed; fails as often as told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[tuple[list[str], Any]] = []
        self.keys: list[str] = []

    def __call__(self, messages: list[Any], namespace: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("memory is away")
        assert isinstance(messages, PrunedMessages)
        self.keys.extend(messages.keys)
        self.calls.append((texts(messages), namespace))

    @property
    def handed(self) -> list[str]:
        return [text for batch, _ in self.calls for text in batch]


def reducer(*hooks: Any, **settings: Any) -> MessageReducer:
    defaults: dict[str, Any] = {"min_messages": 2, "max_messages": 4, "on_prune": [*hooks]}
    return MessageReducer(config=ReducerConfig(**{**defaults, **settings}))


def test_a_hook_gets_the_pruned_messages_oldest_first_with_the_namespace() -> None:
    hook = Hook()
    reducer(hook).reduce(turns(3), namespace=("memories", "kim"))
    assert hook.calls == [(texts(turns(2)), ("memories", "kim"))]
    assert len(set(hook.keys)) == 4


def test_nothing_is_called_when_nothing_is_pruned() -> None:
    hook = Hook()
    reducer(hook).reduce(turns(2))
    assert hook.calls == []


def test_each_turn_is_handed_over_once_however_often_the_list_comes_back() -> None:
    hook = Hook()
    r = reducer(hook)
    for n in range(3, 30):
        r.reduce(turns(n), namespace="n")
    assert hook.handed == texts(turns(28))


def test_the_memory_is_never_smaller_than_the_list() -> None:
    hook = Hook()
    r = reducer(hook, dedupe_window=3)
    for _ in range(2):
        r.reduce(turns(50), namespace="n")
    assert len(hook.handed) == 98


def test_the_memory_is_bounded() -> None:
    memory = Remembered(window=10)
    for n in range(5000):
        memory.add(str(n), [(f"m{i}", None) for i in range(20)])
    assert len(memory._namespaces) == 1024
    assert {len(turns) for turns in memory._namespaces.values()} == {10}


def test_another_namespace_is_another_matter() -> None:
    hook = Hook()
    r = reducer(hook)
    r.reduce(turns(3), namespace="a")
    r.reduce(turns(3), namespace="b")
    assert [namespace for _, namespace in hook.calls] == ["a", "b"]


def test_an_edited_message_is_new() -> None:
    hook = Hook()
    r = reducer(hook)
    messages = turns(3)
    r.reduce(messages)
    messages[0] = human("question 0, I mean", "q0")
    r.reduce(messages)
    assert hook.handed == [*texts(turns(2)), "question 0, I mean"]


def test_without_ids_the_same_object_is_handed_over_once_and_a_like_one_again() -> None:
    hook = Hook()
    r = reducer(hook)
    messages = [human("ok"), ai("ok"), human("ok"), ai("ok"), human("x")]
    r.reduce(messages)
    r.reduce([*messages, ai("y")])
    assert hook.handed == ["ok"] * 4
    r.reduce([human("ok"), ai("ok"), human("ok"), ai("ok"), human("x")])
    assert hook.handed == ["ok"] * 8


def test_every_prune_is_handed_over_when_asked_for() -> None:
    hook = Hook()
    r = reducer(hook, dedupe_on_prune=False)
    r.reduce(turns(3))
    r.reduce(turns(3))
    assert hook.handed == texts(turns(2)) * 2


def test_each_hook_has_a_list_of_its_own() -> None:
    other = Hook()
    reducer(lambda messages, namespace: messages.clear(), other).reduce(turns(3))
    assert other.handed == texts(turns(2))


def test_a_failing_hook_stops_nobody_and_gets_its_turns_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shaky, steady = Hook(failures=2), Hook()
    r = reducer(shaky, steady)
    with caplog.at_level(logging.WARNING):
        for n in range(3, 8):
            r.reduce(turns(n), namespace="n")
    assert shaky.handed == steady.handed == texts(turns(6))
    assert "memory is away" in caplog.text


def test_async_hooks_run_to_completion_with_and_without_a_running_loop() -> None:
    handed: list[str] = []

    async def remember(messages: list[Any], namespace: Any) -> None:
        await asyncio.sleep(0)
        handed.extend(texts(messages))

    class Remember:
        async def __call__(self, messages: list[Any], namespace: Any) -> None:
            await remember(messages, namespace)

    async def main() -> None:
        reducer(remember, Remember()).reduce(turns(3))
        assert handed == texts(turns(2)) * 2

    asyncio.run(main())
    reducer(remember).reduce(turns(3))
    assert handed == texts(turns(2)) * 3


def test_an_async_hook_may_itself_use_sync_code_with_async_hooks() -> None:
    handed: list[str] = []

    async def inner(messages: list[Any], namespace: Any) -> None:
        await asyncio.sleep(0)
        handed.extend(texts(messages))

    async def outer(messages: list[Any], namespace: Any) -> None:
        reducer(inner).reduce(messages + turns(2, start=9))

    reducer(outer).reduce(turns(3))
    assert handed[:2] == texts(turns(1))


def test_keys_are_the_same_in_another_reducer() -> None:
    one, two = Hook(), Hook()
    reducer(one).reduce(turns(3), namespace=("a", "b"))
    reducer(two).reduce(turns(3), namespace=("a", "b"))
    assert one.keys == two.keys


def test_a_nested_async_hook_that_fails_is_kept_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async def inner(messages: list[Any], namespace: Any) -> None:
        raise ConnectionError("away")

    async def outer(messages: list[Any], namespace: Any) -> None:
        reducer(inner).reduce(messages + turns(2, start=9))

    reducer(outer).reduce(turns(3))
    assert "away" in caplog.text


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"max_tokens": 9}, "MessageReducer(max_tokens=9, target_tokens=None)"),
        ({"max_messages": 9}, "MessageReducer(min_messages=10, max_messages=9)"),
    ],
)
def test_a_reducer_shows_its_limits(settings: dict[str, Any], shown: str) -> None:
    assert repr(MessageReducer(config=ReducerConfig(**settings))) == shown
