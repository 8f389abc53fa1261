"""Laws of pruning: whatever the messages and the window, bound and transcript hold."""

from __future__ import annotations

from typing import Any

from chats import any_messages, valid_chats
from hypothesis import given
from hypothesis import strategies as st

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.messages import AI, HUMAN, INSTRUCTIONS, RESULTS, read
from agentstate_reducer.summary import is_summary

WINDOWS = st.tuples(st.integers(0, 12), st.integers(0, 12))
LISTS = st.one_of(any_messages(), valid_chats())


def reduce(messages: list[Any], window: tuple[int, int], **settings: Any) -> Any:
    low, high = window
    config = ReducerConfig(min_messages=low, max_messages=high, **settings)
    return MessageReducer(config=config).reduce(messages)


def callers(messages: list[Any]) -> dict[str, str]:
    """Map the id of each result to the id of the AI message that called for it."""
    latest: dict[str | None, str] = {}
    found = {}
    for message in messages:
        facts = read(message)
        if facts.role == AI:
            latest.pop(None, None)
            latest.update(dict.fromkeys(facts.calls, message["id"]))
        elif facts.role in RESULTS and facts.answers[0] in latest:
            found[message["id"]] = latest[facts.answers[0]]
    return found


def open_exchange(messages: list[Any]) -> set[str]:
    """Return the ids of the question and the tool exchange that the model has yet to go on from."""
    facts = [read(m) for m in messages]
    humans = [i for i, f in enumerate(facts) if f.role == HUMAN]
    question = humans[-1] if humans else -1
    answers = [i for i, f in enumerate(facts) if f.role == AI and i > question]
    if answers and not facts[answers[-1]].calls:
        return set()
    kept = {messages[question]["id"]} if humans else set()
    if answers:
        asked = messages[answers[-1]]["id"]
        kept |= {asked} | {r for r, caller in callers(messages).items() if caller == asked}
    return kept


def has_calls(messages: list[Any], ids: set[str]) -> bool:
    return any(m["id"] in ids and read(m).calls for m in messages)


@given(LISTS, WINDOWS)
def test_nothing_is_lost_or_invented_and_order_is_kept(messages: list[Any], window: Any) -> None:
    result = reduce(messages, window)
    place = {m["id"]: i for i, m in enumerate(messages)}
    for part in (result.surviving, result.pruned):
        assert [place[m["id"]] for m in part] == sorted(place[m["id"]] for m in part)
    assert sorted(m["id"] for m in result.surviving + result.pruned) == sorted(place)


@given(LISTS, WINDOWS)
def test_no_more_than_the_window_stays_save_one_open_tool_exchange(
    messages: list[Any], window: Any
) -> None:
    kept = reduce(messages, window).surviving
    if len(kept) <= window[1]:
        return
    needed = open_exchange(messages)
    assert has_calls(messages, needed)
    assert len(needed) > window[1]
    others = [m for m in kept if m["id"] not in needed]
    assert all(m is messages[0] and read(m).role in INSTRUCTIONS for m in others)


@given(LISTS, WINDOWS)
def test_pruning_begins_above_the_high_mark_only(messages: list[Any], window: Any) -> None:
    result = reduce(messages, window)
    if len(messages) <= window[1]:
        assert result.surviving == messages
        assert result.pruned == []


@given(LISTS, WINDOWS)
def test_an_ai_message_and_its_results_stay_or_go_together(
    messages: list[Any], window: Any
) -> None:
    result = reduce(messages, window)
    kept = {m["id"] for m in result.surviving}
    for answer, caller in callers(messages).items():
        assert (answer in kept) == (caller in kept)


@given(LISTS, WINDOWS)
def test_orphan_results_go_first(messages: list[Any], window: Any) -> None:
    result = reduce(messages, window)
    if not result.pruned:
        return
    known = callers(messages)
    assert all(m["id"] in known for m in result.surviving if read(m).role in RESULTS)


@given(LISTS, WINDOWS)
def test_the_body_begins_with_a_human_message(messages: list[Any], window: Any) -> None:
    result = reduce(messages, window)
    if not result.pruned or not any(read(m).role == HUMAN for m in messages):
        return
    kept = result.surviving
    if kept and kept[0] is messages[0] and read(kept[0]).role in INSTRUCTIONS:
        kept = kept[1:]
    assert not kept or read(kept[0]).role == HUMAN


@given(LISTS, WINDOWS)
def test_an_unanswered_question_and_its_exchange_stay(messages: list[Any], window: Any) -> None:
    needed = open_exchange(messages)
    if window[1] == 0 and not has_calls(messages, needed):
        return
    kept = {m["id"] for m in reduce(messages, window).surviving}
    assert needed <= kept


@given(LISTS, WINDOWS)
def test_leading_instructions_stay_where_there_is_room(messages: list[Any], window: Any) -> None:
    kept = reduce(messages, window).surviving
    if not messages or read(messages[0]).role not in INSTRUCTIONS:
        return
    needed = open_exchange(messages)
    passes = has_calls(messages, needed) and len(needed) > window[1]
    if len(needed) + 1 <= window[1] or (window[1] and passes):
        assert kept[:1] == messages[:1]


@given(LISTS, WINDOWS)
def test_what_was_pruned_once_is_stable(messages: list[Any], window: Any) -> None:
    kept = reduce(messages, window).surviving
    assert reduce(kept, window).surviving == kept


@given(LISTS, WINDOWS, st.lists(st.integers(0, 50), min_size=30, max_size=30))
def test_token_mode_keeps_the_bound_and_the_exchanges(
    messages: list[Any], window: Any, sizes: list[int]
) -> None:
    sized = [{**m, "size": size} for m, size in zip(messages, sizes, strict=False)]
    target, most = (mark * 10 for mark in window)
    config = ReducerConfig(
        max_tokens=most, target_tokens=target, token_counter=lambda m: int(m["size"])
    )
    result = MessageReducer(config=config).reduce(sized)
    kept = {m["id"] for m in result.surviving}
    assert all((a in kept) == (c in kept) for a, c in callers(sized).items() if result.pruned)
    if sum(m["size"] for m in result.surviving) > most:
        needed = open_exchange(sized)
        others = [m for m in result.surviving if m["id"] not in needed]
        assert sum(m["size"] for m in sized if m["id"] in needed) > most
        assert all(m is sized[0] and read(m).role in INSTRUCTIONS for m in others)


@given(LISTS, WINDOWS, st.integers(1, 3))
def test_a_summary_stays_inside_the_bound(messages: list[Any], window: Any, size: int) -> None:
    result = reduce(
        messages,
        window,
        summarize_fn=lambda gone: f"{len(gone)} gone",
        inject_summary=True,
        summary_message_factory=lambda text, n: [{"role": "user", "content": text}] * size,
    )
    said = {m["id"] for m in messages}
    needed = open_exchange(messages)
    block = [m for m in result.surviving if m["id"] not in said]
    if len(result.surviving) > window[1]:
        assert has_calls(messages, needed)
        assert len(result.surviving) - len(block) > window[1]
    assert len({m["id"] for m in block}) == len(block)


@given(any_messages(max_size=40), WINDOWS, st.integers(1, 3), st.integers(1, 6))
def test_the_bound_holds_from_one_summary_to_the_next(
    messages: list[Any], window: Any, size: int, pace: int
) -> None:
    low, high = window
    config = ReducerConfig(
        min_messages=low,
        max_messages=high,
        summarize_fn=lambda gone: "all of it",
        inject_summary=True,
        summary_message_factory=lambda text, n: [{"role": "user", "content": text}] * size,
    )
    reducer = MessageReducer(config=config)
    state: list[Any] = []
    said: list[Any] = []
    pruned: list[Any] = []
    for start in range(0, len(messages), pace):
        result = reducer.reduce(state, messages[start : start + pace])
        state = result.surviving
        pruned += result.pruned
        summaries = [m for m in state if is_summary(read(m))]
        said = [m for m in state if not is_summary(read(m))]
        assert len(summaries) in (0, size)
        if len(state) > high:
            assert has_calls(said, open_exchange(said))
            assert len(said) > high
    assert sorted(m["id"] for m in said + pruned) == sorted(m["id"] for m in messages)
