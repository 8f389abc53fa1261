"""What waits for hooks: how it is stored, bounded, given up, moved and copied."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from collections import Counter
from typing import Any

import pytest
from chats import human, texts, turns
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from threads import Fault, Pruning, Remember, Run, reducing, stored

from agentstate_reducer import Background
from agentstate_reducer.langgraph import saving
from agentstate_reducer.langgraph.outbox import channel_name

ALL = texts(turns(400))
SECONDS = 20.0


def writes_of(inner: InMemorySaver, kind: str, thread: str = "t") -> list[Any]:
    """Return the outbox writes of a kind, over all checkpoints of a thread."""
    found = [
        write[2]
        for place in inner.list({"configurable": {"thread_id": thread}})
        for write in place.pending_writes or []
        if write[1] == channel_name("messages")
    ]
    return [write for write in found if write["kind"] == kind]


class Copying(Pruning):
    """Copies threads, pending writes included."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.storage[target_thread_id] = copy.deepcopy(self.storage[source_thread_id])
        for (thread, *rest), kept in list(self.writes.items()):
            if thread == source_thread_id:
                self.writes[(target_thread_id, *rest)] = dict(kept)
        for (thread, *rest), blob in list(self.blobs.items()):
            if thread == source_thread_id:
                self.blobs[(target_thread_id, *rest)] = blob


@pytest.mark.parametrize("new_process_each_turn", [False, True])
def test_each_turn_is_stored_a_few_times_however_long_a_hook_is_down(
    new_process_each_turn: bool,
) -> None:
    inner, hook = InMemorySaver(), Remember(fail=10_000)
    saver = reducing(inner, hook)
    for n in range(200):
        saver = reducing(inner, hook) if new_process_each_turn else saver
        Run(saver).say(*turns(1, start=n))
    waiting = len(ALL[:400]) - len(stored(inner))
    assert waiting <= len(writes_of(inner, "turn")) <= 4 * waiting
    heads = [len(head["batches"]) for head in writes_of(inner, "head")]
    assert max(heads) <= 40
    hook.fail = 0
    Run(reducing(inner, hook)).say(human("up again", "u"))
    assert hook.handed + texts(stored(inner)) == [*ALL[:400], "up again"]


def test_a_call_gets_no_more_than_max_batch_messages_also_after_an_outage() -> None:
    inner, hook = InMemorySaver(), Remember(fail=10_000)
    for n in range(60):
        Run(reducing(inner, hook, max_batch=7)).say(*turns(1, start=n))
    hook.fail = 0
    Run(reducing(inner, hook, max_batch=7)).say(human("up again", "u"))
    assert hook.handed + texts(stored(inner)) == [*ALL[:120], "up again"]
    assert max(len(batch) for batch, _ in hook.batches) == 7


@pytest.mark.parametrize("background", [False, True])
def test_a_poisoned_message_goes_to_on_dead_letter_and_stops_nothing(background: bool) -> None:
    inner, got, dead = InMemorySaver(), [], []

    def hook(messages: Any, namespace: Any) -> None:
        if any(m["content"] == "answer 1" for m in messages):
            raise Fault("poison")
        got.extend(m["content"] for m in messages)

    def on_dead_letter(error: Any, messages: Any, namespace: Any) -> None:
        dead.append((str(error), texts(messages), messages.keys, namespace))

    for n in range(8):
        beside = Background(hook, retries=0, on_error=lambda *_: None)
        saver = reducing(
            inner,
            beside if background else hook,
            max_attempts=3,
            on_dead_letter=on_dead_letter,
        )
        Run(saver).say(*turns(1, start=n))
        assert beside.flush(SECONDS)
    ((error, (content,), keys, namespace),) = dead
    assert (error, content, len(keys), namespace) == ("poison", "answer 1", 1, ("memories", "kim"))
    kept = texts(stored(inner))
    assert Counter(got) == Counter(t for t in ALL[:16] if t not in (*kept, "answer 1"))


def test_a_message_waits_for_a_dead_letter_handler_that_fails() -> None:
    inner, dead = InMemorySaver(), []

    def hook(messages: Any, namespace: Any) -> None:
        raise Fault

    def on_dead_letter(error: Any, messages: Any, namespace: Any) -> None:
        if len(dead) < 1:
            dead.append("failed")
            raise Fault
        dead.extend(texts(messages))

    saver = reducing(inner, hook, max_attempts=1, on_dead_letter=on_dead_letter)
    for n in range(4):
        Run(saver).say(*turns(1, start=n))
    assert dead == ["failed", *ALL[: 8 - len(stored(inner))]]


def test_attempts_are_counted_over_processes() -> None:
    inner, calls = InMemorySaver(), []

    def hook(messages: Any, namespace: Any) -> None:
        calls.append(texts(messages))
        raise Fault

    Run(reducing(inner, hook, max_attempts=3)).say(*turns(3))
    for n in range(3):
        Run(reducing(inner, hook, max_attempts=3)).say({**human(f"m{n}"), "id": f"m{n}"})
    whole = ALL[:4]
    assert calls[:3] == [whole] * 3
    assert calls[3:7] == [[text] for text in whole]
    assert not any(set(call) & set(whole) for call in calls[7:])


def test_it_is_counted_what_was_pruned_delivered_waits_and_was_given_up() -> None:
    inner, hook = InMemorySaver(), Remember(fail=1)

    def poisoned(messages: Any, namespace: Any) -> None:
        if "answer 1" in texts(messages):
            raise Fault

    saver = reducing(inner, hook, poisoned, max_attempts=2)
    Run(saver).say(*turns(3))
    counts = saver.reducer.counts
    assert (counts.pruned, counts.delivered, counts.failed, counts.dead) == (4, 0, 2, 0)
    assert saver.waiting == 4
    Run(saver).say({**human("more"), "id": "more"})
    assert (counts.pruned, counts.delivered, counts.failed, counts.dead) == (4, 7, 3, 1)
    assert saver.waiting == 0
    Run(saver).say(*({"unknown": n} for n in range(6)))
    assert sum(counts.left_as_they_are.values()) == 1


class TestBackground:
    def test_what_a_killed_process_had_accepted_is_handed_over_by_the_next(self) -> None:
        inner, gate, hook = InMemorySaver(), threading.Event(), Remember()

        def killed(messages: Any, namespace: Any) -> None:
            assert gate.wait(SECONDS)
            raise SystemExit

        killed.__module__, killed.__qualname__ = "threads", "Remember"  # the same hook
        slow = Background(killed, on_error=lambda *_: None)
        Run(reducing(inner, slow)).say(*turns(3))
        Run(reducing(inner, Background(hook))).say(human("more", "m"))
        next_process = Background(hook)
        Run(reducing(inner, next_process)).say(human("and more", "n"))
        assert next_process.flush(SECONDS)
        gate.set()
        assert slow.flush(SECONDS)
        assert hook.handed[:4] == ALL[:4]

    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_what_is_done_is_acknowledged(self, kind: str) -> None:
        inner, hook = InMemorySaver(), Remember()
        beside = Background(hook)
        saver = reducing(inner, beside)

        async def go() -> None:
            await Run(saver).asay(*turns(3))
            assert await asyncio.to_thread(beside.flush, SECONDS)
            await asyncio.sleep(0)

        if kind == "async":
            asyncio.run(go())
        else:
            Run(saver).say(*turns(3))
            assert beside.flush(SECONDS)
        assert len(writes_of(inner, "ack")) == 1
        Run(reducing(inner, hook)).say(human("more", "m"))
        assert hook.handed == ALL[:4]

    def test_what_finally_failed_is_tried_again_by_the_next_save(self) -> None:
        inner, hook = InMemorySaver(), Remember(fail=1)
        beside = Background(hook, retries=0, on_error=lambda *_: None)
        saver = reducing(inner, beside)
        Run(saver).say(*turns(3))
        assert beside.flush(SECONDS)
        assert (hook.handed, beside.failed) == ([], 1)
        Run(saver).say(human("more", "m"))
        assert beside.flush(SECONDS)
        assert hook.handed == ALL[:4]

    def test_saves_while_it_runs_hand_nothing_over_again(self) -> None:
        inner, gate, hook = InMemorySaver(), threading.Event(), Remember()

        def slow(messages: Any, namespace: Any) -> None:
            assert gate.wait(SECONDS)
            hook(messages, namespace)

        beside = Background(slow)
        saver = reducing(inner, beside)
        for n in range(30):
            Run(saver).say(*turns(1, start=n))
        gate.set()
        assert beside.flush(SECONDS)
        assert hook.handed + texts(stored(inner)) == ALL[:60]
        Run(reducing(inner, slow)).say(human("more", "m"))
        assert hook.handed + texts(stored(inner)) == [*ALL[:60], "more"]


class TestCopies:
    def test_what_waits_is_handed_over_from_the_thread_it_was_pruned_in(self) -> None:
        inner, hook = Copying(), Remember(fail=2)
        Run(reducing(inner, hook)).say(*turns(3))
        reducing(inner, hook).copy_thread("t", "copy")
        hook.fail = 0
        Run(reducing(inner, hook), thread="copy").say(human("there", "c"))
        assert hook.handed == []
        Run(reducing(inner, hook)).say(human("here", "h"))
        Run(reducing(inner, hook), thread="copy").say(human("there again", "d"))
        assert hook.handed[:4] == ALL[:4]
        assert not set(hook.handed[4:]) & set(ALL[:4])

    def test_it_is_handed_over_from_the_copy_when_that_thread_is_gone(self) -> None:
        inner, hook = Copying(), Remember(fail=1)
        Run(reducing(inner, hook)).say(*turns(3))
        inner.copy_thread("t", "copy")
        inner.delete_thread("t")
        Run(reducing(inner, hook), thread="copy").say(human("there", "c"))
        assert hook.handed == ALL[:4]


@pytest.mark.parametrize("new_process", [False, True])
def test_what_waits_in_a_subgraph_survives_the_pruning_of_its_namespace(new_process: bool) -> None:
    inner, hook = Pruning(), Remember(fail=1)
    saver = reducing(inner, hook)
    Run(saver).say(human("to the subgraph", "s"))
    run = Run(saver)
    run.conf["checkpoint_ns"] = "child:1"
    run.parent, run.messages = None, []
    run.say(*turns(3))
    saver = reducing(inner, hook) if new_process else saver
    saver.prune(["t"])
    del inner.storage["t"]["child:1"]  # as a saver does when the subgraph has finished
    Run(saver).say(human("more", "m"))
    assert hook.handed == ALL[:4]


def test_what_waits_survives_the_deletion_of_the_runs_that_pruned_it() -> None:
    inner, hook = Pruning(), Remember(fail=2)
    for number, said in enumerate([turns(3), [human("more", "m")]]):
        run = Run(reducing(inner, hook))
        prepare = run.prepare

        def prepared(*args: Any, number: int = number, prepare: Any = prepare) -> Any:
            config, checkpoint, metadata, new = prepare(*args)
            return config, checkpoint, {**metadata, "run_id": f"r{number}"}, new

        run.prepare = prepared  # type: ignore[method-assign]
        run.say(*said)
    reducing(inner, hook).delete_for_runs(["r0"])
    assert len(inner.storage["t"][""]) == 1
    Run(reducing(inner, hook)).say(human("still more", "n"))
    assert hook.handed[:4] == ALL[:4]


def test_the_log_says_what_is_gone_when_the_inner_saver_pruned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner, hook = Pruning(), Remember(fail=99)
    Run(reducing(inner, hook)).say(*turns(3))
    Run(reducing(inner, hook)).say(human("more", "m"))
    inner.prune(["t"])
    with caplog.at_level(logging.ERROR):
        Run(reducing(inner, Remember())).say(human("and more", "n"))
    assert "4 messages of namespace ('memories', 'kim')" in caplog.text
    assert "prune threads through ReducingSaver" in caplog.text


class Unreadable(InMemorySaver):
    """Cannot read one checkpoint, whose id is in `broken`."""

    broken: str | None = None

    def list(self, *args: Any, **kwargs: Any) -> Any:
        for found in InMemorySaver.list(self, *args, **kwargs):
            if found.checkpoint["id"] == self.broken:
                raise Fault("damaged")
            yield found


@pytest.mark.parametrize("mended", [False, True])
def test_what_waits_behind_a_damaged_checkpoint_is_found(mended: bool) -> None:
    inner, hook = Unreadable(), Remember(fail=1)
    saver = reducing(inner, hook)
    Run(saver).say(*turns(3))
    bare = Run(inner)
    inner.broken = bare.say(human("by the bare saver", "b"))
    Run(inner).say(human("and again", "c"))
    if mended:
        Run(reducing(inner, hook)).say(human("more", "m"))
        inner.broken = None
    Run(reducing(inner, hook)).say(human("still more", "n"))
    assert hook.handed[:4] == ALL[:4]
    assert len(hook.handed) == len(set(hook.handed))


def test_eight_threads_over_one_wrapper_hand_over_each_message_once() -> None:
    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook, min_messages=4, max_messages=8)
    said = [0]
    lock = threading.Lock()

    def talk() -> None:
        for _ in range(10):
            with lock:
                said[0] += 1
                number = said[0]
            Run(saver).say(*turns(1, start=number))

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(Counter(hook.handed).values()) == 1


def test_what_waits_is_not_kept_in_memory() -> None:
    inner, hook = InMemorySaver(), Remember(fail=10_000)
    saver = reducing(inner, hook)
    for n in range(40):
        Run(saver).say(*turns(1, start=n))
        (stream,) = saver._core.streams._streams.values()
        assert [len(batch.turns) for batch in stream.pending] == [0] * len(stream.pending)
    hook.fail = 0
    Run(saver).say(human("up again", "u"))
    assert hook.handed + texts(stored(inner)) == [*ALL[:80], "up again"]


@pytest.mark.parametrize("ids", [True, False])
def test_what_left_is_digested_once_in_a_run(ids: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counter[str]()
    real = saving.turn_digest

    def counted(message: Any, place: str) -> str:
        count[str(message.content)] += 1
        return real(message, place)

    monkeypatch.setattr(saving, "turn_digest", counted)
    hook = Remember()
    run = Run(reducing(InMemorySaver(), hook))
    for n in range(40):
        run.say(HumanMessage(f"text {n}", id=f"m{n}" if ids else None))
    assert len(hook.handed) >= 36
    assert {count[text] for text in hook.handed} == {1}
    if ids:
        run.messages[0] = HumanMessage("an edit", id="m0")
        run.say(HumanMessage("more", id="more"))
        assert "an edit" in hook.handed
