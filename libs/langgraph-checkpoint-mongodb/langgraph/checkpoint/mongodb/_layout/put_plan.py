"""What a put is going to write: the plan that `plan` makes and `put_split` carries out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.mongodb._layout.bundle import Bundle
from langgraph.checkpoint.mongodb._layout.codec import Typed
from langgraph.checkpoint.mongodb._layout.growing import Growth
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry

__all__ = ["PutPlan"]


@dataclass(slots=True)
class PutPlan:
    """Where the channel values of one checkpoint go.

    Attributes:
        inline: Values that lie in the checkpoint's own serialization.
        written: Values, or pieces of them, to be written as documents: entry and contents.
        carried: Values, or pieces of them, that the parent already holds.
        grown: The entries of values whose pieces are among both.
        growths: How values that grow are cut, by channel.
        bundle: What the bundle of small values holds.
        recent: The values that are inline although they are not small.
        unknown: Channels whose values the parent holds, inline or in its bundle, and which are
            needed, but neither given nor at hand: to be read, and planned again.
        sizes: Bytes of the values that are cut and changed, as they would be in one document.
        digests: The large items of reserved channels among `written`, by digest of their
            bytes: LangGraph stores the graph's input first as `__start__` and then, the
            same values again, as the channels it is for.
    """

    inline: dict[str, Any] = field(default_factory=dict)
    written: list[tuple[ManifestEntry, list[Typed]]] = field(default_factory=list)
    carried: list[ManifestEntry] = field(default_factory=list)
    grown: dict[str, ManifestEntry] = field(default_factory=dict)
    growths: dict[str, Growth] = field(default_factory=dict)
    bundle: Bundle | None = None
    recent: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    digests: dict[bytes, ManifestEntry] = field(default_factory=dict)

    def manifest(self) -> dict[str, ManifestEntry]:
        """All values that lie in documents of their own, by channel."""
        entries = [*self.carried, *(entry for entry, _ in self.written)]
        return {entry.channel: entry for entry in entries} | self.grown
