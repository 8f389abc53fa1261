"""Saving a checkpoint: reduce, outbox, put, hooks, acknowledgement, in this order."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from ..delivery import Batch, Turn, batches_of, deliver, named
from ..keys import digest, namespace_text, turn_digest
from ..merging import as_sent
from ..messages import field as field_of
from ..reducer import MessageReducer
from ..shorten import in_order
from .backlog import Backlog, Moved
from .delta import counts_from_the_first, is_delta, is_snapshot, with_messages
from .finding import find, handed_over_around
from .order import Order
from .outbox import (
    Outbox,
    channel_name,
    read_outbox,
    write_acknowledgement,
    write_failure,
    write_outbox,
    write_pointer,
)
from .ports import Port
from .streams import Held, Line, Mark, Split, Streams, held, mark, next_line, split

logger = logging.getLogger(__name__)


STEPS_WITHOUT_MESSAGES = 2
"""After so many steps of a thread a graph that keeps messages has written some."""


@dataclass
class Core:
    """What the saves of one wrapper share; copies of the wrapper share it too.

    Attributes:
        reducer: The reducer.
        messages_key: The messages channel.
        streams: What is remembered of the threads.
        order: Lets one save of a thread plan and store after another.
        warned_of_key: Whether it was said that checkpoints have no such channel.
    """

    reducer: MessageReducer
    messages_key: str
    streams: Streams = field(default_factory=Streams)
    order: Order = field(default_factory=Order)
    warned_of_key: bool = False

    @property
    def channel(self) -> str:
        """The reserved channel of the outbox."""
        return channel_name(self.messages_key)

    def saw(self, config: RunnableConfig, stored: CheckpointTuple | None) -> None:
        """Note that a checkpoint was read.

        Args:
            config: What was asked for.
            stored: What was found.
        """
        waiting_for: set[str] = set()
        if not self.reducer.config.on_prune and stored is not None:
            outbox = read_outbox(stored.pending_writes, self.channel, stored.checkpoint["id"])
            waiting_for = set() if outbox is None else outbox.lacking()
        stream = self.streams.of(config) if waiting_for else self.streams.known(config)
        if stream is not None:
            stream.waiting_for = waiting_for
            found = None if stored is None else stored.checkpoint["id"]
            stream.saw(config["configurable"].get("checkpoint_id"), found)


@dataclass
class Plan:
    """What a save is going to do.

    Attributes:
        stored: The messages to store; `None` to store the checkpoint as it is.
        turns: Turns for the hooks, oldest first.
        line: The line to remember.
        used_what_is_known: Whether what other branches handed over need not be looked for again.
    """

    stored: list[Any] | None
    turns: list[Turn]
    line: Line | None
    used_what_is_known: bool = True


class Save:
    """One save.

    Args:
        core: What the wrapper's saves share.
        port: The inner saver.
        config: The config; its checkpoint id is the parent's.
        checkpoint: The checkpoint to store.
        metadata: Its metadata.
        new_versions: The versions of the channels that it writes.
        namespace: Where pruned turns go.
    """

    def __init__(
        self,
        core: Core,
        port: Port,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        namespace: Any,
    ) -> None:
        self.core = core
        self.port = port
        self.config = config
        self.checkpoint = checkpoint
        self.metadata = metadata
        self.new_versions = new_versions
        self.namespace = namespace
        self.stream = core.streams.of(config)
        self.parent: str | None = config["configurable"].get("checkpoint_id")
        self.line = self.stream.line(self.parent)
        hooks = core.reducer.config.on_prune
        # Without hooks, what is pruned goes to those of others for which something waits.
        self.names = {name for name, _ in named(hooks)} or self.stream.waiting_for
        self.backlog = Backlog(port, config, core.channel)
        self.thread = str(config["configurable"]["thread_id"])
        self.moved = Moved([], [])
        self.said: dict[str, set[str]] = {}
        self.mark_place = False
        self.has_outbox = False
        self.pruned = 0

    async def run(self) -> RunnableConfig:
        """Store the checkpoint.

        Returns:
            What the inner saver's put returns.
        """
        self.stream.was_sent(
            self.checkpoint["channel_values"], self.metadata, self.core.messages_key
        )
        if self.core.messages_key not in self.new_versions:
            self._warn_of_key()
            return await self._pass_on()
        await self.port.wait(self.stream)
        if not self.names:
            return (await self._store())[0]
        async with self.port.hold(self.core.order, self.thread):
            stored, batches = await self._store()
        await self.port.finish(self.stream, self._deliver(batches))
        return stored

    async def _store(self) -> tuple[RunnableConfig, list[Batch]]:
        """Plan, store outbox and checkpoint, and remember what the outbox has."""
        try:
            known = await self._look() if self.names else Counter[str]()
            plan = await self._plan(known)
            batches = await self._write_outbox(plan.turns, plan.line) if self.names else []
            stored = await self._put(plan.stored)
        except BaseException:
            self.stream.fresh = False  # whether the checkpoint is stored will be seen next time
            self.moved.undo()
            raise
        self.stream.saved(self.checkpoint["id"], plan.line)
        self.core.reducer.counts.pruned += self.pruned
        if self.names:
            self._remember(plan.turns)
            self.stream.fresh = plan.used_what_is_known
            self._outbox_is_stored(batches)
            self.stream.keep(self.names, batches)
        return stored, batches

    async def _pass_on(self) -> RunnableConfig:
        """Store a checkpoint that leaves the messages as they are stored."""
        value = self.checkpoint["channel_values"].get(self.core.messages_key)
        parted = split(value, self.line) if isinstance(value, list) else Split([], [])
        waiting = [batch for batch in self.stream.pending if batch.lacks(self.names)]
        if waiting:
            await self._point(waiting)
        # A saver that stores checkpoints whole would bring back what is gone.
        stored = await self._put(parted.inside if parted.outside else None)
        if self.parent != self.stream.latest:
            self.stream.fresh = False
        self.stream.saved(self.checkpoint["id"], self.line)
        return stored

    def _warn_of_key(self) -> None:
        """Say once that the channel may be called otherwise; a subgraph need not have it."""
        versions = self.checkpoint["channel_versions"]
        early = (self.metadata or {}).get("step", 0) < STEPS_WITHOUT_MESSAGES
        if (
            self.core.warned_of_key
            or early
            or self.config["configurable"].get("checkpoint_ns")
            or self.core.messages_key in versions
        ):
            return
        self.core.warned_of_key = True
        logger.warning(
            "nothing is pruned: thread %r has no channel %r after %d steps, but has %s; give "
            "ReducingSaver the right one as messages_key",
            self.thread,
            self.core.messages_key,
            STEPS_WITHOUT_MESSAGES,
            ", ".join(sorted(name for name in versions if not name.startswith(("__", "branch:")))),
        )

    async def _put(self, messages: list[Any] | None) -> RunnableConfig:
        checkpoint = self.checkpoint
        if messages is not None:
            checkpoint = checkpoint.copy()
            checkpoint["channel_values"] = {
                **checkpoint["channel_values"],
                self.core.messages_key: with_messages(
                    checkpoint["channel_values"].get(self.core.messages_key), messages
                ),
            }
        stored = await self.port.put(self.config, checkpoint, self.metadata, self.new_versions)
        if self.has_outbox:
            self.stream.outbox = self._here()
        return stored

    async def _look(self) -> Counter[str]:
        """Learn what waits and what was handed over, unless this process knows."""
        if self.stream.fresh and self.parent == self.stream.latest:
            return Counter()
        found = await find(self.port, self.config, self.core.messages_key, self.core.channel)
        self.stream.found_waiting(found.pending)
        self.stream.keep(self.names)
        self.stream.whole = found.whole
        self.stream.outbox = None  # the next one lists what was found
        self.mark_place = found.far
        around = await handed_over_around(self.port, self.config, self.core.channel, found.writer)
        return found.handed_over | around

    async def _plan(self, known: Counter[str]) -> Plan:
        """Decide what to store; whatever goes wrong, the messages are stored all the same."""
        merged = self._messages()
        if merged is None:
            # Between the snapshots of a delta channel, what has left the window stays known.
            delta = is_delta(None, self.metadata or {}, self.core.messages_key)
            return Plan(None, [], self.line if delta else None, used_what_is_known=not known)
        messages = as_sent(merged, self.stream.sent)
        parted = split(messages, self.line)
        handed_over = self.line.handed_over(parted.inside) if self.line is not None else {}
        stored, pruned = parted.inside, []
        turns: list[Turn] = []
        matches: dict[int, str] = {}
        try:
            if self.line is not None:
                known = known + self.line.loaded_anew(parted.inside)
            handed_over |= self._recognise(parted.inside, known)
            if self.names and self.core.streams.has_several(self.thread):
                handed_over |= self._taken_by_others(parted.inside)
            shortened = await self.core.reducer.shortener.shorten(parted.inside, self.port.call)
            gone = in_order(messages, [*parted.outside, *shortened.pruned])
            left = in_order(messages, [*gone, *shortened.edited])
            turns = self._turns(left, handed_over, matches) if self.names else []
            handed_over |= {
                mark(m): Held(matches[id(m)], held(m)) for m in shortened.edited if id(m) in matches
            }
            stored, pruned = shortened.surviving, gone
            self.pruned = len(shortened.pruned)
        except Exception as error:
            self.core.reducer.warn_once(error)
            pruned = parted.outside
        line = next_line(messages, stored, pruned, handed_over, matches, self.line)
        same = len(stored) == len(merged) and all(
            a is b for a, b in zip(stored, merged, strict=True)
        )
        return Plan(None if same else stored, turns, line)

    def _messages(self) -> list[Any] | None:
        """Return the messages to reduce, or `None` when there are none to reduce."""
        values = self.checkpoint["channel_values"]
        value: Any = values.get(self.core.messages_key)
        if counts_from_the_first(values):
            self.core.reducer.warn_once(
                ValueError(
                    f"deepagents has summarized messages of thread {self.thread!r} and counts them "
                    "from the first: none is pruned. With a lower max_messages or max_tokens the "
                    "list stays below what it summarizes"
                )
            )
            return None
        if is_snapshot(value):
            value = value.value
        if value is None or isinstance(value, list):
            return value
        self.core.reducer.warn_once(
            TypeError(
                f"channel {self.core.messages_key!r} holds a {type(value).__name__}, not a list"
            )
        )
        return None

    def _recognise(self, messages: Sequence[Any], known: Counter[str]) -> dict[Mark, Held]:
        """Return those messages that were handed over from another branch."""
        left = Counter(known)
        found: dict[Mark, Held] = {}
        if not left:
            return found
        place = namespace_text(self.namespace)
        for message in messages:
            match = turn_digest(message, place)
            if left[match] > 0:
                left[match] -= 1
                found[mark(message)] = Held(match, held(message))
        # For the graphs around and within, which may hand the same messages on.
        with_ids = [(known.match, None) for m, known in found.items() if isinstance(m, str)]
        self.core.reducer.remembered.add(place, with_ids)
        return found

    def _taken_by_others(self, messages: Sequence[Any]) -> dict[Mark, Held]:
        """Return those messages that this process handed over from a graph around or within."""
        place = namespace_text(self.namespace)
        found: dict[Mark, Held] = {}
        for message in messages:
            if field_of(message, "id") is not None:
                match = turn_digest(message, place)
                if self.core.reducer.remembered.has(place, match):
                    found[mark(message)] = Held(match, None)
        return found

    def _turns(
        self, gone: Sequence[Any], handed_over: dict[Mark, Held], matches: dict[int, str]
    ) -> list[Turn]:
        """Return a turn for each message that is gone and was not in an outbox before."""
        reducer = self.core.reducer
        place = namespace_text(self.namespace)
        dedupe = reducer.config.dedupe_on_prune
        before = Line(self.line.gone if self.line else {}, known=handed_over if dedupe else {})
        turns = []
        for index, message in enumerate(gone):
            was = before.gone.get(mark(message))
            match = was.match_of(message) if was is not None else None
            match = matches[id(message)] = match or turn_digest(message, place)
            has_id = field_of(message, "id") is not None
            seen = before.has_handed_over(message, match)
            if dedupe:
                seen = seen or (has_id and reducer.remembered.has(place, match))
            if seen:
                continue
            key = match if has_id else digest(match, self.checkpoint["id"], str(index))
            turns.append(Turn(key, match, message))
        return turns

    def _remember(self, turns: Sequence[Turn]) -> None:
        """Remember turns with ids for the whole reducer: a subgraph may hold the same messages."""
        with_ids = [turn for turn in turns if field_of(turn.message, "id") is not None]
        self.core.reducer.remember(with_ids, self.namespace, len(with_ids))

    async def _write_outbox(self, turns: list[Turn], line: Line | None) -> list[Batch]:
        """Store what waits beside the checkpoint, before it."""
        stream, longest = self.stream, self.core.reducer.config.max_batch
        waiting = [batch for batch in stream.pending if batch.lacks(self.names)]
        self.moved = await self.backlog.brought_together(waiting, self.names, longest)
        batches = self.moved.batches + batches_of(
            turns, self.namespace, self.names, longest, self.checkpoint["id"]
        )
        known = [k.match for k in line.known.values()] if line else []
        news = turns or known or stream.unstored or self.moved.given_up or self.mark_place
        if news or (waiting and stream.outbox is None):
            self.said = {batch.id: set(batch.done) for batch in batches}
            pruned = {turn.key: turn.match for turn in turns}
            outbox = Outbox(batches, known, self.thread, stream.whole, pruned)
            writes, task = write_outbox(self.core.channel, outbox)
            await self.port.put_writes(self._here(), writes, task)
            self.has_outbox = True
        elif waiting:
            await self._point(waiting)
        return batches

    async def _point(self, waiting: Sequence[Batch]) -> None:
        """Store where the outbox is, for wrappers without hooks."""
        if self.stream.outbox is None:
            return
        at = self.stream.outbox["configurable"]["checkpoint_id"]
        writes, task = write_pointer(self.core.channel, waiting, at)
        try:
            await self.port.put_writes(self._here(), writes, task)
        except Exception:
            logger.warning("a wrapper without hooks may not know what waits", exc_info=True)

    def _outbox_is_stored(self, batches: list[Batch]) -> None:
        """Remember where the turns are now, and that the outbox says what hooks have."""
        if not self.has_outbox:
            return
        for batch in self.moved.given_up:
            batch.done |= batch.wanted | self.names  # others hand its turns over
        self.stream.unstored.clear()
        for batch in batches:
            batch.at = batch.at or self.checkpoint["id"]
            late = batch.done - self.said[batch.id]  # while the outbox was written
            if late:
                self.stream.unstored[batch.id] = late

    async def _deliver(self, batches: list[Batch]) -> None:
        """Call the hooks and acknowledge what they took."""
        book = Ledger(self)
        try:
            for batch in batches:
                for entry in self.stream.unstored.get(batch.id, set()).copy():
                    await book.acknowledge(batch, entry)
            await deliver(
                batches,
                self.core.reducer.config,
                self.core.reducer.counts,
                self.port.call,
                book,
                Beside(book, self.port),
            )
        finally:
            self.stream.keep(self.names)
            for batch in self.stream.pending:
                batch.let_go()

    def _here(self) -> RunnableConfig:
        """Return the config of the checkpoint that is saved."""
        conf = self.config["configurable"]
        return {
            **self.config,
            "configurable": {
                **conf,
                "checkpoint_ns": conf.get("checkpoint_ns") or "",
                "checkpoint_id": self.checkpoint["id"],
            },
        }


class Ledger:
    """Where it is stored what hooks have: beside the checkpoints whose outboxes list a batch.

    Args:
        save: The save that hands over.
    """

    def __init__(self, save: Save) -> None:
        self._save = save

    async def fill(self, batch: Batch) -> bool:
        """Read the turns of a batch, if need be; `False` when they are gone."""
        return await self._save.backlog.fill(batch)

    async def acknowledge(self, batch: Batch, entry: str) -> None:
        """Store that a hook has a batch, or one turn of it."""
        unstored = self._save.stream.unstored
        unstored.setdefault(batch.id, set()).add(entry)
        written = write_acknowledgement(self._save.core.channel, batch, entry)
        if await self._write(*written, f"hook {entry} has its turns"):
            unstored[batch.id].discard(entry)
            if not unstored[batch.id]:
                del unstored[batch.id]

    async def count(self, batch: Batch, name: str) -> None:
        """Store how often a hook failed on a batch."""
        written = write_failure(self._save.core.channel, batch, name)
        await self._write(*written, f"hook {name} failed again")

    async def _write(self, writes: list[tuple[str, Any]], task: str, what: str) -> bool:
        save = self._save
        places = [save._here()] if save.has_outbox else []
        # A hook may have saved to the same thread: then the newest outbox lists the batch too.
        if save.stream.outbox is not None and save.stream.outbox not in places:
            places.append(save.stream.outbox)
        try:
            for place in places:
                await save.port.put_writes(place, writes, task)
        except Exception:
            logger.warning(
                "%s, but that could not be stored; the next save says it", what, exc_info=True
            )
            return False
        return True


class Beside:
    """The ledger for threads that run hooks beside the request.

    Args:
        ledger: The ledger.
        port: The inner saver.
    """

    def __init__(self, ledger: Ledger, port: Port) -> None:
        self._ledger = ledger
        self._run = port.from_threads()

    async def fill(self, batch: Batch) -> bool:
        """Say that the turns are there: they were read before."""
        return True

    async def acknowledge(self, batch: Batch, entry: str) -> None:
        """Have it stored that a hook has a batch, or one turn of it."""
        self._run(self._ledger.acknowledge(batch, entry))

    async def count(self, batch: Batch, name: str) -> None:
        """Have it stored how often a hook failed on a batch."""
        self._run(self._ledger.count(batch, name))
