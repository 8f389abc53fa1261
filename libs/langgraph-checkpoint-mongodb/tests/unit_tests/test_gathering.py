"""Inserts of several tasks in one command: whose documents go together, who gets which answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.errors import AutoReconnect, OperationFailure

from langgraph.checkpoint.mongodb._database import gathering as _gathering
from langgraph.checkpoint.mongodb._database.gathering import Gathering
from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout.keys import Document
from tests.unit_tests.keyed_server import ROLES, Server, document, is_right

CALLS = st.lists(
    st.tuples(st.sampled_from(ROLES), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
    min_size=1,
    max_size=6,
)
BEFORE = st.sets(st.tuples(st.sampled_from(ROLES), st.integers(0, 5)))


def gathered(server: Server) -> Gathering:
    return Gathering(server.insert_async)


async def all_of(gathering: Gathering, *keys: Any, role: Role = "writes") -> list[Any]:
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

    gathering = Gathering(insert)
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
    calls = [(role, [document(key) for key in keys]) for role, keys in drawn]
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

    gathering = Gathering(insert)
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
    tasks = [asyncio.create_task(gathering.insert("writes", [document(key)])) for key in (1, 2)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    cancelled = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in cancelled] == [asyncio.CancelledError] * 2
    for _ in range(5):  # The server answers, and the answer comes back.
        await asyncio.sleep(0)
    assert server.sent == [[1, 2]]
    del tasks, task
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

    assert await all_of(Gathering(insert), 0, 1, 2) == [[], [], []]
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
    assert [(type(answer), str(answer)) for answer in answers] == [(AutoReconnect, "gone")] * 3
    assert len({id(answer) for answer in answers}) == 3
    assert server.sent == [[0, 1, 2]]


async def test_what_a_task_alone_wants_to_insert_is_not_sent_once_it_is_cancelled() -> None:
    server = Server()
    gathering = gathered(server)
    task = asyncio.create_task(gathering.insert("writes", [document(1)]))
    await asyncio.sleep(0)
    task.cancel()
    other = asyncio.create_task(gathering.insert("writes", [document(2)]))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await other == []
    assert server.sent == [[2]]


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
