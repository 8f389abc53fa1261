"""Handing pruned turns to hooks, and remembering what was handed over."""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .calls import Call
from .keys import namespace_text
from .models import PrunedMessages, RememberFn

logger = logging.getLogger(__name__)

NAMESPACES_REMEMBERED = 1024


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
        turns: Oldest first.
        wanted: Names of the hooks there were when they were pruned.
        done: Names of the hooks that have them.
        taking: Names of the hooks that are being called with them.
    """

    id: str
    namespace: Any
    turns: list[Turn]
    wanted: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    taking: set[str] = field(default_factory=set)

    def messages(self) -> PrunedMessages:
        """Return the messages with their keys, in a list of its own."""
        return PrunedMessages([t.message for t in self.turns], [t.key for t in self.turns])

    def lacks(self, names: Iterable[str]) -> bool:
        """Tell whether one of the named hooks does not have these turns yet."""
        return any(name not in self.done for name in names)


Acknowledge = Callable[[Batch, str], Awaitable[None]]


async def deliver(
    batches: Sequence[Batch],
    hooks: Sequence[RememberFn],
    call: Call,
    acknowledge: Acknowledge | None = None,
) -> None:
    """Hand batches to the hooks that lack them, oldest first.

    A hook that raises is left out for the rest of that namespace, so that it gets nothing out of
    order; `batch.done` tells what it has. Nothing is raised for it.

    Args:
        batches: Oldest first; their `done` is updated.
        hooks: All hooks.
        call: How to call them.
        acknowledge: Awaited after each batch that a hook took.
    """
    for name, hook in named(hooks):
        failed: set[str] = set()
        for batch in batches:
            place = namespace_text(batch.namespace)
            if name in batch.done or name in batch.taking or place in failed:
                continue  # a hook that saves to the same thread comes by here
            batch.taking.add(name)
            try:
                await call(hook, batch.messages(), batch.namespace)
            except Exception:
                failed.add(place)
                logger.warning(
                    "on_prune hook %s failed on %d messages of namespace %r; they are kept for it",
                    name,
                    len(batch.turns),
                    batch.namespace,
                    exc_info=True,
                )
                continue
            finally:
                batch.taking.discard(name)
            batch.done.add(name)
            if acknowledge is not None:
                await acknowledge(batch, name)


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
