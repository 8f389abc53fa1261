"""Counting tokens, and pruning by them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import tiktoken
from chats import ai, human, result, turns
from langchain_core.messages import AIMessage

from agentstate_reducer import MessageReducer, ReducerConfig, resolve_token_counter, tokens


@pytest.fixture(autouse=True)
def no_cached_encoder() -> Iterator[None]:
    tokens._encoder.cache_clear()
    yield
    tokens._encoder.cache_clear()


@pytest.fixture
def no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", refuse)


@pytest.fixture
def bytes_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real tiktoken encoding in which every byte is a token."""
    encoding = tiktoken.Encoding(
        "bytes",
        pat_str=r".",
        mergeable_ranks={bytes([i]): i for i in range(256)},
        special_tokens={"<|endoftext|>": 256},
    )
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: encoding)


def test_a_given_counter_is_used_as_it_is() -> None:
    count = len
    assert resolve_token_counter(count) is count


@pytest.mark.usefixtures("bytes_as_tokens")
def test_tiktoken_counts_when_it_is_there() -> None:
    assert resolve_token_counter()(human("hello")) == 5 + tokens.MESSAGE_OVERHEAD


@pytest.mark.usefixtures("bytes_as_tokens")
def test_text_that_looks_like_a_special_token_is_text() -> None:
    text = "<|endoftext|>"
    assert resolve_token_counter()(human(text)) == len(text) + tokens.MESSAGE_OVERHEAD


@pytest.mark.usefixtures("no_encoding")
def test_characters_are_counted_where_tiktoken_cannot_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert resolve_token_counter()(human("x" * 40)) == 10 + tokens.MESSAGE_OVERHEAD
        resolve_token_counter()
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("no_encoding")
def test_arguments_of_tool_calls_count_once_in_every_form() -> None:
    count = resolve_token_counter()
    long = "x" * 4000
    openai = ai("")
    openai["tool_calls"] = [{"id": "c", "function": {"name": "f", "arguments": long}}]
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": long}}
    langchain = AIMessage([block], tool_calls=[{"name": "f", "args": {"a": long}, "id": "c"}])
    assert 1000 < count(openai) < 1020
    assert 1000 < count(langchain) < 1020


@pytest.mark.usefixtures("no_encoding")
def test_media_count_flat_and_text_blocks_by_their_text() -> None:
    count = resolve_token_counter()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    words = {"type": "text", "text": "x" * 400}
    message = {"role": "user", "content": [image, words]}
    assert count(message) == 100 + tokens.MEDIA_TOKENS + tokens.MESSAGE_OVERHEAD


def test_each_message_is_counted_once_and_as_few_as_decide() -> None:
    counted: Counter[str] = Counter()

    def count(message: Any) -> int:
        counted[message["id"]] += 1
        return 10

    config = ReducerConfig(max_tokens=60, target_tokens=40, token_counter=count)
    outcome = MessageReducer(config=config).reduce(turns(10))
    assert len(outcome.surviving) == 4
    assert set(counted.values()) == {1}
    MessageReducer(config=config).reduce(turns(1000))
    assert len(counted) < 200


def test_a_target_of_zero_is_zero_and_one_above_the_limit_is_the_limit() -> None:
    def kept(target: int) -> int:
        config = ReducerConfig(max_tokens=60, target_tokens=target, token_counter=lambda m: 10)
        return len(MessageReducer(config=config).reduce(turns(10)).surviving)

    assert kept(0) == 2
    assert kept(500) == 6


def test_an_exchange_is_weighed_as_one() -> None:
    sizes = {"user": 10, "assistant": 10, "tool": 100}
    config = ReducerConfig(max_tokens=150, token_counter=lambda m: sizes[m["role"]])
    exchange = [human("x"), ai("", calls=("c",)), result("c"), ai("done")]
    assert MessageReducer(config=config).reduce(exchange * 2).surviving == exchange


def test_an_unanswered_question_larger_than_the_limit_stays() -> None:
    config = ReducerConfig(max_tokens=50, token_counter=lambda m: len(m["content"]))
    long = human("x" * 500)
    assert MessageReducer(config=config).reduce([*turns(3), long]).surviving == [long]
