"""The reducer."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .calls import Call, call_here, run_now
from .delivery import Batch, Counts, Remembered, Turn, batches_of, deliver, named
from .keys import digest, namespace_text, turn_digest
from .merging import as_update, merge
from .messages import UnknownMessageShape, as_list, field
from .models import ReducerConfig, ReducerResult
from .shorten import Shortened, Shortener, in_order

logger = logging.getLogger(__name__)

CAUSES_REMEMBERED = 100
"""How many causes to warn of: messages that differ each time must not fill the log."""


class MessageReducer:
    """Keeps a list of messages within a window and hands on what leaves it.

    A reducer may be shared by threads and by conversations.

    Args:
        min_messages: Low mark, in messages.
        max_messages: High mark, in messages. `None`: never prune.
        config: All settings, instead of the two.

    Raises:
        TypeError: A setting has the wrong type.
        ValueError: A number is negative, or nothing would ever be pruned although `min_messages` is
            given.
    """

    def __init__(
        self,
        min_messages: int = 0,
        max_messages: int | None = None,
        *,
        config: ReducerConfig | None = None,
    ) -> None:
        if config is None:
            config = ReducerConfig(min_messages=min_messages, max_messages=max_messages)
        elif not isinstance(config, ReducerConfig):
            raise TypeError(f"config must be a ReducerConfig, and is a {type(config).__name__}")
        elif min_messages or max_messages is not None:
            raise ValueError(
                "min_messages and max_messages say nothing beside config: give them to the config"
            )
        self.config = config
        self._start()

    def _start(self) -> None:
        self.shortener = Shortener(self.config)
        self.remembered = Remembered(self.config.dedupe_window)
        self._lock = threading.Lock()
        self._backlog: list[Batch] = []
        self._warned: set[str] = set()
        self.counts = Counts()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs: the settings, which must be picklable.

        What this reducer has handed over, and what waits for its hooks, stays its own.
        """
        return {"config": self.config}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.config = state["config"]
        self._start()

    def __deepcopy__(self, memo: Any) -> MessageReducer:
        """Return a copy with settings of its own that knows what this one has handed over."""
        copied = copy.copy(self)
        copied.config = copy.deepcopy(self.config, memo)
        copied._start()
        copied.remembered = self.remembered
        return copied

    @property
    def min_messages(self) -> int:
        """The low mark, in messages."""
        return self.config.min_messages

    @property
    def max_messages(self) -> int | None:
        """The high mark, in messages."""
        return self.config.max_messages

    def reduce(
        self,
        existing: Sequence[Any] | None = None,
        new: Sequence[Any] | None = None,
        namespace: Any = None,
    ) -> ReducerResult:
        """Join two lists of messages and prune the result if it is over the limit.

        Hooks are called before this returns, each with a list of its own. What a hook failed on is
        kept in memory and handed to it at the next call.

        Args:
            existing: The messages so far, oldest first.
            new: Messages to append.
            namespace: Passed to the hooks as it is.

        Returns:
            What stays, what went, and the summary. Messages of an unknown shape make the whole list
            stay, with one warning.
        """
        messages = as_list(existing) + as_list(new)
        return run_now(self._reduce(messages, namespace, call_here))

    def as_langgraph_reducer(self) -> Callable[[Any, Any], list[Any]]:
        """Return a reducer for `Annotated[list, ...]` in a LangGraph state.

        Returns:
            A function from the messages so far and an update to the messages that stay. Like
            LangGraph's `add_messages` it takes texts and pairs of role and text, replaces a message
            by one with the same id, and obeys `RemoveMessage`; a removal of what is no longer there
            is no error. Where an update repeats messages that are there, its order counts.
        """

        def reduce_messages(existing: Any, new: Any) -> list[Any]:
            state = as_list(existing)
            return self.reduce(merge(state, as_update(new, state))).surviving

        return reduce_messages

    def warn_once(self, error: Exception) -> None:
        """Log that messages were left as they were, the first time for each cause.

        Args:
            error: Why.
        """
        cause = f"{type(error).__name__}: {error}"[:200]
        if cause in self.counts.left_as_they_are or len(self._warned) < CAUSES_REMEMBERED:
            self.counts.left_as_they_are[cause] += 1
        if cause not in self._warned and len(self._warned) < CAUSES_REMEMBERED:
            self._warned.add(cause)
            logger.warning("messages are left as they are, now and in like cases: %s", error)

    async def _reduce(self, messages: list[Any], namespace: Any, call: Call) -> ReducerResult:
        try:
            shortened = await self.shortener.shorten(messages, call)
        except UnknownMessageShape as error:
            self.warn_once(error)
            shortened = Shortened(messages, [])
        self.counts.pruned += len(shortened.pruned)
        if self.config.on_prune:
            left = in_order(messages, [*shortened.pruned, *shortened.edited])
            await self._hand_over(left, namespace, len(messages), call)
        return ReducerResult(
            shortened.surviving, shortened.pruned, shortened.summary, shortened.edited
        )

    async def _hand_over(self, pruned: list[Any], namespace: Any, length: int, call: Call) -> None:
        with self._lock:
            batches, self._backlog = self._backlog, []
            turns = self.new_turns(pruned, namespace)
            self.remember(turns, namespace, length)
        names = [name for name, _ in named(self.config.on_prune)]
        batches += batches_of(turns, namespace, names, self.config.max_batch)
        try:
            await deliver(batches, self.config, self.counts, call)
        finally:
            with self._lock:
                self._backlog[:0] = [batch for batch in batches if batch.lacks(names)]

    def new_turns(self, pruned: Sequence[Any], namespace: Any) -> list[Turn]:
        """Return the pruned messages that were not handed over yet in this process.

        Args:
            pruned: Messages, oldest first.
            namespace: Where they go.

        Returns:
            A turn for each; for all of them when `dedupe_on_prune` is off.
        """
        place = namespace_text(namespace)
        turns = []
        for index, message in enumerate(pruned):
            match = turn_digest(message, place)
            has_id = field(message, "id") is not None
            seen = self.remembered.has(place, match if has_id else id(message))
            if seen and self.config.dedupe_on_prune:
                continue
            key = match if has_id else digest(match, str(index))
            turns.append(Turn(key, match, message))
        return turns

    def remember(self, turns: Sequence[Turn], namespace: Any, length: int) -> None:
        """Remember turns as handed over.

        Args:
            turns: The turns.
            namespace: Where they went.
            length: How long the list is that they come from.
        """
        self.remembered.add(
            namespace_text(namespace),
            (
                (turn.match, None)
                if field(turn.message, "id") is not None
                else (id(turn.message), turn.message)
                for turn in turns
            ),
            length,
        )

    def __repr__(self) -> str:
        c = self.config
        if c.max_tokens is not None:
            return f"MessageReducer(max_tokens={c.max_tokens}, target_tokens={c.target_tokens})"
        return f"MessageReducer(min_messages={c.min_messages}, max_messages={c.max_messages})"
