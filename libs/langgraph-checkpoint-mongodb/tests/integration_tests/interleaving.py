"""Several savers' operations, each stopped before every command, in any order.

An operation is a coroutine over a port. Over a port that suspends before each command, a
test decides which operation takes the next step: no threads, no luck.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb._database.port import Update, Updated
from langgraph.checkpoint.mongodb._operations.context import Context
from tests.integration_tests.tampering import COMMANDS


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


class SteppingPort:
    """A sync port that suspends before each command, and between the updates of one."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if name not in COMMANDS:
            return attribute

        async def command(role: str, *args: Any, **kwargs: Any) -> Any:
            if name == "update":
                return await self._update(role, *args)
            await _Pause()
            return await attribute(role, *args, **kwargs)

        return command

    async def _update(self, role: str, updates: Sequence[Update]) -> Updated:
        # A server, too, lets others in between the updates of one command.
        inserted = missed = 0
        for one in updates:
            await _Pause()
            done = await self._port.update(role, [one])
            inserted += done.inserted
            missed += done.missed
            if done.stopped:
                return Updated(inserted, stopped=True, missed=missed)
        return Updated(inserted, missed=missed)


class Party:
    """An operation of one process, run a command at a time.

    Args:
        saver: The process's saver.
        operation: Given what a call works with, answers the operation's coroutine.

    Attributes:
        done: Whether it has ended: answered, failed or crashed.
        acknowledged: Whether it answered.
        error: What it raised.
    """

    def __init__(
        self, saver: MongoDBSaver, operation: Callable[[Context], Coroutine[Any, Any, Any]]
    ) -> None:
        context = saver._context()
        port: Any = SteppingPort(context.io)
        self._work = operation(replace(context, io=port))
        self.done = self.acknowledged = False
        self.error: Exception | None = None

    def step(self) -> None:
        """Send the next command, and go on up to the one after it."""
        if self.done:
            return
        try:
            self._work.send(None)
        except StopIteration:
            self.done = self.acknowledged = True
        except Exception as error:
            self.done, self.error = True, error

    def crash(self) -> None:
        """End without another command."""
        self._work.close()
        self.done = True

    def finish(self) -> None:
        """Run to the end."""
        while not self.done:
            self.step()
