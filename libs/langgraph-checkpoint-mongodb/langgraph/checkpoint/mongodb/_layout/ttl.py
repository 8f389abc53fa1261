"""When documents expire, and how values that are still used outlive their writers.

Every document is stamped with `created_at`; the TTL index removes it `ttl` seconds
later. A channel value must not expire before a checkpoint that refers to it, so values are
stamped ahead by a slack, and a checkpoint that carries a value over renews a stamp that
lies in the past: mostly nothing has to be rewritten. The rules that follow from it:

* a stamped value's stamp is at no time older than that of a checkpoint that refers to it;
* a value named by a checkpoint without a stamp (there was no TTL) has none either.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["MAX_TTL", "aware", "checked_ttl", "is_due", "value_stamp"]

MAX_TTL = 2**31 - 1
"""The largest `expireAfterSeconds` that MongoDB takes."""

# The slack, as a fraction of the TTL: a thread in use rewrites the stamps of its
# unchanged values this many times in one TTL, and leaves values behind for this
# fraction of it.
_SLACK_FRACTION = 64


def checked_ttl(ttl: Any) -> int | None:
    """Check a TTL in seconds.

    Args:
        ttl: Seconds, or None for documents that never expire.

    Returns:
        The same.

    Raises:
        ValueError: It is not an integer from 1 to `MAX_TTL`.
    """
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or ttl % 1 != 0:
        raise ValueError(f"Invalid ttl {ttl!r}: expected whole seconds, or None for no expiry.")
    if not 1 <= ttl <= MAX_TTL:
        raise ValueError(
            f"Invalid ttl {ttl!r}: expected 1 to {MAX_TTL} seconds. "
            "Use None for documents that never expire."
        )
    return int(ttl)


def aware(time: datetime | None) -> datetime | None:
    """A time from a document, with its time zone also when the client leaves it out."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def value_stamp(ttl: int, at: datetime) -> datetime:
    """The stamp for a value that is written or still used at a time."""
    return at + timedelta(seconds=ttl / _SLACK_FRACTION)


def is_due(stamp: datetime | None, ttl: int | None, at: datetime) -> bool:
    """Whether the stamp of what is still relied on at a time is to be renewed.

    Args:
        stamp: Its `created_at`; None for what never expires, which stays so.
        ttl: Seconds that documents live; None where nothing is to expire.
        at: The time.
    """
    if stamp is None or ttl is None:
        return stamp is not None
    return value_stamp(ttl, stamp) < at
