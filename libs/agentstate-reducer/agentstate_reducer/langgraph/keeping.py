"""Keeping what waits for hooks when the checkpoints beside which it is stored are deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from ..delivery import Batch, Turn
from ..keys import namespace_text, turn_digest
from ..messages import UnknownMessageShape
from .delta import is_snapshot
from .outbox import Outbox, read_outbox, write_acknowledgement, write_outbox
from .ports import Port


@dataclass
class _Namespace:
    """What stays of a checkpoint namespace.

    Attributes:
        newest: The newest checkpoint that stays.
        outboxes: By checkpoint, the outboxes that count.
        window: The messages of the newest checkpoint.
    """

    newest: str = ""
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    window: list[Any] = field(default_factory=list)

    def known(self, taken: dict[str, Any]) -> list[str]:
        """Return the digests of what the newest checkpoint has although it was handed over.

        Args:
            taken: By digest, the memory namespaces of what was pruned in the thread.
        """
        places = {namespace_text(namespace) for namespace in taken.values()}
        try:
            digests = [turn_digest(message, place) for place in places for message in self.window]
        except UnknownMessageShape:
            digests = []
        newest = max(self.outboxes, default="")
        before = self.outboxes[newest].known if newest else []
        return list(dict.fromkeys([*before, *(match for match in digests if match in taken)]))

    def waiting(self) -> dict[str, Batch]:
        """Return by id the batches that a hook lacks, oldest first."""
        found: dict[str, Batch] = {}
        for at in sorted(self.outboxes, reverse=True):
            found = {**{b.id: b for b in self.outboxes[at].waiting()}, **found}
            if self.outboxes[at].whole:
                break
        return found


async def keep_waiting(
    port: Port, thread: str, channel: str, runs: Collection[str] | None = None
) -> None:
    """Store what waits in a thread beside its newest checkpoint, before older ones are deleted.

    It goes to the namespace of the graph itself: those of subgraphs may be deleted whole.

    Args:
        port: The inner saver.
        thread: The thread.
        channel: The outbox's reserved channel.
        runs: Runs whose checkpoints are to be deleted. `None`: all but the newest checkpoint are.
    """
    survey = _Survey(channel, runs)
    await port.each({"configurable": {"thread_id": thread}}, None, survey.visit)
    places = survey.namespaces
    main = min((name for name, place in places.items() if place.newest), default=None)
    if main is None:
        return
    target = places[main]
    batches, moved = [], []
    for name, place in sorted(places.items()):
        for batch in place.waiting().values():
            stays = batch.at == target.newest if runs is None else batch.at in survey.staying
            if stays and name == main:
                batches.append(batch)
                continue
            batch.turns = survey.turns.get((name, str(batch.at), batch.id), [])
            batch.at = None
            batches.append(batch)
            moved.append((name, batch))
    known = target.known(survey.taken)
    if not moved and not known:
        return
    writes, task = write_outbox(channel, Outbox(batches, known, thread))
    await port.put_writes(_config(thread, main, target.newest), writes, task)
    for name, batch in moved:
        if name != main:  # it is handed over from the other namespace now
            at = max(places[name].outboxes)
            for hook in sorted(batch.wanted - batch.done):
                ack, task = write_acknowledgement(channel, batch, hook)
                await port.put_writes(_config(thread, name, at), ack, task)


async def threads_of(port: Port, runs: Collection[str]) -> list[str]:
    """Return the threads that have checkpoints of some runs.

    Args:
        port: The inner saver.
        runs: The ids of the runs.
    """
    found: dict[str, None] = {}
    for run in runs:
        await port.each(
            None,
            {"run_id": run},
            lambda stored: found.setdefault(str(stored.config["configurable"]["thread_id"])),
        )
    return list(found)


class _Survey:
    """What a thread has, over all its namespaces.

    Args:
        channel: The outbox's reserved channel.
        runs: Runs whose checkpoints are to be deleted, if that is it.
    """

    def __init__(self, channel: str, runs: Collection[str] | None) -> None:
        self._channel = channel
        self._key = channel.partition(":")[2]
        self._runs = set(runs or ())
        self.namespaces: dict[str, _Namespace] = {}
        self.turns: dict[tuple[str, str, str], list[Turn]] = {}
        self.staying: set[str] = set()
        self.taken: dict[str, Any] = {}

    def visit(self, stored: CheckpointTuple) -> None:
        """Take in a checkpoint.

        Args:
            stored: As the inner saver returns it.
        """
        conf = stored.config["configurable"]
        name, id_ = conf.get("checkpoint_ns") or "", stored.checkpoint["id"]
        place = self.namespaces.setdefault(name, _Namespace())
        stays = (stored.metadata or {}).get("run_id") not in self._runs
        outbox = read_outbox(stored.pending_writes, self._channel, id_)
        if stays:
            if id_ > place.newest:
                messages: Any = stored.checkpoint["channel_values"].get(self._key)
                messages = messages.value if is_snapshot(messages) else messages
                place.newest, place.window = id_, messages if isinstance(messages, list) else []
            self.staying.add(id_)
        if outbox is None or outbox.waiting_for:
            return
        for batch in outbox.batches:
            if batch.at == id_:
                self.turns[name, id_, batch.id] = batch.turns
                with_ids = [turn.match for turn in batch.turns if turn.key == turn.match]
                self.taken.update(dict.fromkeys(with_ids, batch.namespace))
        if stays:
            place.outboxes[id_] = outbox


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    conf: dict[str, Any] = {
        "thread_id": thread,
        "checkpoint_ns": namespace,
        "checkpoint_id": checkpoint_id,
    }
    return {"configurable": conf}
