"""What an operation may ask of the database, and how a coroutine that asks is run.

Operations are coroutines over a port. The methods of the sync one never suspend, so `run`
finishes such a coroutine in one step, without an event loop or a thread.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

from pymongo.operations import IndexModel

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.documents import Document
from langgraph.checkpoint.mongodb._operations.memory import Memory

__all__ = ["Call", "Port", "Role", "Update", "Updated", "run"]

Role = Literal["checkpoints", "writes", "values"]
T = TypeVar("T")


class Update(NamedTuple):
    """One update of a bulk: of the one document that `query` identifies.

    A `required` one changes nothing: the bulk stops at it unless its document is there.
    What it would insert must be refused.
    """

    query: Document
    update: Document
    upsert: bool = False
    required: bool = False


class Updated(NamedTuple):
    """What a bulk of updates did.

    Attributes:
        inserted: How many documents it inserted.
        stopped: Whether a required one was not there.
        missed: How many others found nothing to update.
    """

    inserted: int
    stopped: bool = False
    missed: int = 0


class Port(Protocol):
    """What an operation may ask of the database."""

    memory: Memory

    async def find(
        self,
        role: Role,
        query: Document,
        fields: Document,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        most: int = 0,
        fresh: bool = False,
    ) -> list[Document]:
        """Read documents.

        Args:
            role: The collection.
            query: The query.
            fields: The projection; empty for all fields.
            sort: The order.
            most: With a number, at most that many, and only as many as the server
                sends in one batch; all of them with 0.
            fresh: Ask the primary, whatever read preference the client has.
        """
        ...

    async def find_within(
        self,
        role: Role,
        query: Document,
        *,
        sort: Sequence[tuple[str, int]],
        most_bytes: int,
    ) -> tuple[list[Document], bool]:
        """Read documents until their `value`s are larger than a bound.

        Returns:
            The first documents in order, and whether these are all.
        """
        ...

    async def newest(
        self, query: Document, sort: Sequence[tuple[str, int]], *, fresh: bool = False
    ) -> tuple[Document, list[Document] | None] | None:
        """Read the first checkpoint of a query on a thread, its pending writes beside it.

        Args:
            query: The query: a `thread_id`, and a `checkpoint_ns` unless it is the root's
                checkpoint that is looked for.
            sort: The order.
            fresh: Ask the primary, whatever read preference the client has.

        Returns:
            The checkpoint and its pending writes, those None where they did not come with
            it: not every server can join them, nor do they always fit into one document.
        """
        ...

    async def insert(self, role: Role, documents: Sequence[Document]) -> list[int]:
        """Insert documents; return the places of those whose key was already taken.

        They may go together with those of other calls, and be sent twice; each gets an `_id`
        of the server's time.
        """
        ...

    async def update(self, role: Role, updates: Sequence[Update]) -> Updated:
        """Apply updates in their order, in one command where that can be.

        What there is of them after a required one that was not there is left out.
        """
        ...

    async def update_many(self, role: Role, query: Document, update: Document) -> int:
        """Update all documents of a query; return how many it matched."""
        ...

    async def delete(self, role: Role, query: Document) -> int:
        """Delete all documents of a query; return how many."""
        ...

    async def aggregate(self, role: Role, pipeline: Sequence[Document]) -> list[Document]:
        """Run an aggregation on the primary and read its result to the end."""
        ...

    async def now(self) -> datetime:
        """The server's time, in milliseconds; it is asked for now and then."""
        ...

    async def indexes(self, role: Role) -> dict[str, Document]:
        """The indexes of a collection by name, none when it does not exist."""
        ...

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        """Create indexes in one command."""
        ...

    async def drop_index(self, role: Role, name: str) -> None:
        """Drop one index."""
        ...

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        """Change the TTL of an existing index."""
        ...

    async def document_limit(self, largest: int) -> int:
        """The server's `maxBsonObjectSize`, asked once, and only if a document may pass it."""
        ...

    async def together(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Do independent reads, beside each other where that costs nothing."""
        ...

    async def offload(
        self, size: int | Callable[[], int], function: Callable[..., T], *args: Any
    ) -> T:
        """Compute; where an event loop would be blocked for long, in a thread.

        Args:
            size: How many bytes are computed on, or what tells it where it matters.
            function: The computation.
            *args: Its arguments.
        """
        ...

    async def wait(self, event: threading.Event) -> None:
        """Wait for another call of this process, a few seconds at most."""
        ...

    def name(self, role: Role) -> str:
        """The full name of a collection, for messages."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What one call of a saver works with.

    Attributes:
        io: The port.
        codec: The serializer of this moment.
        ttl: Seconds that documents live, None for ever.
    """

    io: Port
    codec: Codec
    ttl: int | None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine over a sync port.

    Raises:
        RuntimeError: It suspended, which an operation over a sync port never does.
    """
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RuntimeError("An operation over a sync port suspended.")
