"""Inserts of several calls in one command: whose documents go together, who gets which answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import sys
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
from langgraph.checkpoint.mongodb._gathering import AsyncGathering, SyncGathering
from langgraph.checkpoint.mongodb._port import Role

ROLES: tuple[Role, ...] = ("checkpoints", "writes", "values")
# Longer than a test takes, unless something waits for ever.
AT_MOST_S = 10.0


def document(key: int | str, **fields: Any) -> Document:
    return {"key": key, **fields}


class Server:
    """Stores documents by their keys, and records the commands.

    Attributes:
        commands: The keys of each insert, with the collection.
        stored: What is stored, by collection and key.
        error: Raised instead of storing anything.
        refuses: The key that fails a command which carries it: the others are stored.
    """

    def __init__(self) -> None:
        self.commands: list[tuple[Role, list[Any]]] = []
        self.stored: dict[tuple[Role, Any], Document] = {}
        self.error: Exception | None = None
        self.refuses: Any = None
        self._lock = threading.Lock()

    def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        keys = [one["key"] for one in documents]
        with self._lock:
            self.commands.append((role, keys))
            if self.error is not None:
                raise self.error
            taken = []
            for place, one in enumerate(documents):
                if one["key"] == self.refuses:
                    continue
                if self.stored.setdefault((role, one["key"]), one) is not one:
                    taken.append(place)
            if self.refuses in keys:
                raise OperationFailure("refused")
            return taken

    async def insert_async(self, role: Role, documents: Sequence[Document]) -> list[int]:
        await asyncio.sleep(0)
        return self.insert(role, documents)

    @property
    def sent(self) -> list[list[Any]]:
        """The keys of each insert."""
        return [keys for _, keys in self.commands]


def is_right(
    server: Server, before: set[Any], calls: Sequence[tuple[Role, list[Document]]], answers: Any
) -> bool:
    """Whether each call was told exactly which of its own documents are not what is stored."""
    told = [
        [place for place, one in enumerate(documents) if server.stored[role, one["key"]] is not one]
        for role, documents in calls
    ]
    keys = {(role, one["key"]) for role, documents in calls for one in documents}
    return told == answers and keys | before == server.stored.keys()


def calls_of(drawn: list[tuple[Role, list[int]]]) -> list[tuple[Role, list[Document]]]:
    return [(role, [document(key) for key in keys]) for role, keys in drawn]


CALLS = st.lists(
    st.tuples(st.sampled_from(ROLES), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
    min_size=1,
    max_size=6,
)
BEFORE = st.sets(st.tuples(st.sampled_from(ROLES), st.integers(0, 5)))


# ------------------------------------------------------------------ tasks


def gathered(server: Server) -> AsyncGathering:
    return AsyncGathering(server.insert_async)


async def all_of(gathering: AsyncGathering, *keys: Any, role: Role = "writes") -> list[Any]:
    """Let tasks insert these keys at the same moment, one each; return answers and errors."""
    work = [gathering.insert(role, [document(key)]) for key in keys]
    return await asyncio.gather(*work, return_exceptions=True)


async def test_a_lone_task_sends_its_documents_alone() -> None:
    server = Server()
    documents = [document(1), document(2)]
    assert await gathered(server).insert("writes", documents) == []
    assert server.commands == [("writes", [1, 2])]


async def test_a_lone_task_does_not_wait_for_others_to_come() -> None:
    server = Server()
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await gathered(server).insert("writes", [document(1)])
    counting.cancel()
    # Its own task, the server's answer, and the way back.
    assert rounds <= 4


async def test_tasks_that_are_ready_in_the_same_round_send_one_command() -> None:
    server = Server()
    assert await all_of(gathered(server), 1, 2, 3) == [[], [], []]
    assert server.sent == [[1, 2, 3]]


async def test_tasks_one_after_another_send_a_command_each() -> None:
    server = Server()
    gathering = gathered(server)
    for key in (1, 2, 3):
        await gathering.insert("writes", [document(key)])
    assert server.sent == [[1], [2], [3]]


async def test_a_task_does_not_wait_for_a_command_that_is_under_way() -> None:
    server, begun, answer = Server(), asyncio.Event(), asyncio.Event()

    async def insert(role: Role, documents: Sequence[Document]) -> list[int]:
        begun.set()
        taken = server.insert(role, documents)
        if documents[0]["key"] == "slow":
            await answer.wait()
        return taken

    gathering = AsyncGathering(insert)
    slow = asyncio.create_task(gathering.insert("writes", [document("slow")]))
    await begun.wait()
    assert await gathering.insert("writes", [document("fast")]) == []
    assert not slow.done()
    answer.set()
    assert await slow == []
    assert server.sent == [["slow"], ["fast"]]


async def test_documents_of_different_collections_never_go_together() -> None:
    server = Server()
    gathering = gathered(server)
    work = [gathering.insert(role, [document(n)]) for n in (1, 2) for role in ROLES]
    await asyncio.gather(*work)
    assert sorted(server.commands) == sorted((role, [1, 2]) for role in ROLES)


async def test_what_is_large_goes_alone_and_leaves_the_others_together() -> None:
    server = Server()
    gathering = gathered(server)
    sizes = {
        "a": 1,
        "as large as may be": _gathering._BYTES,
        "large": _gathering._BYTES + 1,
        "b": 1,
    }
    await asyncio.gather(
        *(gathering.insert("values", [document(key, value=bytes(n))]) for key, n in sizes.items())
    )
    assert sorted(server.sent) == [["a", "as large as may be", "b"], ["large"]]


async def test_several_documents_are_large_together() -> None:
    server = Server()
    gathering = gathered(server)
    half = bytes(_gathering._BYTES // 2 + 1)
    large = [document("x", value=half), document("y", value=half)]
    await asyncio.gather(
        *(gathering.insert("values", one) for one in ([document("a")], large, [document("b")]))
    )
    assert sorted(server.sent) == [["a", "b"], ["x", "y"]]


async def test_a_large_insert_answers_the_places_that_were_taken() -> None:
    server = Server()
    gathering = gathered(server)
    await gathering.insert("values", [document(2)])
    large = [document(key, value=bytes(_gathering._BYTES)) for key in (1, 2, 3)]
    assert await gathering.insert("values", large) == [1]


@given(CALLS, BEFORE, st.data())
def test_each_task_is_told_which_of_its_own_documents_were_taken(
    drawn: list[tuple[Role, list[int]]], before: set[tuple[Role, int]], data: st.DataObject
) -> None:
    server = Server()
    server.stored = {(role, key): document(key) for role, key in before}
    calls = calls_of(drawn)
    rounds = [data.draw(st.integers(0, 3)) for _ in calls]

    async def main() -> list[list[int]]:
        gathering = gathered(server)

        async def insert(wait: int, role: Role, documents: list[Document]) -> list[int]:
            for _ in range(wait):
                await asyncio.sleep(0)
            return await gathering.insert(role, documents)

        return await asyncio.gather(
            *(insert(wait, *call) for wait, call in zip(rounds, calls, strict=True))
        )

    assert is_right(server, before, calls, asyncio.run(main()))
    assert sum(map(len, server.sent)) == sum(len(documents) for _, documents in calls)
    if len(set(rounds)) == 1:
        assert len(server.commands) == len({role for role, _ in calls})


@pytest.mark.parametrize("place", range(3))
async def test_a_task_that_is_cancelled_leaves_the_documents_of_the_others(place: int) -> None:
    server = Server()
    gathering = gathered(server)
    tasks = [asyncio.create_task(gathering.insert("writes", [document(n)])) for n in range(3)]
    await asyncio.sleep(0)
    tasks[place].cancel()
    answers: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers.pop(place), asyncio.CancelledError)
    assert answers == [[], []]
    assert server.sent == [[0, 1, 2]]


@pytest.mark.parametrize("place", range(3))
async def test_a_task_that_is_cancelled_while_the_server_works_fails_no_other(place: int) -> None:
    server, begun, answer = Server(), asyncio.Event(), asyncio.Event()

    async def insert(role: Role, documents: Sequence[Document]) -> list[int]:
        begun.set()
        await answer.wait()
        return server.insert(role, documents)

    gathering = AsyncGathering(insert)
    tasks = [asyncio.create_task(gathering.insert("writes", [document(n)])) for n in range(3)]
    await begun.wait()
    tasks[place].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[place]
    answer.set()
    del tasks[place]
    assert await asyncio.gather(*tasks) == [[], []]
    assert server.sent == [[0, 1, 2]]


async def test_an_error_that_nobody_waits_for_is_not_reported_as_forgotten() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server = Server()
    server.error = AutoReconnect("gone")
    gathering = gathered(server)
    task = asyncio.create_task(gathering.insert("writes", [document(1)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(5):  # The server answers, and the answer comes back.
        await asyncio.sleep(0)
    assert server.sent == [[1]]
    del task
    gc.collect()
    assert reported == []


@pytest.mark.parametrize("guilty", range(3))
async def test_only_the_task_fails_whose_documents_the_server_refuses(guilty: int) -> None:
    server = Server()
    server.refuses = guilty
    answers = await all_of(gathered(server), 0, 1, 2)
    assert isinstance(answers[guilty], OperationFailure)
    assert [isinstance(answer, list) for answer in answers].count(True) == 2
    assert server.sent[0] == [0, 1, 2]
    assert sorted(server.sent[1:]) == [[0], [1], [2]]
    assert {key for _, key in server.stored} == {0, 1, 2} - {guilty}


async def test_documents_that_fail_together_before_any_is_sent_are_sent_one_by_one() -> None:
    server = Server()

    async def insert(role: Role, documents: Sequence[Document]) -> list[int]:
        if len(documents) > 1:
            raise OperationFailure("one of them is too large")
        return server.insert(role, documents)

    assert await all_of(AsyncGathering(insert), 0, 1, 2) == [[], [], []]
    assert sorted(server.sent) == [[0], [1], [2]]


async def test_a_lone_task_that_fails_sends_nothing_again() -> None:
    server = Server()
    server.error = OperationFailure("refused")
    (answer,) = await all_of(gathered(server), 1)
    assert answer is server.error
    assert server.sent == [[1]]


async def test_a_lost_connection_reaches_every_task_and_nothing_is_sent_again() -> None:
    server = Server()
    server.error = AutoReconnect("gone")
    answers = await all_of(gathered(server), 0, 1, 2)
    assert all(answer is server.error for answer in answers)
    assert server.sent == [[0, 1, 2]]


async def test_after_a_failure_tasks_go_together_again() -> None:
    server = Server()
    gathering = gathered(server)
    server.error = AutoReconnect("gone")
    await all_of(gathering, 0, 1)
    server.error = None
    assert await all_of(gathering, 0, 1) == [[], []]
    assert server.sent == [[0, 1], [0, 1]]


def test_when_all_tasks_were_cancelled_at_once_the_next_insert_is_stored() -> None:
    server = Server()

    async def main() -> list[int]:
        gathering = gathered(server)
        task = asyncio.create_task(gathering.insert("writes", [document(1)]))
        await asyncio.sleep(0)
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await gathering.insert("writes", [document(2)])

    assert asyncio.run(main()) == []
    assert server.sent == [[2]]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks need Python 3.12")
def test_tasks_that_begin_at_once_go_together_too() -> None:
    server = Server()

    async def main() -> list[Any]:
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009  not in Python 3.11
        asyncio.get_running_loop().set_task_factory(factory)
        return await all_of(gathered(server), 0, 1, 2)

    assert asyncio.run(main()) == [[], [], []]
    assert server.sent == [[0, 1, 2]]


# ------------------------------------------------------------------ threads


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


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_each_thread_is_told_which_of_its_own_documents_were_taken(
    drawn: list[list[int]], before: set[int]
) -> None:
    calls: list[tuple[Role, list[Document]]] = calls_of([("writes", keys) for keys in drawn])
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
