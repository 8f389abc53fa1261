"""Where each channel value of a checkpoint goes: inline, a document of its own, or nowhere.

Pure: the decision is made before the first write, from the checkpoint and from what
its parent already holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph.checkpoint.mongodb._codec import Codec, Typed, is_native, native_size
from langgraph.checkpoint.mongodb._compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._documents import (
    RESERVED_IN_PARTS,
    ManifestEntry,
    split_parts,
    value_version,
    version_text,
)

__all__ = ["INLINE_TOTAL_BYTES", "INLINE_VALUE_BYTES", "Plan", "plan_values"]

INLINE_VALUE_BYTES = 1024
"""A value whose serialized form is larger is a document of its own."""

INLINE_TOTAL_BYTES = 64 * 1024
"""The inline values of one checkpoint take at most this together."""

_PARTS_FROM_BYTES = 1024 * 1024


@dataclass(slots=True)
class Plan:
    """Where the channel values of one checkpoint go.

    Attributes:
        native: Inline values that lie in the checkpoint's serialization as they are.
        typed: Inline values with the type of their own serialization.
        written: Values to be written as documents: entry and serialized parts.
        carried: Values that the parent already holds at the same version.
    """

    native: dict[str, Any] = field(default_factory=dict)
    typed: dict[str, Typed] = field(default_factory=dict)
    written: list[tuple[ManifestEntry, list[Typed]]] = field(default_factory=list)
    carried: list[ManifestEntry] = field(default_factory=list)

    def manifest(self) -> dict[str, ManifestEntry]:
        """All values that lie in documents of their own, by channel."""
        entries = [*self.carried, *(entry for entry, _ in self.written)]
        return {entry.channel: entry for entry in entries}


def plan_values(
    codec: Codec,
    checkpoint: Checkpoint,
    new_versions: ChannelVersions,
    held: Mapping[str, ManifestEntry],
    *,
    own: bool = False,
) -> Plan:
    """Decide for every channel of a checkpoint.

    A value is carried over when the parent holds its channel at that very version and
    the step did not write the channel; also when the value itself is not given, since
    LangGraph leaves an unchanged `DeltaChannel` snapshot out of later checkpoints.
    Otherwise it is stored anew, whatever `new_versions` says.

    Args:
        codec: The serializer.
        checkpoint: The checkpoint with its channel values.
        new_versions: The channels that this step wrote, with their versions.
        held: The parent's manifest.
        own: Key the values by this checkpoint alone.

    Returns:
        The plan.
    """
    plan = Plan()
    versions = checkpoint.get("channel_versions") or {}
    values = checkpoint.get("channel_values") or {}
    small: list[tuple[int, str, Any, Typed | None]] = []
    for channel, value in values.items():
        version = versions.get(channel)
        if channel not in new_versions and (entry := _held(held, channel, version)):
            plan.carried.append(entry)
            continue
        size, typed = native_size(value), None
        if size is None:
            typed = codec.dumps(value)
            size = len(typed[1])
        if size <= INLINE_VALUE_BYTES and not isinstance(value, DeltaSnapshot):
            small.append((size, channel, value, typed))
        else:
            _write(plan, codec, channel, value, typed, version, checkpoint["id"], own)
    for channel, version in versions.items():
        if channel not in values and (entry := _held(held, channel, version)):
            plan.carried.append(entry)
    for channel, value, typed in _inline(plan, small):
        _write(plan, codec, channel, value, typed, versions.get(channel), checkpoint["id"], own)
    return plan


def _held(held: Mapping[str, ManifestEntry], channel: str, version: object) -> ManifestEntry | None:
    entry = held.get(channel)
    if entry is None or version is None or entry.holds != version_text(version):
        return None
    return entry


def _inline(
    plan: Plan, small: list[tuple[int, str, Any, Typed | None]]
) -> list[tuple[str, Any, Typed | None]]:
    """Put small values inline, the smallest first; return those beyond the total."""
    total = sum(size for size, *_ in small)
    if total > INLINE_TOTAL_BYTES:
        small = sorted(small, key=lambda item: item[:2])
    room = INLINE_TOTAL_BYTES
    beyond = []
    for size, channel, value, typed in small:
        room -= size
        if room < 0:
            beyond.append((channel, value, typed))
        elif typed is None or is_native(typed):
            plan.native[channel] = value
        else:
            plan.typed[channel] = typed
    return beyond


def _write(
    plan: Plan,
    codec: Codec,
    channel: str,
    value: Any,
    typed: Typed | None,
    version: object,
    checkpoint_id: str,
    own: bool,
) -> None:
    typed = typed or codec.dumps(value)
    parts = None
    if channel in RESERVED_IN_PARTS and len(typed[1]) > _PARTS_FROM_BYTES:
        parts = split_parts(codec, value)
    key = value_version(version, checkpoint_id, own=own)
    text = version_text(version)
    entry = ManifestEntry(
        channel=channel,
        version=key,
        size=sum(len(data) for _, data in parts or [typed]),
        channel_version=None if key == text else text,
        parts=None if parts is None else len(parts),
        snapshot=isinstance(value, DeltaSnapshot),
    )
    plan.written.append((entry, parts or [typed]))
