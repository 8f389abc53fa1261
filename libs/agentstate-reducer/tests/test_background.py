"""Hooks that run beside the request."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from chats import human, turns

from agentstate_reducer import Background, MessageReducer, ReducerConfig, background
from agentstate_reducer.background import BackgroundFull
from agentstate_reducer.delivery import named

SECONDS = 20.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE", 0.0)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


class Gated:
    """A hook that waits for a gate and remembers what it was handed."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.handed: dict[Any, list[Any]] = defaultdict(list)
        self.threads: set[int] = set()

    def __call__(self, messages: list[Any], namespace: Any) -> None:
        assert self.gate.wait(SECONDS)
        self.threads.add(threading.get_ident())
        self.handed[namespace].extend(messages)


def test_the_caller_does_not_wait(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook)
    bg([1], "n")
    assert (bg.pending, hook.handed) == (1, {})
    assert not bg.flush(timeout=0.01)
    gate.set()
    assert bg.flush(SECONDS)
    assert (bg.pending, bg.failed) == (0, 0)
    assert hook.handed == {"n": [1]}
    assert threading.get_ident() not in hook.threads


def test_order_is_kept_within_a_namespace(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook, workers=4)
    for i in range(300):
        bg([i], ("memories", i % 3))
    gate.set()
    assert bg.flush(SECONDS)
    for rest in range(3):
        assert hook.handed["memories", rest] == list(range(rest, 300, 3))


def test_namespaces_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=SECONDS)
    bg = Background(lambda messages, namespace: meeting.wait() and None, workers=2)
    bg([1], "a")
    bg([1], "b")
    assert bg.flush(SECONDS)
    assert bg.failed == 0


def test_one_namespace_never_runs_twice_at_once() -> None:
    inside = threading.Lock()

    def hook(messages: list[Any], namespace: Any) -> None:
        assert inside.acquire(blocking=False)
        inside.release()

    bg = Background(hook, workers=4)
    for _ in range(200):
        bg([1], "n")
    assert bg.flush(SECONDS)
    assert bg.failed == 0


def test_a_full_queue_makes_callers_wait(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook, max_pending=2)
    caller = threading.Thread(target=lambda: [bg([i], "n") for i in range(10)], daemon=True)
    caller.start()
    caller.join(0.1)
    assert caller.is_alive()
    assert bg.pending == 2
    gate.set()
    caller.join(SECONDS)
    assert bg.flush(SECONDS)
    assert hook.handed["n"] == list(range(10))


def test_a_full_queue_can_raise(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook, max_pending=1, on_full="raise")
    bg([1], "n")
    with pytest.raises(BackgroundFull, match="1 background calls are pending") as raised:
        bg([2], "n")
    assert (raised.value.pending, raised.value.max_pending) == (1, 1)
    gate.set()
    assert bg.flush(SECONDS)
    assert hook.handed["n"] == [1]


def test_a_full_queue_can_run_calls_inline_and_in_order(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook, max_pending=1, on_full="inline")
    bg([1], "n")
    gate.set()
    bg([2], "n")
    assert bg.flush(SECONDS)
    assert hook.handed["n"] == [1, 2]


def test_a_hook_may_call_its_own_background_when_it_is_full() -> None:
    handed: list[Any] = []

    def hook(messages: list[Any], namespace: Any) -> None:
        handed.extend(messages)
        if namespace == "outer":
            bg([*messages, "again"], "inner")

    bg = Background(hook, workers=1, max_pending=1)
    bg([1], "outer")
    assert bg.flush(SECONDS)
    assert handed == [1, 1, "again"]


def test_the_hook_has_a_list_of_its_own_with_the_keys() -> None:
    seen: list[Any] = []
    bg = Background(lambda messages, namespace: seen.append((list(messages), messages.keys)))
    reducer = MessageReducer(config=ReducerConfig(min_messages=2, max_messages=4, on_prune=[bg]))
    state = turns(3)
    reducer.reduce(state)
    state.clear()
    assert bg.flush(SECONDS)
    ((messages, keys),) = seen
    assert messages == turns(2)
    assert len(keys) == 4


def test_async_hooks_share_one_loop() -> None:
    loops = set()

    async def hook(messages: list[Any], namespace: Any) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())

    bg = Background(hook, workers=3)
    for i in range(20):
        bg([i], i)
    assert bg.flush(SECONDS)
    assert len(loops) == 1


def test_a_failing_call_is_tried_again_before_the_next_one() -> None:
    handed: list[Any] = []
    failures = iter([True, True, False, False])

    def hook(messages: list[Any], namespace: Any) -> None:
        if next(failures):
            raise ConnectionError
        handed.extend(messages)

    bg = Background(hook, retries=2)
    bg([1], "n")
    bg([2], "n")
    assert bg.flush(SECONDS)
    assert handed == [1, 2]
    assert bg.failed == 0


def test_what_finally_fails_is_counted_and_reported() -> None:
    reports: list[Any] = []

    def hook(messages: list[Any], namespace: Any) -> None:
        raise ConnectionError("away")

    bg = Background(hook, retries=1, on_error=lambda *report: reports.append(report))
    bg([1], "n")
    assert bg.flush(SECONDS)
    assert (bg.failed, bg.pending) == (1, 0)
    ((error, messages, namespace),) = reports
    assert isinstance(error, ConnectionError)
    assert (messages, namespace) == ([1], "n")


@pytest.mark.parametrize("on_error", [None, lambda *report: 1 / 0])
def test_what_finally_fails_is_logged(on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    def hook(messages: list[Any], namespace: Any) -> None:
        raise ConnectionError("away")

    with caplog.at_level(logging.ERROR):
        bg = Background(hook, retries=0, on_error=on_error)
        bg([human("x")], ("memories", "kim"))
        assert bg.flush(SECONDS)
    assert "away" in caplog.text
    assert "('memories', 'kim')" in caplog.text


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_hook_that_would_stop_its_thread_has_failed(stop: type[BaseException]) -> None:
    """Else its worker would be missing, and whoever waits for the queue would wait for ever."""
    handed: list[Any] = []
    errors: list[BaseException] = []

    def hook(messages: list[Any], namespace: Any) -> None:
        if messages == ["stop"]:
            raise stop
        handed.extend(messages)

    bg = Background(hook, workers=1, on_error=lambda error, *_: errors.append(error))
    bg(["stop"], "n")
    bg(["next"], "n")
    assert bg.flush(SECONDS)
    assert (handed, bg.failed) == (["next"], 1)
    assert [type(error) for error in errors] == [stop]


@pytest.mark.parametrize("closed", [True, False])
def test_a_hook_may_call_itself_for_its_own_namespace(closed: bool) -> None:
    handed: list[Any] = []

    def hook(messages: list[Any], namespace: Any) -> None:
        handed.extend(messages)
        if messages[0]:
            bg([messages[0] - 1], namespace)

    bg = Background(hook, workers=1, max_pending=1)
    if closed:
        bg.close()
    bg([2], "n")
    assert bg.flush(SECONDS)
    assert handed == [2, 1, 0]
    assert bg.pending == 0


def test_a_call_after_close_runs_inline(gate: threading.Event) -> None:
    hook = Gated(gate)
    gate.set()
    with Background(hook) as bg:
        bg([1], "n")
    assert hook.handed["n"] == [1]
    bg([2], "n")
    assert hook.handed["n"] == [1, 2]
    assert threading.get_ident() in hook.threads


def test_close_wakes_callers_that_wait_for_room(gate: threading.Event) -> None:
    hook = Gated(gate)
    bg = Background(hook, max_pending=1)
    bg([1], "n")
    caller = threading.Thread(target=bg, args=([2], "n"), daemon=True)
    caller.start()
    assert not bg.close(wait=False)
    assert not bg.close(timeout=0.05)
    gate.set()
    caller.join(SECONDS)
    assert bg.flush(SECONDS)
    assert hook.handed["n"] == [1, 2]


@pytest.mark.parametrize(
    "settings", [{"workers": 0}, {"max_pending": 0}, {"retries": -1}, {"on_full": "drop"}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Background(print, **settings)


def test_hooks_have_the_same_names_in_the_background() -> None:
    names = [name for name, _ in named([turns, Background(turns), human])]
    assert names == ["chats.turns", "chats.turns#2", "chats.human"]


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_pending_runs_before_the_interpreter_ends() -> None:
    out = run_python(
        """
        import asyncio, time
        from agentstate_reducer import Background
        async def hook(messages, namespace):
            await asyncio.to_thread(time.sleep, 0.05)
            print(messages[0], flush=True)
        bg = Background(hook, workers=1)
        for i in range(5):
            bg([i], "n")
        """
    )
    assert out.split() == ["0", "1", "2", "3", "4"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system cannot fork")
def test_a_child_starts_anew_and_the_parent_goes_on() -> None:
    out = run_python(
        """
        import os, threading, time
        from agentstate_reducer import Background
        gate = threading.Event()
        def hook(messages, namespace):
            gate.wait(20)
            print(messages[0], flush=True)
        async def ahook(messages, namespace):
            print("async", messages[0], flush=True)
        bg, abg = Background(hook), Background(ahook)
        abg(["warm"], "n"); abg.flush(20)
        bg(["parent"], "n")
        child = os.fork()
        if child == 0:
            assert bg.pending == 0
            gate.set()
            bg(["child"], "n"); abg(["child"], "n")
            ok = bg.flush(20) and abg.flush(20)
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        gate.set()
        assert bg.flush(20)
        """
    )
    assert sorted(out.splitlines()) == ["async child", "async warm", "child", "parent"]
