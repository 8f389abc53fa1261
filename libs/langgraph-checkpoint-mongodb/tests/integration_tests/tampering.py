"""Stand between a saver and its port: count commands, fail one, or act in between."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb._database.port import Update, Updated
from tests.face import Face

COMMANDS = frozenset(
    {
        *("find", "find_joined", "insert", "update", "update_many", "delete", "aggregate"),
        *("indexes", "create_indexes", "drop_index", "expire_after"),
    }
)

Moment = Literal["before", "half", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "half", "after")


class InjectedFault(AutoReconnect):
    """The connection broke, by a test's wish."""


@dataclass(frozen=True)
class Step:
    """A command that a saver is about to send, or has sent.

    Attributes:
        number: Its place among the commands, from 0.
        name: The port's method.
        role: The collection.
        sent: Whether the server has acted on it.
    """

    number: int
    name: str
    role: str
    sent: bool

    def is_(self, name: str, role: str, *, sent: bool) -> bool:
        """Whether it is this command at this moment."""
        return (self.name, self.role, self.sent) == (name, role, sent)


Hook = Callable[[Step], None]


class TamperedPort:
    """A port that tells a hook of every command, before and after it.

    Args:
        port: The port that does the work.
        hook: Called with each step; what it raises, the operation gets.
        one_by_one: Send each update of a bulk by itself, the hook called in between: a
            server, too, lets others in between the updates of one command.
        half_of: Of this command only a part is done, the hook not asked.
    """

    def __init__(
        self, port: Any, hook: Hook, *, one_by_one: bool = False, half_of: int | None = None
    ) -> None:
        self._port, self._hook = port, hook
        self._one_by_one, self._half_of = one_by_one, half_of
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if name not in COMMANDS:
            return attribute

        async def command(role: str, *args: Any, **kwargs: Any) -> Any:
            if name == "update" and self._one_by_one:
                return await self._update_one_by_one(role, *args)
            number = self.count
            self.count += 1
            self._hook(Step(number, name, role, sent=False))
            if number == self._half_of:
                await self._do_half(name, role, *args)
            answer = await attribute(role, *args, **kwargs)
            self._hook(Step(number, name, role, sent=True))
            return answer

        return command

    async def _update_one_by_one(self, role: str, updates: Sequence[Update]) -> Updated:
        inserted = missed = 0
        for one in updates:
            number = self.count
            self.count += 1
            self._hook(Step(number, "update", role, sent=False))
            done = await self._port.update(role, [one])
            inserted += done.inserted
            missed += done.missed
            self._hook(Step(number, "update", role, sent=True))
            if done.stopped:
                return Updated(inserted, stopped=True, missed=missed)
        return Updated(inserted, missed=missed)

    async def _do_half(self, name: str, role: str, *args: Any) -> None:
        """Do a part of what a command does, then break."""
        if name in ("insert", "update") and len(args[0]) > 1:
            await getattr(self._port, name)(role, args[0][: len(args[0]) // 2])
        elif name in ("delete", "update_many"):
            found = await self._port.find(role, args[0], {"_id": 1})
            ids = [one["_id"] for one in found[: len(found) // 2]]
            await getattr(self._port, name)(role, {"_id": {"$in": ids}}, *args[1:])
        elif name == "aggregate" and "$merge" in args[0][-1]:
            await self._port.aggregate(role, [*args[0][:-1], {"$limit": 1}, args[0][-1]])
        raise InjectedFault(f"in the middle of {name} on {role}")


@contextlib.contextmanager
def tampered(face: Face, hook: Hook = lambda step: None, **kwargs: Any) -> Iterator[TamperedPort]:
    """Tamper with a face's saver while the context is open."""
    saver: Any = face.saver
    port = saver._port
    saver._port = TamperedPort(port, hook, **kwargs)
    try:
        yield saver._port
    finally:
        saver._port = port


def failing(face: Face, number: int, moment: Moment) -> Any:
    """Tamper with a face's saver: its `number`-th command fails."""

    def fail(step: Step) -> None:
        if step.number == number and step.sent == (moment == "after"):
            raise InjectedFault(f"{moment} {step.name} on {step.role}")

    if moment == "half":
        return tampered(face, half_of=number)
    return tampered(face, fail)


class CancelledAt:
    """Awaits a coroutine and cancels the task at its `number`-th suspension, from 1.

    Attributes:
        suspensions: How often it suspended so far.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], number: int) -> None:
        self._work, self._number = work, number
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        go_on: Callable[[], Any] = functools.partial(self._work.send, None)
        while True:
            try:
                waited_for = go_on()
            except StopIteration as done:
                return done.value
            self.suspensions += 1
            if self.suspensions == self._number:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                go_on = functools.partial(self._work.send, (yield waited_for))
            except BaseException as error:  # what the loop throws in is the coroutine's
                go_on = functools.partial(self._work.throw, error)


def again(face: Face) -> Face:
    """Give a face a new saver, which remembers nothing, on the client it has."""
    saver: Any = type(face.saver)
    face.saver = saver(face.client, face.saver.db.name, create_indexes=False)
    return face
