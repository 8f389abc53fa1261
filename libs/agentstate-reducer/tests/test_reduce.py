"""What `reduce` does, by example."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from chats import ai, human, result, system, texts, turns

from agentstate_reducer import MessageReducer, ReducerConfig


def test_a_short_list_is_left_alone() -> None:
    messages = turns(2)
    outcome = MessageReducer(2, 4).reduce(messages)
    assert outcome.surviving == messages
    assert outcome.pruned == []
    assert outcome.summary is None


def test_without_a_limit_nothing_is_pruned() -> None:
    assert len(MessageReducer().reduce(turns(500)).surviving) == 1000


def test_existing_and_new_are_joined_and_left_as_they_were() -> None:
    existing, new = turns(2), turns(2, start=2)
    outcome = MessageReducer(2, 4).reduce(existing, new)
    assert outcome.surviving == turns(1, start=3)
    assert outcome.pruned == turns(3)
    assert existing == turns(2)
    assert new == turns(2, start=2)


def test_a_single_message_may_be_appended() -> None:
    assert MessageReducer(2, 4).reduce(turns(1), human("more")).surviving == [  # type: ignore[arg-type]
        *turns(1),
        human("more"),
    ]


def test_pruning_goes_down_to_the_low_mark() -> None:
    outcome = MessageReducer(4, 9).reduce(turns(5))
    assert outcome.surviving == turns(2, start=3)


def test_a_low_mark_above_the_high_one_counts_as_the_high_one() -> None:
    assert len(MessageReducer(50, 6).reduce(turns(5)).surviving) == 6


@pytest.mark.parametrize(
    "name", ["min_messages", "max_messages", "max_tokens", "target_tokens", "dedupe_window"]
)
def test_negative_numbers_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: -1}
    with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
        ReducerConfig(**settings)


def test_negative_marks_are_refused_by_the_reducer_too() -> None:
    with pytest.raises(ValueError, match="max_messages"):
        MessageReducer(0, -1)


def test_the_last_turn_stays_whole_with_a_low_mark_of_zero() -> None:
    assert MessageReducer(0, 4).reduce(turns(3)).surviving == turns(1, start=2)


def test_leading_instructions_stay_and_count() -> None:
    outcome = MessageReducer(3, 5).reduce([system(), *turns(3)])
    assert outcome.surviving == [system(), *turns(1, start=2)]


def test_instructions_elsewhere_are_pruned_like_other_messages() -> None:
    middle = [*turns(2), system("note"), *turns(1, start=2)]
    assert system("note") in MessageReducer(3, 5).reduce([human("first"), *middle]).pruned


def test_a_first_message_that_is_no_instruction_is_not_kept() -> None:
    assert MessageReducer(2, 4).reduce(turns(3)).surviving == turns(1, start=2)


def test_preserve_first_can_be_switched_off() -> None:
    config = ReducerConfig(min_messages=2, max_messages=4, preserve_first=False)
    outcome = MessageReducer(config=config).reduce([system(), *turns(3)])
    assert outcome.surviving == turns(1, start=2)


def test_a_long_tool_loop_keeps_its_question_and_its_newest_exchanges() -> None:
    loop = [m for i in range(9) for m in (ai("", calls=(f"c{i}",)), result(f"c{i}"))]
    outcome = MessageReducer(4, 6).reduce([system(), human("find it"), *loop])
    assert outcome.surviving == [system(), human("find it"), *loop[-2:]]


def test_an_interrupted_tool_call_stays_with_its_question() -> None:
    waiting = [human("delete it?"), ai("", calls=("c1", "c2")), result("c1")]
    outcome = MessageReducer(1, 3).reduce([*turns(3), *waiting])
    assert outcome.surviving == waiting


def test_a_tool_call_still_waits_when_another_question_came() -> None:
    waiting = [human("delete it?"), ai("", calls=("c1",)), human("hello?")]
    assert MessageReducer(1, 3).reduce([*turns(3), *waiting]).surviving == waiting


def test_one_exchange_larger_than_the_window_stays_whole() -> None:
    calls = tuple(f"c{i}" for i in range(10))
    exchange = [human("all of them"), ai("", calls=calls), *(result(c) for c in calls)]
    outcome = MessageReducer(2, 4).reduce([system(), *turns(3), *exchange])
    assert outcome.surviving == [system(), *exchange]


def test_call_ids_that_repeat_belong_to_the_latest_caller() -> None:
    again = [human("x"), ai("", calls=("call_0",)), result("call_0"), ai("done")]
    assert MessageReducer(4, 6).reduce(again * 3).surviving == again


def test_results_of_a_legacy_function_call_stay_with_it() -> None:
    call = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}
    exchange = [human("x"), call, {"role": "function", "name": "f", "content": "1"}]
    assert MessageReducer(3, 4).reduce([*turns(2), *exchange]).surviving == exchange


def test_results_can_be_messages_of_their_own() -> None:
    config = ReducerConfig(min_messages=2, max_messages=3, cascade_tool_messages=False)
    exchange = [human("x"), ai("", calls=("c1", "c2")), result("c1"), result("c2")]
    assert len(MessageReducer(config=config).reduce(exchange).surviving) <= 3


@pytest.mark.parametrize("strange", [42, ("human", "hi"), "hi", None, {"content": "no role"}])
def test_unknown_shapes_pass_through_with_one_warning(
    strange: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reducer = MessageReducer(1, 2)
    messages = [*turns(3), strange]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            outcome = reducer.reduce(messages)
            assert outcome.surviving == messages
            assert outcome.pruned == []
    assert len(caplog.records) == 1
    assert "as a message" in caplog.text


def test_as_a_langgraph_reducer_it_prunes_and_merges_by_id() -> None:
    reduce_messages = MessageReducer(2, 4).as_langgraph_reducer()
    state = reduce_messages([], turns(2))
    state = reduce_messages(state, ai("better", "a1"))
    assert texts(state) == ["question 0", "answer 0", "question 1", "better"]
    state = reduce_messages(state, {"role": "remove", "id": "a1"})
    assert texts(state) == ["question 0", "answer 0", "question 1"]
    assert reduce_messages(state, {"role": "remove", "id": "gone long ago"}) == state
    assert texts(reduce_messages(state, turns(1, start=7))) == ["question 7", "answer 7"]
    assert reduce_messages(state, {"role": "remove", "id": "__remove_all__"}) == []


def test_messages_without_ids_are_all_kept_when_merged() -> None:
    reduce_messages = MessageReducer(2, 9).as_langgraph_reducer()
    assert texts(reduce_messages([human("ok")], [human("ok"), human("ok")])) == ["ok"] * 3


def test_what_is_no_message_is_kept_when_merged() -> None:
    assert MessageReducer(2, 9).as_langgraph_reducer()([human("ok")], [3]) == [human("ok"), 3]


def test_the_marks_can_be_read() -> None:
    reducer = MessageReducer(2, 9)
    assert (reducer.min_messages, reducer.max_messages) == (2, 9)


def test_each_cause_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    reducer = MessageReducer(1, 2)
    with caplog.at_level(logging.WARNING):
        for strange in (3, "hi", 4, "ho"):
            reducer.reduce([*turns(3), strange])
    assert [("int" in r.message, "str" in r.message) for r in caplog.records] == [
        (True, False),
        (False, True),
    ]
