"""Which turns are the same turn: on forks, after edits, and without ids."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from chats import ai, human, texts, turns
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from threads import Remember, Run, reducing, stored

ALL = texts(turns(40))


@pytest.mark.parametrize("new_process", [False, True])
def test_a_fork_hands_over_what_the_other_branch_did_not(new_process: bool) -> None:
    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook)
    run = Run(saver)
    run.say(*turns(1))
    fork = run.say(*turns(1, start=1))
    for n in range(2, 6):
        run.say(*turns(1, start=n))
    assert hook.handed == ALL[:8]
    if new_process:
        saver = reducing(inner, hook)
    branch = Run(saver, at=fork)
    assert texts(branch.messages) == ALL[:4]
    for n in range(3):
        branch.say(human(f"other {n}", f"o{n}"), ai(f"reply {n}", f"r{n}"))
    assert hook.handed == [*ALL[:8], "other 0", "reply 0", "other 1", "reply 1"]


@pytest.mark.parametrize("new_processes", [True, False])
@pytest.mark.parametrize("ids", [True, False])
def test_a_fork_is_remembered_until_its_window_has_passed(ids: bool, new_processes: bool) -> None:
    def turn(n: int) -> list[Any]:
        made = turns(1, start=n)
        return made if ids else [{k: v for k, v in m.items() if k != "id"} for m in made]

    inner, hook = InMemorySaver(), Remember()
    settings = {"min_messages": 2, "max_messages": 8}
    saver = reducing(inner, hook, **settings)

    def run(at: str | None = None) -> Run:
        return Run(reducing(inner, hook, **settings) if new_processes else saver, at=at)

    for n in range(4):
        fork = run().say(*turn(n))
    for n in range(4, 9):
        run().say(*turn(n))
    before = list(hook.handed)
    assert before == ALL[:16]
    branch = run(at=fork)
    branch.messages = branch.messages[2:]  # so that the branch does not prune at once
    branch.save(["messages"])
    run().say(human("other", "o"))
    run().work()
    run().say(ai("reply", "r"))
    for n in range(20, 23):
        run().say(*turn(n))
    assert hook.handed[: len(before)] == before
    assert len(hook.handed) > len(before)
    assert not set(hook.handed[len(before) :]) & set(before)


def test_a_fork_follows_up_what_failed_on_the_other_branch() -> None:
    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook)
    run = Run(saver)
    fork = run.say(*turns(2))
    hook.fail = 1
    run.say(*turns(1, start=2))
    assert hook.handed == []
    other = reducing(inner, hook)
    Run(other, at=fork).work()
    Run(reducing(inner, hook)).say(human("other", "o"))
    assert hook.handed == ALL[:4]


def test_going_back_again_and_again_hands_each_turn_over_once() -> None:
    inner, hook = InMemorySaver(), Remember()
    fork = Run(reducing(inner, hook)).say(*turns(2))
    for n in range(5):
        branch = Run(reducing(inner, hook), at=fork)
        branch.say(human(f"try {n}", f"t{n}"))
        branch.say(ai(f"said {n}", f"s{n}"))
        branch.say(human("so", f"v{n}"), ai("well", f"w{n}"), human("bye", f"x{n}"))
    assert len(hook.handed) == len(set(hook.keys))
    assert hook.handed[:4] == ALL[:4]
    assert sorted(set(hook.handed)) == sorted(
        [*ALL[:4], "so", "well", *(f"{what} {n}" for n in range(5) for what in ("try", "said"))]
    )


def test_an_edited_message_is_new_material_and_stays_out_of_the_window() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook)
    run = Run(saver)
    run.say(*turns(3))
    run.say(human("question 0, I mean", "q0"))
    assert hook.handed == [*ALL[:4], "question 0, I mean"]
    assert texts(stored(saver)) == ALL[4:6]
    run.say(*turns(2, start=3))
    assert hook.handed == [*ALL[:4], "question 0, I mean", *ALL[4:8]]


def test_an_edit_in_the_window_is_handed_over_as_it_is_when_it_leaves() -> None:
    hook = Remember()
    run = Run(reducing(InMemorySaver(), hook))
    run.say(*turns(2))
    run.say(human("question 0, I mean", "q0"))
    run.say(*turns(1, start=2))
    assert hook.handed == ["question 0, I mean", *ALL[1:4]]


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_what_comes_back_when_the_window_is_removed_is_not_handed_over_again(
    ids: bool, new_process: bool
) -> None:
    inner, hook = InMemorySaver(), Remember()
    said = [m if ids else {k: v for k, v in m.items() if k != "id"} for m in turns(5)]
    run = Run(reducing(inner, hook))
    run.say(*said[:6])
    run.messages = said[:4]
    run.say()
    assert texts(stored(inner)) == ALL[:4]
    if new_process:
        run = Run(reducing(inner, hook))
    run.say(*said[6:])
    assert hook.handed == [*ALL[:4], *ALL[6:8]]


def test_another_namespace_gets_a_fork_of_its_own() -> None:
    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook)
    run = Run(saver)
    fork = run.say(*turns(2))
    run.say(*turns(1, start=2))
    Run(saver, at=fork, user="lee").say(*turns(1, start=5))
    assert [namespace[1] for _, namespace in hook.batches] == ["kim", "lee"]


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_like_messages_without_ids_are_all_handed_over(
    sizes: list[int], new_runs: list[bool]
) -> None:
    inner, hook = InMemorySaver(), Remember()
    run = Run(reducing(inner, hook))
    said = 0
    for size, new_run in zip(sizes, new_runs, strict=False):
        if new_run:
            run = Run(reducing(inner, hook))
        run.say(*itertools.chain.from_iterable((human("ok"), ai("ok")) for _ in range(size)))
        said += 2 * size
    assert len(hook.handed) + len(stored(inner)) == said
    assert len(set(hook.keys)) == len(hook.keys)
