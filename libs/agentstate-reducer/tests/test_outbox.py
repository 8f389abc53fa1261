"""Never lost, once each: what happens to pruned turns, whatever fails."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from chats import ai, human, texts, turns
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from threads import Fault, Faulty, Remember, Run, reducing, stored

ALL = texts(turns(40))


def converse(saver: Any, start: int, stop: int) -> None:
    """Run turns, each its own run with a step for the question and one for the answer."""
    for n in range(start, stop):
        run = Run(saver)
        run.say(turns(1, start=n)[0])
        run.work()
        run.say(turns(1, start=n)[1])


def in_order(handed: list[str]) -> bool:
    return handed == ALL[: len(handed)]


def test_pruned_turns_reach_the_hook_once_in_order_with_the_namespace() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook)
    converse(saver, 0, 20)
    assert in_order(hook.handed)
    assert hook.handed + texts(stored(saver)) == ALL[:40]
    assert {namespace for _, namespace in hook.batches} == {("memories", "kim")}


def test_one_long_run_hands_each_turn_over_once() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook)
    run = Run(saver)
    for message in turns(20):
        run.say(message)
        run.work()
        assert len(stored(saver)) <= 4
    assert hook.handed + texts(stored(saver)) == ALL[:40]


def test_the_order_is_outbox_put_hook_acknowledgement() -> None:
    inner = Faulty()

    def hook(messages: Any, namespace: Any) -> None:
        inner.log.append("hook")
        assert texts(stored(inner)) == texts(turns(1, start=2))

    run = Run(reducing(inner, hook))
    run.say(*turns(2))
    assert inner.log == ["list", "put"]
    inner.log.clear()
    run.say(*turns(1, start=2))
    assert inner.log == ["put_head", "put", "hook", "put_ack"]


def test_without_hooks_there_is_no_outbox_and_no_extra_call() -> None:
    inner = Faulty()
    converse(reducing(inner), 0, 10)
    assert set(inner.log) == {"put"}
    assert not any(inner.writes.values())


def test_a_thread_is_looked_through_once_in_a_process() -> None:
    inner = Faulty()
    converse(reducing(inner, Remember()), 0, 10)
    assert inner.log.count("list") == 1


def test_a_put_that_fails_hands_nothing_over() -> None:
    inner, hook = Faulty(), Remember()
    saver = reducing(inner, hook)
    run = Run(saver)
    run.say(*turns(2))
    inner.count, inner.fail_at = 0, 2
    with pytest.raises(Fault):
        run.say(*turns(1, start=2))
    assert hook.handed == []


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("step_between", [False, True])
def test_a_failed_hook_is_followed_up_by_the_next_save(
    new_process: bool, step_between: bool
) -> None:
    inner, steady = InMemorySaver(), Remember()
    shaky = Remember(fail=1)

    def second(messages: Any, namespace: Any) -> None:
        steady(messages, namespace)

    saver = reducing(inner, shaky, second)
    Run(saver).say(*turns(3))
    assert (shaky.handed, steady.handed) == ([], ALL[:4])
    if step_between:
        Run(saver).work()
    if new_process:
        saver = reducing(inner, shaky, second)
    Run(saver).say(*turns(1, start=3))
    assert shaky.handed == steady.handed == ALL[:4]
    Run(saver).say(*turns(1, start=4))
    assert shaky.handed == steady.handed == ALL[:8]


def test_a_hook_that_failed_for_long_gets_everything_in_order() -> None:
    inner, hook = InMemorySaver(), Remember(fail=9)
    for n in range(8):
        Run(reducing(inner, hook)).say(*turns(1, start=n))
    hook.fail = 0
    Run(reducing(inner, hook)).say(*turns(1, start=8))
    assert len(hook.handed) >= 12
    assert in_order(hook.handed)


def test_a_save_that_prunes_nothing_follows_up_too() -> None:
    inner, hook = InMemorySaver(), Remember(fail=1)
    Run(reducing(inner, hook)).say(*turns(3))
    Run(reducing(inner, hook)).say(human("more", "m"))
    assert hook.handed == ALL[:4]


def test_a_follow_up_has_the_same_keys_and_the_namespace_of_then() -> None:
    class Dies(Exception):
        pass

    inner, first, second = InMemorySaver(), Remember(), Remember()

    def hook(messages: Any, namespace: Any) -> None:
        first(messages, namespace)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(reducing(inner, hook)).say(*turns(3))

    def later(messages: Any, namespace: Any) -> None:
        second(messages, namespace)

    later.__qualname__ = hook.__qualname__
    Run(reducing(inner, later), user="somebody else").say(human("more", "m"))
    assert second.batches == first.batches == [(ALL[:4], ("memories", "kim"))]
    assert second.keys == first.keys


def test_a_hook_under_another_name_gets_what_waited() -> None:
    inner, hook = InMemorySaver(), Remember(fail=1)
    Run(reducing(inner, hook)).say(*turns(3))

    def renamed(messages: Any, namespace: Any) -> None:
        hook(messages, namespace)

    Run(reducing(inner, renamed)).say(human("more", "m"))
    assert hook.handed == ALL[:4]


def test_a_new_hook_does_not_get_what_was_done() -> None:
    inner, old, new = InMemorySaver(), Remember(), Remember()
    Run(reducing(inner, old)).say(*turns(3))

    def added(messages: Any, namespace: Any) -> None:
        new(messages, namespace)

    Run(reducing(inner, old, added)).say(*turns(2, start=3))
    assert old.handed == ALL[:8]
    assert new.handed == ALL[4:8]


@pytest.mark.parametrize("fail_at", range(1, 16))
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("new_process", [False, True])
def test_any_call_may_fail_before_or_after_it_acted(
    fail_at: int, after: bool, new_process: bool
) -> None:
    inner, hook = Faulty(), Remember()
    saver = reducing(inner, hook)
    inner.fail_at, inner.after = fail_at, after
    for n in range(8):
        for _ in range(2):
            if new_process:
                saver = reducing(inner, hook)
            run = Run(saver)
            there = {m["id"] for m in run.messages}
            with contextlib.suppress(Fault):
                run.say(*(m for m in turns(1, start=n) if m["id"] not in there))
                break
    assert inner.failed is not None
    once = list(dict.fromkeys(hook.handed))
    assert once + texts(stored(saver)) == ALL[:16]
    assert len(set(hook.keys)) == len(once)
    if not (inner.failed == "put_ack" and new_process and not after):
        assert once == hook.handed  # that one case is the exception to exactly once


@pytest.mark.parametrize("after", [False, True])
def test_the_same_put_may_be_repeated(after: bool) -> None:
    for fail_at in range(1, 8):
        inner, hook = Faulty(), Remember()
        saver = reducing(inner, hook)
        inner.fail_at, inner.after = fail_at, after
        run = Run(saver)
        for n in range(4):
            run.messages = turns(n + 1)
            args = run.prepare(["messages"])
            for _ in range(3):
                with contextlib.suppress(Fault):
                    saver.put(*args)
            run.saved(args)
        assert hook.handed + texts(stored(saver)) == ALL[:8], fail_at


def test_an_acknowledgement_that_fails_does_not_fail_the_save_and_is_made_up_for() -> None:
    inner, hook = Faulty(), Remember()
    saver = reducing(inner, hook)
    inner.fail_at = 4  # list, outbox, put, acknowledgement
    Run(saver).say(*turns(3))
    Run(saver, at=Run(saver).parent).say(human("more", "m"))
    assert hook.handed == ALL[:4]
    Run(reducing(inner, hook)).say(human("and more", "n"))
    assert hook.handed[:4] == ALL[:4]
    assert len(hook.handed) == len(set(hook.handed))


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


@pytest.mark.parametrize("what", ["work", "say"])
def test_a_hook_may_save_to_the_same_thread(what: str) -> None:
    """The save inside lists the batch that is being handed over, in a newer outbox."""
    inner, hook = InMemorySaver(), Remember()
    numbers = itertools.count()

    def saving(messages: Any, namespace: Any) -> None:
        hook(messages, namespace)
        run = Run(saver)
        if what == "work":
            run.work()
        elif next(numbers) < 3:
            run.say(*(human(f"noted {n}", f"n{next(numbers)}") for n in range(4)))

    saver = reducing(inner, saving)
    run = Run(saver)
    for n in range(3):
        run.say(*turns(1, start=n))
    assert hook.handed[:4] == ALL[:4]
    Run(reducing(inner, hook)).say(*turns(1, start=8))
    assert len(hook.handed) == len(set(hook.keys))


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


def test_every_prune_is_handed_over_when_asked_for() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook, dedupe_on_prune=False)
    fork = Run(saver).say(*turns(2))
    for _ in range(2):
        run = Run(saver, at=fork)
        run.say(*turns(1, start=2))
        run.say(human("more", "m"))
    assert hook.handed == ALL[:4] * 2


def test_each_hook_has_a_list_of_its_own() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), lambda messages, namespace: messages.clear(), hook)
    Run(saver).say(*turns(3))
    assert hook.handed == ALL[:4]


def test_a_repeated_client_history_is_not_handed_over_again() -> None:
    hook = Remember()
    saver = reducing(InMemorySaver(), hook)
    for n in range(1, 8):
        run = Run(saver)
        run.say(*turns(n))  # the client sends everything, each time
    assert sorted(set(hook.handed)) == sorted(hook.handed)


def test_streams_are_forgotten_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentstate_reducer.langgraph import streams

    monkeypatch.setattr(streams, "STREAMS_REMEMBERED", 2)
    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook)
    for n in range(6):
        for thread in ("t1", "t2", "t3"):
            Run(saver, thread=thread, user=thread).say(*turns(1, start=n))
    assert len(saver._core.streams._streams) == 2
    for thread in ("t1", "t2", "t3"):
        handed = [t for batch, ns in hook.batches for t in batch if ns[1] == thread]
        assert handed + texts(stored(saver, thread)) == ALL[:12]


@pytest.mark.parametrize("new_process", [False, True])
def test_what_waits_survives_the_pruning_of_older_checkpoints(new_process: bool) -> None:
    inner, hook = InMemorySaver(), Remember(fail=1)
    saver = reducing(inner, hook)
    run = Run(saver)
    run.say(*turns(3))
    if new_process:
        run = Run(reducing(inner, hook))
    newest = run.work()
    for key in [k for k in inner.storage["t"][""] if k != newest]:
        del inner.storage["t"][""][key]
        inner.writes.pop(("t", "", key), None)
    Run(reducing(inner, hook)).say(human("more", "m"))
    assert hook.handed == ALL[:4]


def test_a_thread_goes_on_without_the_wrapper() -> None:
    inner, hook = InMemorySaver(), Remember(fail=99)
    Run(reducing(inner, hook)).say(*turns(3))
    Run(inner).say(*turns(1, start=3))
    assert texts(stored(inner)) == ALL[4:8]


def test_a_namespace_of_any_type_is_handed_back_as_it_was() -> None:
    for namespace in ("x", 7, ("a", ("b", 1)), ["a", "b"], {"user": ("k", 1)}, b"x"):
        inner, hook = InMemorySaver(), Remember(fail=1)
        for saver in (reducing(inner, hook), reducing(inner, hook)):
            run = Run(saver)
            run._config = lambda at, run=run, ns=namespace: {  # type: ignore[method-assign, misc]
                "configurable": {
                    **run.conf,
                    "memory_namespace": ns,
                    **({"checkpoint_id": at} if at else {}),
                }
            }
            run.say(*turns(3) if not run.messages else [human("more", "m")])
        assert hook.batches == [(ALL[:4], namespace)]
        assert type(hook.batches[0][1]) is type(namespace)
