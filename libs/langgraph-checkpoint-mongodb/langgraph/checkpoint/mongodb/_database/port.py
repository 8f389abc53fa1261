"""What an operation may ask of the database, and how a coroutine that asks is run.

Operations are coroutines over a port. The methods of the sync one never suspend, so `run`
finishes such a coroutine in one step, without an event loop or a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

from pymongo.operations import IndexModel

__all__ = ["Document", "Join", "Port", "Role", "Update", "Updated", "run"]

Document = dict[str, Any]
"""A document as the driver takes and gives it."""

Role = Literal["checkpoints", "writes", "values"]
T = TypeVar("T")


class Update(NamedTuple):
    """One update of a bulk: of the one document that `filter` identifies.

    A `required` one changes nothing: the bulk stops at it unless its document exists. It is an
    upsert of a document that the server must refuse.
    """

    filter: Document
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


class Join(NamedTuple):
    """Which documents of another collection belong to a document.

    Attributes:
        role: The other collection.
        on: The field that both have.
        within: A filter of the others; with `on` it is a prefix of their unique index.
        key: All fields in which they must equal the document.
    """

    role: Role
    on: str
    within: Document
    key: Sequence[str]


class Port(Protocol):
    """What an operation may ask of the database."""

    async def find(
        self,
        role: Role,
        filter: Document,
        projection: Document,
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        limit: int = 0,
        primary: bool = False,
    ) -> list[Document]:
        """Read documents.

        Args:
            role: The collection.
            filter: Which documents.
            projection: Which of their fields; empty for all.
            sort: The order.
            limit: With a number, at most that many, and only as many as the server
                sends in one batch; all of them with 0.
            primary: Ask the primary, whatever read preference the client has.
        """
        ...

    async def find_within(
        self,
        role: Role,
        filter: Document,
        *,
        sort: Sequence[tuple[str, int]],
        most_bytes: int,
    ) -> tuple[list[Document], bool]:
        """Read documents until their `value`s are larger than a bound.

        Returns:
            The first documents in order, and whether these are all.
        """
        ...

    async def find_joined(
        self,
        role: Role,
        filter: Document,
        join: Join,
        *,
        sort: Sequence[tuple[str, int]],
        primary: bool = False,
    ) -> tuple[Document, list[Document] | None] | None:
        """Read the first document of a filter, and beside it what belongs to it.

        Args:
            role: The collection.
            filter: Which document.
            join: What belongs to it.
            sort: The order.
            primary: Ask the primary, whatever read preference the client has.

        Returns:
            The document and what belongs to it, the latter None where it did not come with
            it: not every server can join, nor does it always fit into one document.
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

    async def update_many(self, role: Role, filter: Document, update: Document) -> int:
        """Update all documents of a filter; return how many it matched."""
        ...

    async def delete(self, role: Role, filter: Document) -> int:
        """Delete all documents of a filter; return how many."""
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
