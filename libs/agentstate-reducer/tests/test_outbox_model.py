"""Any history of a thread: runs, forks, edits, failing hooks and new processes."""

from __future__ import annotations

from typing import Any

import pytest
from chats import ai, human
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver
from threads import Fault, Faulty, Pruning, Run, reducing, stored

STEP = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 4)),
    st.tuples(st.just("work"), st.just(0)),
    st.tuples(st.just("new run"), st.booleans()),
    st.tuples(st.just("fork"), st.integers(0, 30)),
    st.tuples(st.just("fork in a new process"), st.integers(0, 30)),
    st.tuples(st.just("edit"), st.integers(0, 30)),
    st.tuples(st.just("let hooks fail"), st.integers(1, 2)),
    st.tuples(st.just("save without the wrapper"), st.integers(1, 2)),
    st.tuples(st.just("prune"), st.booleans()),
)


class History:
    """Applies steps to a thread, and knows what was said on each branch."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.failures = 0
        self.saved_without_the_wrapper = False
        self.handed: list[tuple[str, str]] = []
        self.said: dict[str | None, set[str]] = {None: set()}
        self.saver = self.new_process()
        self.run = Run(self.saver)
        self.count = 0

    def new_process(self) -> Any:
        def hook(messages: Any, namespace: Any) -> None:
            if self.failures:
                self.failures -= 1
                raise Fault
            self.handed.extend((m["id"], m["content"]) for m in messages)

        return reducing(self.inner, hook, min_messages=2, max_messages=5)

    def apply(self, step: tuple[str, int]) -> None:
        kind, number = step
        if kind == "say":
            self.say(number)
        elif kind == "work":
            self.note(self.run.parent, self.run.work(), set())
        elif kind == "new run":
            self.saver = self.new_process() if number else self.saver
            self.run = Run(self.saver)
        elif kind.startswith("fork"):
            self.saver = self.new_process() if "process" in kind else self.saver
            places = [c for c in self.said if c is not None]
            at = places[number % len(places)] if places else None
            self.run = Run(self.saver, at=at)
        elif kind == "edit" and self.run.messages:
            message = self.run.messages[number % len(self.run.messages)]
            self.count += 1
            edited = {**message, "content": f"edit {self.count}"}
            self.note(self.run.parent, self.run.say(edited), set())
        elif kind == "let hooks fail":
            self.failures = number
        elif kind == "save without the wrapper":
            self.saved_without_the_wrapper = True
            self.run = Run(self.inner)
            self.say(number)
            self.run = Run(self.saver)
        elif kind == "prune" and isinstance(self.inner, Pruning):
            self.saver = self.new_process() if number else self.saver
            self.saver.prune(["t"])
            newest = max(self.inner.storage["t"][""], default=None)
            self.said = {None: set(), **({newest: self.said[newest]} if newest else {})}
            self.run = Run(self.saver)

    def say(self, number: int) -> None:
        new = []
        for _ in range(number):
            self.count += 1
            make = human if self.count % 2 else ai
            new.append(make(f"text {self.count}", f"m{self.count}"))
        parent = self.run.parent
        self.note(parent, self.run.say(*new), {m["id"] for m in new})

    def note(self, parent: str | None, child: str, ids: set[str]) -> None:
        self.said[child] = self.said[parent] | ids

    def finish(self) -> None:
        self.failures = 0
        self.saver = self.new_process()
        self.run = Run(self.saver)
        self.say(1)


def check(history: History) -> None:
    assert len(set(history.handed)) == len(history.handed), "handed over twice"
    handed = {id_ for id_, _ in history.handed}
    for checkpoint, said in history.said.items():
        if checkpoint is not None:
            kept = {m["id"] for m in stored(history.inner, checkpoint_id=checkpoint)}
            assert said <= kept | handed, "lost"
            assert len(kept) <= 5 or history.saved_without_the_wrapper


@pytest.mark.parametrize("updated_channels", ["right", "none", "too much"])
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=25))
def test_nothing_is_lost_and_nothing_is_handed_over_twice(
    monkeypatch: pytest.MonkeyPatch, updated_channels: str, steps: list[Any]
) -> None:
    monkeypatch.setattr(Run, "updated_channels", updated_channels)
    history = History(Pruning())
    for step in steps:
        history.apply(step)
    history.finish()
    check(history)


@settings(max_examples=40)
@given(st.lists(STEP, max_size=20))
def test_the_same_holds_for_a_saver_that_stores_checkpoints_whole(steps: list[Any]) -> None:
    with SqliteSaver.from_conn_string(":memory:") as inner:
        history = History(inner)
        for step in steps:
            history.apply(step)
        history.finish()
        check(history)


class FaultyHistory(History):
    """A history in which calls of the inner saver fail, before or after they acted."""

    inner: Faulty
    acknowledgement_lost = False

    def apply(self, step: tuple[str, int]) -> None:
        if step[0] == "fault":
            self.inner.count, self.inner.fail_at = 0, 1 + step[1] // 2
            self.inner.after = bool(step[1] % 2)
            return
        run, known = self.run, len(self.run.messages)
        parent = run.parent
        try:
            super().apply(step)
        except Fault:  # what the save said counts if it is stored all the same
            new = {m["id"] for m in run.messages[known:]}
            for checkpoint in set(self.inner.storage["t"][""]) - set(self.said):
                self.note(parent, checkpoint, new)
        else:
            if not (self.inner.failed == "put_ack" and not self.inner.after):
                return
            self.acknowledgement_lost = True
        self.inner.failed = None
        self.run = Run(self.saver)

    def finish(self) -> None:
        self.inner.fail_at = None
        super().finish()


@settings(max_examples=300)
@given(st.lists(st.one_of(STEP, st.tuples(st.just("fault"), st.integers(0, 9))), max_size=25))
def test_the_same_holds_when_calls_of_the_saver_fail(steps: list[Any]) -> None:
    history = FaultyHistory(Faulty())
    for step in steps:
        history.apply(step)
    history.finish()
    if history.acknowledgement_lost:  # the exception to exactly once, if a new process followed
        history.handed = list(dict.fromkeys(history.handed))
    check(history)
