"""What both savers are made of before the first command."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph.checkpoint.mongodb._codec import Codec
from langgraph.checkpoint.mongodb._port import Call, Port
from langgraph.checkpoint.mongodb._ttl import checked_ttl

__all__ = ["SaverBase", "checked_limit"]

logger = logging.getLogger(__name__)

_RANDOM_DIGITS = 16


class SaverBase(BaseCheckpointSaver[Any]):
    """Constructor arguments, channel versions and the context of a call."""

    ttl: int | None
    _port: Port

    def __init__(
        self,
        *,
        ttl: int | None,
        serde: SerializerProtocol | None,
        ignored: Mapping[str, Any],
    ) -> None:
        super().__init__(serde=serde)
        self.ttl = checked_ttl(ttl)
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

    def _call(self) -> Call:
        # Nothing derived from `serde` is kept: `with_allowlist` swaps it on a clone.
        return Call(self._port, Codec(self.serde), self.ttl)


def checked_limit(limit: Any) -> int | None:
    """Check how many checkpoints a listing may answer.

    Raises:
        ValueError: It is negative or not a whole number.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ValueError(f"Invalid limit {limit!r}: expected None, 0 or a positive number.")
    return limit
