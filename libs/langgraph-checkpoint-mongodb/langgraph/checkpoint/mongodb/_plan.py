"""Where each channel value of a checkpoint goes: inline, a document of its own, or nowhere.

Pure: the decision is made before the first write, from the checkpoint and from what
its parent already holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph.checkpoint.mongodb._codec import Codec, Typed, native_size
from langgraph.checkpoint.mongodb._compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._documents import (
    ManifestEntry,
    value_version,
    version_text,
)
from langgraph.checkpoint.mongodb._parts import (
    LARGE_ITEM_BYTES,
    RESERVED_IN_PARTS,
    digest,
    split_parts,
)

__all__ = ["INLINE_TOTAL_BYTES", "INLINE_VALUE_BYTES", "Plan", "Planner"]

INLINE_VALUE_BYTES = 4 * 1024
"""A value whose serialized form is larger is a document of its own."""

INLINE_TOTAL_BYTES = 64 * 1024
"""The inline values of one checkpoint take at most this together."""


@dataclass(slots=True)
class Plan:
    """Where the channel values of one checkpoint go.

    Attributes:
        inline: Values that lie in the checkpoint's own serialization.
        written: Values to be written as documents: entry and serialized parts.
        carried: Values that the parent already holds at the same version.
        digests: The large items of reserved channels among `written`, by digest of their
            bytes: LangGraph stores the graph's input first as `__start__` and then, the
            same values again, as the channels it is for.
    """

    inline: dict[str, Any] = field(default_factory=dict)
    written: list[tuple[ManifestEntry, list[Typed]]] = field(default_factory=list)
    carried: list[ManifestEntry] = field(default_factory=list)
    digests: dict[bytes, ManifestEntry] = field(default_factory=dict)

    def manifest(self) -> dict[str, ManifestEntry]:
        """All values that lie in documents of their own, by channel."""
        entries = [*self.carried, *(entry for entry, _ in self.written)]
        return {entry.channel: entry for entry in entries}


class Planner:
    """Decides for every channel of a checkpoint.

    A value is carried over when the parent holds its channel at that very version and
    the step did not write the channel; also when the value itself is not given, since
    LangGraph leaves an unchanged `DeltaChannel` snapshot out of later checkpoints.
    Otherwise it is stored anew, whatever `new_versions` says, unless the parent holds
    the same bytes as an item of a reserved channel.

    Args:
        codec: The serializer.
        checkpoint: The checkpoint with its channel values.
        new_versions: The channels that this step wrote, with their versions.
        held: The parent's manifest.
        digests: Large items that the parent holds, by digest.
        own: Channels whose values must have keys of this checkpoint alone.
    """

    def __init__(
        self,
        codec: Codec,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        held: Mapping[str, ManifestEntry],
        digests: Mapping[bytes, ManifestEntry],
        own: Collection[str] = (),
    ) -> None:
        self._codec, self._checkpoint = codec, checkpoint
        self._new_versions, self._held, self._digests = new_versions, held, digests
        self._own = own
        self._versions = checkpoint.get("channel_versions") or {}
        self._plan = Plan()

    def plan(self) -> Plan:
        """Make the plan."""
        values = self._checkpoint.get("channel_values") or {}
        small: list[tuple[int, str, Any, Typed | None]] = []
        for channel, value in values.items():
            if channel not in self._new_versions and self._carry(channel):
                continue
            size, typed = native_size(value), None
            if size is None:
                typed = self._codec.dumps(value)
                size = len(typed[1])
            if size <= INLINE_VALUE_BYTES and self._may_be_inline(value, typed):
                small.append((size, channel, value, typed))
            else:
                self._write(channel, value, typed)
        for channel in self._versions:
            if channel not in values:
                self._carry(channel)
        for channel, value, typed in self._inline(small):
            self._write(channel, value, typed)
        return self._plan

    def _may_be_inline(self, value: Any, typed: Typed | None) -> bool:
        if isinstance(value, DeltaSnapshot):
            return False
        return typed is None or self._codec.is_native(typed)

    def _carry(self, channel: str) -> bool:
        entry, version = self._held.get(channel), self._versions.get(channel)
        if entry is None or version is None or entry.holds != version_text(version):
            return False
        self._plan.carried.append(entry)
        return True

    def _inline(
        self, small: list[tuple[int, str, Any, Typed | None]]
    ) -> list[tuple[str, Any, Typed | None]]:
        """Put small values inline, the smallest first; return those beyond the total."""
        if sum(size for size, *_ in small) > INLINE_TOTAL_BYTES:
            small = sorted(small, key=lambda item: item[:2])
        room = INLINE_TOTAL_BYTES
        beyond = []
        for size, channel, value, typed in small:
            room -= size
            if room < 0:
                beyond.append((channel, value, typed))
            else:
                self._plan.inline[channel] = value
        return beyond

    def _write(self, channel: str, value: Any, typed: Typed | None) -> None:
        typed = typed or self._codec.dumps(value)
        version = self._versions.get(channel)
        text = version_text(version)
        if self._digests and len(typed[1]) > LARGE_ITEM_BYTES:
            stored = self._digests.get(digest(typed))
            if stored is not None and not isinstance(value, DeltaSnapshot):
                self._plan.carried.append(
                    replace(
                        stored,
                        channel=channel,
                        channel_version=text,
                        stored_channel=stored.stored_channel or stored.channel,
                    )
                )
                return
        parts = None
        if channel in RESERVED_IN_PARTS:
            parts = split_parts(self._codec, value, typed)
        # A value that this step did not write has been stored before, perhaps, under the
        # shared key, for checkpoints that are just being removed.
        own = channel in self._own or channel not in self._new_versions
        key = value_version(version, self._checkpoint["id"], own=own)
        entry = ManifestEntry(
            channel=channel,
            version=key,
            size=sum(len(data) for _, data in parts or [typed]),
            channel_version=None if key == text else text,
            parts=None if parts is None else len(parts),
            snapshot=isinstance(value, DeltaSnapshot),
        )
        self._plan.written.append((entry, parts or [typed]))
        for number, part in enumerate(parts or ()):
            if len(part[1]) > LARGE_ITEM_BYTES:
                item = replace(entry, parts=None, stored_part=number, size=len(part[1]))
                self._plan.digests[digest(part)] = item
