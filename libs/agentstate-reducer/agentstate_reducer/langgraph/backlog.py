"""What waits for hooks that fail: where it is stored, and when it is moved.

The turns of a batch stay where they were pruned, and the newest outbox only names that place. So
that neither the places nor the batches become many, those of about the same number of turns are
brought together: each turn is moved a few times in all, however long a hook stays down.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from ..delivery import Batch, batches_of
from ..keys import namespace_text
from .outbox import read_outbox
from .ports import Port

logger = logging.getLogger(__name__)

PLACES = 8
"""How many places with about as many turns there are before those are brought together."""


class Backlog:
    """The batches that wait for hooks in one thread and namespace.

    Args:
        port: The inner saver.
        config: With the thread and the checkpoint namespace.
        channel: The outbox's reserved channel.
    """

    def __init__(self, port: Port, config: RunnableConfig, channel: str) -> None:
        self._port = port
        self._config = config
        self._channel = channel

    async def fill(self, batch: Batch) -> bool:
        """Read the turns of a batch, if that was not done yet.

        Args:
            batch: The batch.

        Returns:
            Whether they are there. They are not if the checkpoint was deleted by a saver that is
            not wrapped.
        """
        if batch.turns or batch.at is None:
            return True
        stored = await self._port.get(self.place(batch.at))
        writes = None if stored is None else stored.pending_writes
        outbox = read_outbox(writes, self._channel, batch.at)
        for other in outbox.batches if outbox is not None else []:
            if other.id == batch.id:
                batch.turns = other.turns
        if batch.turns:
            return True
        logger.error(
            "%d messages of namespace %r that waited for a hook are gone with checkpoint %s of "
            "thread %r: prune threads through ReducingSaver, which keeps them",
            batch.count,
            batch.namespace,
            batch.at,
            self._config["configurable"]["thread_id"],
        )
        return False

    def place(self, checkpoint_id: str) -> RunnableConfig:
        """Return the config of a checkpoint.

        Args:
            checkpoint_id: Its id.
        """
        conf = self._config["configurable"]
        return {
            "configurable": {
                "thread_id": conf["thread_id"],
                "checkpoint_ns": conf.get("checkpoint_ns") or "",
                "checkpoint_id": checkpoint_id,
            }
        }

    async def brought_together(
        self, batches: Sequence[Batch], names: set[str], longest: int
    ) -> Moved:
        """Return batches to store instead, fewer and in fewer places.

        Args:
            batches: What waits, oldest first.
            names: Names of the hooks there are.
            longest: How many turns a batch has at the most.
        """
        moved = Moved(list(batches), [])
        for batch in _to_move(batches):
            if not batch.claim((batch.wanted | names) - batch.done):
                continue
            moved.given_up.append(batch)
            if not await self.fill(batch):
                moved.given_up.remove(batch)
                batch.taking.clear()
        if moved.given_up:
            moved.batches = _joined(batches, moved.given_up, longest)
        return moved


class Moved:
    """Batches that were brought together.

    Args:
        batches: All that wait now.
        given_up: Those that they stand for. Nobody hands them over until `undo`.
    """

    def __init__(self, batches: list[Batch], given_up: list[Batch]) -> None:
        self.batches = batches
        self.given_up = given_up

    def undo(self) -> None:
        """Give back what could not be stored."""
        for batch in self.given_up:
            batch.taking.clear()


def _to_move(batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches of the lowest levels that have too many places."""
    at: dict[str, list[Batch]] = defaultdict(list)
    for batch in batches:
        if batch.at is not None:
            at[batch.at].append(batch)
    levels: dict[int, list[list[Batch]]] = defaultdict(list)
    for together in at.values():
        count = sum(batch.count for batch in together)
        levels[max(count, 1).bit_length() // 3].append(together)
    chosen: list[list[Batch]] = []
    for level in sorted(levels):
        if len(levels[level]) + bool(chosen) < PLACES:
            break
        chosen += levels[level]
    return [batch for together in chosen for batch in together if not batch.taking]


def _joined(batches: Sequence[Batch], moving: Sequence[Batch], longest: int) -> list[Batch]:
    groups: list[list[Batch]] = []
    for batch in batches:
        moves = any(batch is other for other in moving)
        if moves and groups and groups[-1][0] in moving and _alike(groups[-1][0], batch):
            groups[-1].append(batch)
        else:
            groups.append([batch])
    joined: list[Batch] = []
    for group in groups:
        first = group[0]
        if not any(first is other for other in moving):
            joined.append(first)
            continue
        turns = [turn for batch in group for turn in batch.turns]
        for made in batches_of(turns, first.namespace, first.wanted, longest, first.id):
            made.done = set(first.done)
            made.attempts = dict(first.attempts)
            joined.append(made)
    return joined


def _alike(one: Batch, other: Batch) -> bool:
    return bool(_state(one) == _state(other))


def _state(batch: Batch) -> Any:
    return namespace_text(batch.namespace), batch.wanted, batch.done, batch.attempts
