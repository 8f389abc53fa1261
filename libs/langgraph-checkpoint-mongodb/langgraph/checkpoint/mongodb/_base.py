"""What both savers are made of before the first command."""

from __future__ import annotations

import logging
import random
import weakref
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph.checkpoint.mongodb._database.forks import ForkSafeLock
from langgraph.checkpoint.mongodb._database.port import Port, Role
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.ttl import checked_ttl
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.memory import Memory

__all__ = ["SaverBase", "checked_client", "checked_limit", "collection_names"]

logger = logging.getLogger(__name__)

_RANDOM_DIGITS = 16


class SaverBase(BaseCheckpointSaver[Any]):
    """Constructor arguments, channel versions and the context of a call."""

    ttl: int | None
    _port: Port
    _memory: Memory

    def __init__(
        self,
        *,
        ttl: int | None,
        serde: SerializerProtocol | None,
        ignored: Mapping[str, Any],
    ) -> None:
        super().__init__(serde=serde)
        self.ttl = checked_ttl(ttl)
        self._memory = Memory()
        if ignored:
            # Releases up to 0.5.1 took any keyword and ignored it.
            names = ", ".join(sorted(ignored))
            logger.warning("%s ignores unknown arguments: %s.", type(self).__name__, names)

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """Make the channel version that follows another.

        The string form is that of the other Python savers: a counter of 32 digits, a
        dot, and random digits that keep forks of a thread apart. A thread that counts
        in integers goes on in integers.

        Args:
            current: The version before; None for a channel's first.
            channel: Not used; LangGraph passes None.

        Returns:
            A string for None and for a string, a number for a number.
        """
        if current is None or isinstance(current, str):
            counter = int(current.partition(".")[0]) + 1 if current else 1
            suffix = random.randrange(10**_RANDOM_DIGITS)
            return f"{counter:032d}.{suffix:0{_RANDOM_DIGITS}d}"
        return current + 1

    def _context(self) -> Context:
        # Nothing derived from `serde` is kept: `with_allowlist` swaps it on a clone.
        return Context(self._port, self._memory, Codec(self.serde), self.ttl)


def checked_limit(limit: Any) -> int | None:
    """Check how many checkpoints a listing may answer.

    Raises:
        ValueError: It is negative or not an integer.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"Invalid limit {limit!r}: expected None, 0 or a positive number.")
    return limit


def collection_names(
    client: Any, db_name: str, given: Mapping[Role, str | None]
) -> dict[Role, str]:
    """The names of a saver's collections.

    Savers on one database have been kept apart by the names of their first two collections,
    in releases that had no third. So the third follows the first.

    Args:
        client: Their client.
        db_name: Their database.
        given: The names as given, None for the channel values' default.

    Raises:
        ValueError: Two of them are the same, or one is no text.
    """
    for role, name in given.items():
        if (name, role) != (None, "values") and (not isinstance(name, str) or not name):
            raise ValueError(f"Invalid collection name {name!r}: expected text.")
    first = given["checkpoints"] or ""
    values = given["values"]
    if values is None:
        values = _VALUES if first == "checkpoints" else f"{first}_channel_values"
    names: dict[Role, str] = {
        "checkpoints": first,
        "writes": given["writes"] or "",
        "values": values,
    }
    if len(set(names.values())) < len(names):
        raise ValueError(
            f"One collection cannot serve twice: {names}. Checkpoints, pending writes and channel "
            "values need a collection each."
        )
    _tell_of_shared_values(client, db_name, names)
    return names


def _tell_of_shared_values(client: Any, db_name: str, names: Mapping[Role, str]) -> None:
    """Warn of savers with checkpoints of their own whose channel values lie together."""
    with _shared_lock:
        of_client = _shared.setdefault(client, {})
        first = of_client.setdefault((db_name, names["values"]), names["checkpoints"])
    if first != names["checkpoints"]:
        logger.warning(
            "Savers for the collections %r and %r keep their channel values in one collection, %r: "
            "whoever deletes, prunes or copies a thread id in one of them does so to the other's "
            "values. Leave channel_values_collection_name out, or give each a name of its own.",
            first,
            names["checkpoints"],
            names["values"],
        )


_VALUES = "checkpoint_channel_values"

_shared: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], str]] = weakref.WeakKeyDictionary()
_shared_lock = ForkSafeLock()


def checked_client(client: Any, wanted: type[Any]) -> bool:
    """Refuse what is no client, or one that does not acknowledge what it writes.

    Args:
        client: What was given.
        wanted: The driver's class.

    Returns:
        Whether it is the driver's own; mongomock's imitate one, for tests.

    Raises:
        TypeError: It is something else than a client of this kind, or one of mongomock.
        ValueError: Its write concern is `w=0`.
    """
    saver, other_client, other_saver = _SAVERS[wanted.__name__]
    if not isinstance(client, wanted):
        kind = type(client)
        mocked = any(
            (base.__module__.partition(".")[0], base.__name__) == _MOCKED[wanted.__name__]
            for base in kind.__mro__
        )
        if not mocked:
            raise TypeError(
                f"{saver} works on a pymongo.{wanted.__name__}, and got a "
                f"{kind.__module__}.{kind.__qualname__}; for {other_client} use "
                f"langgraph.checkpoint.mongodb.{other_saver}, for a connection string "
                f"{saver}.from_conn_string."
            )
        return False
    if not client.write_concern.acknowledged:
        raise ValueError(
            f"{saver} needs to know what is stored, and this client writes with w=0, without an "
            'acknowledgement. Use w="majority", the default of a replica set, or w=1.'
        )
    return True


_MOCKED = {
    "MongoClient": ("mongomock", "MongoClient"),
    "AsyncMongoClient": ("mongomock_motor", "AsyncMongoMockClient"),
}

# For the class of a client: its saver, and what is for a client of the other kind.
_SAVERS = {
    "MongoClient": ("MongoDBSaver", "an AsyncMongoClient", "AsyncMongoDBSaver"),
    "AsyncMongoClient": ("AsyncMongoDBSaver", "a MongoClient", "MongoDBSaver"),
}
