"""Never lost, once each: what happens to pruned turns, whatever fails."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from chats import human, texts, turns
from langgraph.checkpoint.memory import InMemorySaver
from threads import Fault, Faulty, Pruning, Remember, Run, reducing, stored

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
    inner, hook = Pruning(), Remember(fail=1)
    saver = reducing(inner, hook)
    run = Run(saver)
    run.say(*turns(3))
    if new_process:
        run = Run(reducing(inner, hook))
    run.work()
    run.saver.prune(["t"])
    assert len(inner.storage["t"][""]) == 1
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
