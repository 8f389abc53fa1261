"""Inserts of several threads in one command: whose documents go together, and who waits."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo.errors import AutoReconnect, OperationFailure

from langgraph.checkpoint.mongodb import _gathering
from langgraph.checkpoint.mongodb._documents import Document
from langgraph.checkpoint.mongodb._gathering import SyncGathering
from langgraph.checkpoint.mongodb._port import Role
from tests.hypothesis_profile import examples
from tests.unit_tests.keyed_server import Server, document, is_right

# Longer than a test takes, unless something waits for ever.
AT_MOST_S = 10.0


class HeldServer(Server):
    """Tells when a command has come, and holds back those with certain keys."""

    def __init__(self) -> None:
        super().__init__()
        self.come = threading.Semaphore(0)
        self._held: dict[Any, threading.Event] = {}

    def hold(self, key: Any) -> Callable[[], None]:
        """Hold back commands that carry a key; return what lets them go."""
        let_go = self._held[key] = threading.Event()
        return let_go.set

    def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        self.come.release()
        for one in documents:
            if one["key"] in self._held:
                assert self._held[one["key"]].wait(AT_MOST_S), "never let go"
        return super().insert(role, documents)


class Threads:
    """Threads that insert over one gathering, step by step.

    Attributes:
        server: What they insert into.
        gathering: What they share.
    """

    def __init__(self, pool: ThreadPoolExecutor, added: threading.Semaphore) -> None:
        self.server = HeldServer()
        self.gathering = SyncGathering(self.server.insert)
        self._pool, self._added = pool, added

    def begin(self, *documents: Document, role: Role = "writes") -> Future[list[int]]:
        """Begin an insert; return once its documents are among those that wait."""
        future = self.submit(*documents, role=role)
        assert self._added.acquire(timeout=AT_MOST_S)
        return future

    def submit(self, *documents: Document, role: Role = "writes") -> Future[list[int]]:
        """Begin an insert."""
        return self._pool.submit(self.gathering.insert, role, documents)

    def all_went_at_once(self) -> bool:
        """Whether no insert was begun that waited, but for those told of by `begin`."""
        return not self._added.acquire(blocking=False)

    def under_way(self, key: Any) -> tuple[Future[list[int]], Callable[[], None]]:
        """Begin an insert; return once the server has its command, with what lets it go."""
        let_go = self.server.hold(key)
        while self.server.come.acquire(blocking=False):
            pass
        future = self.submit(document(key))
        assert self.server.come.acquire(timeout=AT_MOST_S)
        while self._added.acquire(blocking=False):
            pass
        return future, let_go


@contextlib.contextmanager
def sharing(*, near: bool) -> Iterator[Threads]:
    """Threads of a server that has answered fast once, if it is near, or not at all yet."""
    added = threading.Semaphore(0)

    class Batch(_gathering._Batch):
        def add(self, documents: Sequence[Document]) -> range:
            own = super().add(documents)
            added.release()
            return own

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(8) as pool:
        patched.setattr(_gathering, "_Batch", Batch)
        patched.setattr(_gathering, "_WAIT_S", AT_MOST_S)
        patched.setattr(_gathering, "_PATIENCE_S", AT_MOST_S)
        patched.setattr(_gathering, "_NEAR_S", math.inf)
        made = Threads(pool, added)
        if near:
            assert answer_of(made.submit(document("warm"))) == []
            made.server.commands.clear()
            made.server.stored.clear()
        yield made


@pytest.fixture
def far() -> Iterator[Threads]:
    """Threads of a server that has not answered yet."""
    with sharing(near=False) as threads:
        yield threads


@pytest.fixture
def near() -> Iterator[Threads]:
    """Threads of a server that has answered fast once."""
    with sharing(near=True) as threads:
        yield threads


def answer_of(future: Future[list[int]]) -> Any:
    """What a thread was answered, or the error that it got."""
    return future.exception(AT_MOST_S) or future.result()


def test_a_lone_thread_sends_its_documents_alone(near: Threads) -> None:
    assert answer_of(near.submit(document(1), document(2))) == []
    assert near.server.commands == [("writes", [1, 2])]


def test_what_comes_while_a_near_server_works_goes_with_the_next_command(near: Threads) -> None:
    first, let_go = near.under_way(1)
    later = [near.begin(document(key)) for key in (2, 3, 4)]
    let_go()
    assert [answer_of(one) for one in (first, *later)] == [[]] * 4
    assert near.server.sent == [[1], [2, 3, 4]]


def test_what_comes_just_when_the_way_is_free_goes_with_those_who_wait(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, let_go = near.under_way(1)
    leads = near.begin(document(2))
    # Free for whoever comes now; the one that waits has not noticed yet.
    with monkeypatch.context() as patched:
        patched.setitem(near.gathering._under_way, "writes", threading.Lock())
        later = near.begin(document(3))
    let_go()
    assert [answer_of(one) for one in (first, leads, later)] == [[]] * 3
    assert near.server.sent == [[1], [2, 3]]


def test_after_that_the_way_is_free_again(near: Threads) -> None:
    first, let_go = near.under_way(1)
    later = near.begin(document(2))
    let_go()
    assert [answer_of(first), answer_of(later)] == [[], []]
    assert answer_of(near.submit(document(3))) == []
    assert near.all_went_at_once()
    assert near.server.sent == [[1], [2], [3]]


@pytest.mark.parametrize("answered", [False, True], ids=["not answered yet", "answered slowly"])
def test_no_thread_waits_for_the_command_of_another_to_a_far_server(
    far: Threads, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    if answered:
        monkeypatch.setattr(_gathering, "_NEAR_S", 0)  # No server is as fast as that.
        assert answer_of(far.submit(document("before"))) == []
    first, let_go = far.under_way(1)
    assert answer_of(far.submit(document(2))) == []
    assert not first.done()
    let_go()
    assert answer_of(first) == []
    assert far.server.sent[-2:] == [[2], [1]]


def test_a_thread_waits_for_the_command_of_another_only_so_long(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gathering, "_PATIENCE_S", 0)
    first, let_go = near.under_way(1)
    assert answer_of(near.begin(document(2))) == []
    assert not first.done()
    let_go()
    assert answer_of(first) == []


def test_a_thread_that_lost_its_patience_lets_others_wait_for_their_turn(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, let_go = near.under_way(1)
    with monkeypatch.context() as patched:
        patched.setattr(_gathering, "_PATIENCE_S", 0)
        assert answer_of(near.begin(document(2))) == []
    later = [near.begin(document(key)) for key in (3, 4)]
    let_go()
    assert [answer_of(one) for one in (first, *later)] == [[]] * 3
    assert near.server.sent == [[2], [1], [3, 4]]


def test_a_thread_whose_documents_another_has_sends_them_itself_in_the_end(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, let_go = near.under_way(1)
    leader = near.begin(document(2))
    monkeypatch.setattr(_gathering, "_WAIT_S", 0)
    assert answer_of(near.begin(document(3))) == []
    assert not first.done()
    assert not leader.done()
    let_go()
    assert [answer_of(first), answer_of(leader)] == [[], []]
    assert near.server.sent == [[3], [1], [2, 3]]


def test_threads_do_not_wait_for_commands_on_other_collections(near: Threads) -> None:
    first, let_go = near.under_way(1)
    others: tuple[Role, ...] = ("checkpoints", "values")
    assert [answer_of(near.submit(document(2), role=role)) for role in others] == [[], []]
    assert not first.done()
    let_go()
    assert answer_of(first) == []
    assert near.server.commands == [("checkpoints", [2]), ("values", [2]), ("writes", [1])]


def test_what_is_large_goes_alone_without_waiting(near: Threads) -> None:
    first, let_go = near.under_way(1)
    large = near.submit(document(2, value=bytes(_gathering._BYTES + 1)))
    assert answer_of(large) == []
    assert not first.done()
    let_go()
    assert answer_of(first) == []


@pytest.mark.parametrize("guilty", [2, 3, 4])
def test_only_the_thread_fails_whose_documents_the_server_refuses(
    near: Threads, guilty: int
) -> None:
    near.server.refuses = guilty
    first, let_go = near.under_way(1)
    later = {key: near.begin(document(key)) for key in (2, 3, 4)}
    let_go()
    assert answer_of(first) == []
    assert isinstance(answer_of(later.pop(guilty)), OperationFailure)
    assert all(isinstance(answer_of(one), list) for one in later.values())
    assert near.server.sent[:2] == [[1], [2, 3, 4]]
    assert sorted(near.server.sent[2:]) == [[2], [3], [4]]
    assert {key for _, key in near.server.stored} == {1, 2, 3, 4} - {guilty}


def test_after_a_lost_connection_each_thread_sends_its_own_and_the_sender_fails(
    near: Threads,
) -> None:
    first, let_go = near.under_way(1)
    later = [near.begin(document(key)) for key in (2, 3, 4)]
    insert, lost = near.server.insert, AutoReconnect("gone")

    def lose_the_connection_once(role: Role, documents: Sequence[Document]) -> list[int]:
        if len(documents) > 1:
            near.server.commands.append((role, [one["key"] for one in documents]))
            raise lost
        return insert(role, documents)

    near.gathering._insert = lose_the_connection_once
    let_go()
    assert answer_of(first) == []
    assert answer_of(later[0]) is lost
    assert [answer_of(one) for one in later[1:]] == [[], []]
    assert near.server.sent[:2] == [[1], [2, 3, 4]]
    assert sorted(near.server.sent[2:]) == [[3], [4]]


@pytest.mark.parametrize("error", [AutoReconnect("gone"), OperationFailure("refused")])
def test_a_lone_thread_that_fails_sends_nothing_again(near: Threads, error: Exception) -> None:
    near.server.error = error
    assert answer_of(near.submit(document(1))) is error
    assert near.server.sent == [[1]]


@pytest.mark.parametrize("error", [AutoReconnect("gone"), OperationFailure("refused")])
def test_a_thread_that_waited_alone_and_fails_sends_nothing_again(
    near: Threads, error: Exception
) -> None:
    first, let_go = near.under_way(1)
    later = near.begin(document(2))
    near.server.error = error
    let_go()
    assert [answer_of(first), answer_of(later)] == [error, error]
    assert near.server.sent == [[1], [2]]
    near.server.error = None
    assert answer_of(near.submit(document(3))) == []
    assert near.all_went_at_once()


def test_after_a_failure_threads_go_together_again(near: Threads) -> None:
    near.server.error = AutoReconnect("gone")
    assert answer_of(near.submit(document(0))) is near.server.error
    near.server.error = None
    first, let_go = near.under_way(1)
    later = [near.begin(document(key)) for key in (2, 3)]
    let_go()
    assert [answer_of(one) for one in (first, *later)] == [[]] * 3
    assert near.server.sent == [[0], [1], [2, 3]]


def test_an_interrupt_while_a_thread_waits_does_not_hold_up_those_that_come_later(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if blocking:
                raise KeyboardInterrupt
            return False

    with monkeypatch.context() as patched:
        patched.setitem(near.gathering._under_way, "writes", Interrupted())
        assert isinstance(answer_of(near.begin(document(0))), KeyboardInterrupt)
    first, let_go = near.under_way(1)
    later = [near.begin(document(key)) for key in (2, 3)]
    let_go()
    assert [answer_of(one) for one in (first, *later)] == [[]] * 3
    assert near.server.sent == [[1], [2, 3]]


def test_an_interrupt_while_the_server_works_does_not_hold_up_those_that_come_later(
    near: Threads,
) -> None:
    insert = near.server.insert

    def interrupted(role: Role, documents: Sequence[Document]) -> list[int]:
        near.gathering._insert = insert
        raise KeyboardInterrupt

    near.gathering._insert = interrupted
    assert isinstance(answer_of(near.submit(document(0))), KeyboardInterrupt)
    first, let_go = near.under_way(1)
    later = [near.begin(document(key)) for key in (2, 3)]
    let_go()
    assert [answer_of(one) for one in (first, *later)] == [[]] * 3
    assert near.server.sent == [[1], [2, 3]]


@settings(max_examples=examples(50))
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_each_thread_is_told_which_of_its_own_documents_were_taken(
    drawn: list[list[int]], before: set[int]
) -> None:
    calls: list[tuple[Role, list[Document]]]
    calls = [("writes", [document(key) for key in keys]) for keys in drawn]
    with sharing(near=True) as threads:
        server = threads.server
        server.stored = {("writes", key): document(key) for key in before}
        first, let_go = threads.under_way("first")
        later = [threads.begin(*documents) for _, documents in calls]
        let_go()
        assert answer_of(first) == []
        answers = [answer_of(one) for one in later]
    assert server.sent == [["first"], [key for keys in drawn for key in keys]]
    assert is_right(server, {("writes", key) for key in {*before, "first"}}, calls, answers)


def test_documents_that_no_thread_is_left_to_send_are_waited_for_once(
    near: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gathering, "_WAIT_S", 0)
    # As a fork leaves it, or an interrupt just before the sender began.
    near.gathering._open["writes"] = _gathering._Batch(), threading.Event()
    assert near.gathering.insert("writes", [document(1)]) == []
    assert near.gathering._open == {}
    assert near.server.sent == [[1]]
