"""What one call of a saver works with."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph.checkpoint.mongodb._database.port import Port
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._operations.memory import Memory

__all__ = ["Context"]


@dataclass(frozen=True, slots=True)
class Context:
    """What one call of a saver works with.

    Attributes:
        io: The port to the database.
        memory: What the saver remembers, shared with its clones.
        codec: The serializer of this moment.
        ttl: Seconds that documents live, None for ever.
    """

    io: Port
    memory: Memory
    codec: Codec
    ttl: int | None
