"""Handing pruned turns to hooks, and remembering what was handed over."""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .background import Background
from .calls import Call, call_here, run_now
from .keys import digest, namespace_text
from .models import PrunedMessages, ReducerConfig, RememberFn

logger = logging.getLogger(__name__)

NAMESPACES_REMEMBERED = 1024

_claims = threading.Lock()


@dataclass(frozen=True)
class Turn:
    """A pruned message on its way to the hooks.

    Attributes:
        key: Stable and unique; hooks deduplicate on it.
        match: Digest of namespace, id and content; turns without an id may share one.
        message: The message.
    """

    key: str
    match: str
    message: Any


@dataclass
class Batch:
    """Turns that were pruned together.

    Attributes:
        id: Stable and unique.
        namespace: Passed to the hooks.
        turns: Oldest first; empty while they are stored and were not read yet.
        wanted: Names of the hooks there were when they were pruned.
        done: Names of the hooks that have them; `part` of a turn for a hook that has that one.
        taking: Names of the hooks that are being called with them.
        attempts: How often a hook failed on them.
        at: The checkpoint whose outbox has the turns; `None` while they are not stored.
        count: How many turns there are.
    """

    id: str
    namespace: Any
    turns: list[Turn]
    wanted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    taking: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    at: str | None = None
    count: int = 0

    def __post_init__(self) -> None:
        """Count the turns, where they are at hand."""
        self.count = self.count or len(self.turns)

    def for_hook(self, name: str) -> list[Turn]:
        """Return the turns that a hook does not have.

        Args:
            name: The hook's name.
        """
        return [turn for turn in self.turns if part(name, turn) not in self.done]

    def claim(self, names: Collection[str]) -> bool:
        """Begin to call hooks with the turns, unless somebody does, or one has them.

        Args:
            names: Names of the hooks.
        """
        with _claims:
            if any(name in self.done or name in self.taking for name in names):
                return False
            self.taking.update(names)
            return True

    def let_go(self) -> None:
        """Forget turns that are stored, unless somebody is about to hand them over."""
        with _claims:
            if self.at is not None and not self.taking:
                self.turns = []

    def lacks(self, names: Iterable[str]) -> bool:
        """Tell whether one of the named hooks does not have these turns yet."""
        return any(name not in self.done for name in names)


@dataclass
class Counts:
    """What a reducer did since it was made, in this process.

    Attributes:
        pruned: Messages that left a window.
        delivered: Messages that a hook took, each hook counted.
        failed: Calls of hooks that raised.
        dead: Messages that were given up after `max_attempts`.
        left_as_they_are: By cause, how often messages could not be reduced.
    """

    pruned: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    left_as_they_are: Counter[str] = field(default_factory=Counter)


def part(hook: str, turn: Turn) -> str:
    """Return what stands in `Batch.done` for one turn that a hook has, of a batch it has not.

    Args:
        hook: The hook's name.
        turn: The turn.
    """
    return f"{hook}\x1f{turn.key}"


def batches_of(
    turns: Sequence[Turn], namespace: Any, wanted: Iterable[str], longest: int, where: str = ""
) -> list[Batch]:
    """Return turns in batches, with ids that are the same for the same turns.

    Args:
        turns: Oldest first.
        namespace: Where they go.
        wanted: Names of the hooks.
        longest: How many turns a batch has at the most.
        where: Tells batches of the same turns apart that were pruned more than once.
    """
    parts = [turns[i : i + longest] for i in range(0, len(turns), longest)]
    return [
        Batch(digest(where, *(turn.key for turn in part)), namespace, list(part), set(wanted))
        for part in parts
    ]


class Book(Protocol):
    """Where it is written down what hooks have."""

    async def fill(self, batch: Batch) -> bool:
        """Read the turns of a batch, if need be; `False` when they are gone."""

    async def acknowledge(self, batch: Batch, entry: str) -> None:
        """Store what was added to `batch.done`."""

    async def count(self, batch: Batch, name: str) -> None:
        """Store how often a hook failed on a batch."""


class NoBook:
    """For delivery without a checkpointer: nothing is stored."""

    async def fill(self, batch: Batch) -> bool:
        """Say that the turns are there."""
        return True

    async def acknowledge(self, batch: Batch, entry: str) -> None:
        """Store nothing."""

    async def count(self, batch: Batch, name: str) -> None:
        """Store nothing."""


async def deliver(
    batches: Sequence[Batch],
    config: ReducerConfig,
    counts: Counts,
    call: Call,
    book: Book | None = None,
    beside: Book | None = None,
) -> None:
    """Hand batches to the hooks that lack them, oldest first.

    A hook that raises is left out for the rest of that namespace, so that it gets nothing out of
    order; `batch.done` tells what it has. Nothing is raised for it.

    Args:
        batches: Oldest first; their `done` is updated.
        config: Its hooks, and what is done about those that fail.
        counts: Where it is counted.
        call: How to call them.
        book: Where it is written down. `None`: nowhere.
        beside: A book that threads of a `Background` may write in without waiting for anything.
            `None`: what a `Background` accepted is taken for done.
    """
    written = book or NoBook()
    for name, hook in named(config.on_prune):
        failed: set[str] = set()
        for batch in batches:
            place = namespace_text(batch.namespace)
            if place in failed or not batch.claim({name}):
                continue  # a hook that saves to the same thread comes by here
            handing = _Handing(batch, name, hook, config, counts)
            try:
                if not await written.fill(batch):
                    batch.done.add(name)
                    continue
                if beside is not None and isinstance(hook, Background):
                    await call(hook.submit, handing.messages(), batch.namespace, handing.on(beside))
                    continue
                await handing.hand_over(call, written)
            except Exception as error:
                failed.add(place)
                _warn(batch, name, error)
            finally:
                if not handing.goes_on:
                    batch.taking.discard(name)


class _Handing:
    """One batch on its way to one hook."""

    def __init__(
        self, batch: Batch, name: str, hook: RememberFn, config: ReducerConfig, counts: Counts
    ) -> None:
        self.batch = batch
        self.name = name
        self.hook = hook
        self.config = config
        self.counts = counts
        self.goes_on = False

    def messages(self) -> PrunedMessages:
        """Return the messages with their keys, in a list of its own."""
        return _messages(self.batch.for_hook(self.name))

    async def hand_over(self, call: Call, book: Book) -> None:
        """Call the hook, and write down how that ended."""
        try:
            await call(self.hook, self.messages(), self.batch.namespace)
        except Exception as error:
            if not await self._failed(book):
                raise
            _warn(self.batch, self.name, error)
            await self._one_by_one(self.hook, call, book)
        await self._took_all(book)

    def on(self, book: Book) -> Callable[[BaseException | None], None]:
        """Return what a `Background` calls, on its own thread, when it is done with the batch."""
        self.goes_on = True

        async def finish(error: BaseException | None) -> None:
            if error is not None:
                if not await self._failed(book):
                    return
                hook = getattr(self.hook, "__wrapped__", self.hook)
                await self._one_by_one(hook, call_here, book)
            await self._took_all(book)

        def done(error: BaseException | None) -> None:
            try:
                run_now(finish(error))
            except Exception as problem:
                _warn(self.batch, self.name, problem)
            finally:
                self.batch.taking.discard(self.name)

        return done

    async def _failed(self, book: Book) -> bool:
        """Count a failure, and tell whether it was the last one."""
        self.counts.failed += 1
        longest = self.config.max_attempts
        if longest is None:
            return False
        count = self.batch.attempts[self.name] = self.batch.attempts.get(self.name, 0) + 1
        await book.count(self.batch, self.name)
        return count >= longest

    async def _one_by_one(self, hook: RememberFn, call: Call, book: Book) -> None:
        """Find the messages that the hook cannot take, and put those aside."""
        for turn in self.batch.for_hook(self.name):
            try:
                await call(hook, _messages([turn]), self.batch.namespace)
            except Exception as error:
                await self._put_aside(turn, error, call)
                self.counts.dead += 1
                self.counts.delivered -= 1
            if self.batch.count > 1:
                self.counts.delivered += 1
                self.batch.done.add(part(self.name, turn))
                await book.acknowledge(self.batch, part(self.name, turn))

    async def _put_aside(self, turn: Turn, error: Exception, call: Call) -> None:
        if self.config.on_dead_letter is not None:
            await call(self.config.on_dead_letter, error, _messages([turn]), self.batch.namespace)
            return
        logger.error(
            "on_prune hook %s failed %d times: the message with the key %s of namespace %r is not "
            "handed to it again; set on_dead_letter to have such messages",
            self.name,
            self.batch.attempts[self.name],
            turn.key,
            self.batch.namespace,
            exc_info=error,
        )

    async def _took_all(self, book: Book) -> None:
        self.counts.delivered += len(self.batch.for_hook(self.name))
        self.batch.done.add(self.name)
        await book.acknowledge(self.batch, self.name)


def _messages(turns: Sequence[Turn]) -> PrunedMessages:
    return PrunedMessages([t.message for t in turns], [t.key for t in turns])


def _warn(batch: Batch, name: str, error: BaseException) -> None:
    logger.warning(
        "on_prune hook %s failed on %d messages of namespace %r; they are kept for it",
        name,
        batch.count,
        batch.namespace,
        exc_info=error,
    )


def named(hooks: Sequence[RememberFn]) -> list[tuple[str, RememberFn]]:
    """Return the hooks with names that are the same in every process.

    Args:
        hooks: The hooks; two with the same name get numbers, in their order.

    Returns:
        Pairs of name and hook.
    """
    seen: Counter[str] = Counter()
    pairs = []
    for hook in hooks:
        name = hook_name(hook)
        seen[name] += 1
        pairs.append((name if seen[name] == 1 else f"{name}#{seen[name]}", hook))
    return pairs


def hook_name(hook: Any) -> str:
    """Return where a hook is defined.

    Args:
        hook: A function, a method, a partial, a `Background` or another callable object.

    Returns:
        Module and qualified name; of what it wraps, if it wraps something.
    """
    inner = getattr(hook, "__wrapped__", None)
    if inner is None and isinstance(hook, functools.partial):
        inner = hook.func
    if inner is not None:
        return hook_name(inner)
    named_thing = hook if hasattr(hook, "__qualname__") else type(hook)
    return f"{named_thing.__module__}.{named_thing.__qualname__}"


class Remembered:
    """The turns handed over so far in this process, per namespace, bounded.

    A turn with an id is remembered by its digest. One without is remembered by identity, and held
    so that its identity stays its own.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._lock = threading.Lock()
        self._namespaces: OrderedDict[str, OrderedDict[str | int, Any]] = OrderedDict()

    def has(self, namespace: str, mark: str | int) -> bool:
        """Tell whether a turn was handed over.

        Args:
            namespace: Canonical text of its namespace.
            mark: The turn's digest, or `id(message)`.
        """
        return mark in self._namespaces.get(namespace, ())

    def add(
        self, namespace: str, marks: Iterable[tuple[str | int, Any]], at_least: int = 0
    ) -> None:
        """Remember turns.

        Args:
            namespace: Canonical text of their namespace.
            marks: Each a digest and `None`, or `id(message)` and the message.
            at_least: How many to remember at the least: the length of the list at hand.
        """
        with self._lock:
            turns = self._namespaces.setdefault(namespace, OrderedDict())
            self._namespaces.move_to_end(namespace)
            for mark, held in marks:
                turns[mark] = held
                turns.move_to_end(mark)
            while len(turns) > max(self._window, at_least):
                turns.popitem(last=False)
            while len(self._namespaces) > NAMESPACES_REMEMBERED:
                self._namespaces.popitem(last=False)
