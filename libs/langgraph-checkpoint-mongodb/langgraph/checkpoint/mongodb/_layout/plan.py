"""Where a put stores each channel value: inline, in documents of its own, or nowhere.

Pure: the decision is made before the first write, from the checkpoint and from what
its parent already holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE, Bundle, bundle_pieces
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed, native_size
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.growing import (
    MAX_PIECES,
    cut_value,
    first_growth,
    header_length,
)
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.parts import (
    LARGE_ITEM_BYTES,
    RESERVED_IN_PARTS,
    digest,
    split_parts,
)
from langgraph.checkpoint.mongodb._layout.pieces import PIECES_VERSION, Pieces
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan
from langgraph.checkpoint.mongodb._layout.values import (
    COPY_CHANNEL,
    value_version,
    values_by_channel,
    version_text,
)

__all__ = [
    "BUNDLED_INLINE_BYTES",
    "INLINE_TOTAL_BYTES",
    "INLINE_VALUE_BYTES",
    "RECENT_TOTAL_BYTES",
    "RECENT_VALUE_BYTES",
    "plan_put",
]

INLINE_VALUE_BYTES = 4 * 1024
"""A value whose serialized form is larger is stored outside of the checkpoint's document."""

INLINE_TOTAL_BYTES = 64 * 1024
"""The inline values of one checkpoint take at most this together."""

BUNDLED_INLINE_BYTES = 8 * 1024
"""The same for a checkpoint that has a bundle: the rest is stored there."""

RECENT_VALUE_BYTES = 16 * 1024
"""A value that changes step after step stays inline up to this size: it would only cost the
command that writes its document, and the next step writes another."""

RECENT_TOTAL_BYTES = 32 * 1024
"""The values that a step wrote and that stay inline as it did take at most this together."""


class _Small(NamedTuple):
    """A value that may be inline: its size, at most, and whether the step wrote it."""

    size: int
    channel: str
    value: Any
    typed: Typed | None
    written: bool


def plan_put(
    codec: Codec,
    checkpoint: Checkpoint,
    new_versions: ChannelVersions,
    parent: CheckpointInfo,
    private: Collection[str] = (),
    salt: int = 0,
) -> PutPlan:
    """Decide for every channel of a checkpoint where its value is stored.

    A value is carried over when the parent holds its channel at that very version and
    the step did not write the channel; also when the value itself is not given, since
    LangGraph leaves an unchanged `DeltaChannel` snapshot out of later checkpoints.
    Otherwise it is stored, whatever `new_versions` has: all of it, except the pieces of the
    parent's value that it begins with; or not at all if the parent holds the same bytes as an
    item of a reserved channel.

    Args:
        codec: The serializer.
        checkpoint: The checkpoint with its channel values.
        new_versions: The channels that this step wrote, with their versions.
        parent: What the parent holds.
        private: Channels whose values must have keys that no other checkpoint has.
        salt: How often pieces got numbers that others have: they get other ones then.
    """
    return _Planner(codec, checkpoint, new_versions, parent, private, salt).plan()


class _Planner:
    """One plan that is being made; the arguments are those of `plan_put`."""

    def __init__(
        self,
        codec: Codec,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        parent: CheckpointInfo,
        private: Collection[str] = (),
        salt: int = 0,
    ) -> None:
        self._codec, self._checkpoint = codec, checkpoint
        self._new_versions, self._parent = new_versions, parent
        self._private = private
        self._versions = checkpoint.get("channel_versions") or {}
        self._values = values_by_channel(checkpoint)
        self._cuts = codec.may_be_cut()
        self._in_bundle: dict[str, str] = {}
        self._recent: list[_Small] = []
        self._plan = PutPlan()
        self._pieces = Pieces(codec, checkpoint["id"], salt, self._plan)

    def plan(self) -> PutPlan:
        """Make the plan.

        Raises:
            ValueError: A channel has a name that this library uses for documents of its own.
        """
        for channel in (self._versions.keys() | self._values.keys()) & _OTHER_MEANING:
            raise ValueError(
                f"Cannot store channel {channel!r}: this checkpointer uses the name for itself. "
                "Give the state's key another name."
            )
        small: list[_Small] = []
        for channel, value in self._values.items():
            written = channel in self._new_versions
            if not written and self._carry(channel):
                continue
            size, typed = native_size(value), None
            if size is None:
                size, typed = self._serialized(channel, value)
            if size <= INLINE_VALUE_BYTES and self._may_be_inline(value, typed):
                small.append(_Small(size, channel, value, typed, written))
            else:
                self._place_large(_Small(size, channel, value, typed, written))
        for channel in self._versions:
            if channel not in self._values and not self._carry(channel):
                self._keep(channel)
        self._place_recent()
        self._place_small(small)
        self._pieces.bound_tails()
        return self._plan

    def _serialized(self, channel: str, value: Any) -> tuple[int, Typed | None]:
        """A value's size, and its serialization; that is in clear for what may be cut."""
        cuttable = type(value) in (list, dict) and channel not in RESERVED_IN_PARTS
        if self._codec.encrypts() and self._cuts and cuttable:
            data = self._codec.dumps_in_clear(value)
            if data:
                return len(data), (_IN_CLEAR, data)
        typed = self._codec.dumps(value)
        return len(typed[1]), typed

    def _may_be_inline(self, value: Any, typed: Typed | None) -> bool:
        if isinstance(value, DeltaSnapshot):
            return False
        return typed is None or typed[0] == _IN_CLEAR or self._codec.is_native(typed)

    def _text(self, channel: str) -> str:
        return version_text(self._versions.get(channel))

    def _carry(self, channel: str) -> bool:
        version = self._versions.get(channel)
        if version is None:
            return False
        text, bundle = version_text(version), self._parent.bundle
        entry = self._parent.manifest.get(channel)
        growth = self._parent.growths.get(channel)
        if entry is not None and entry.holds == text and (growth or entry.pieces is None):
            self._plan.carried.append(entry)
            if growth is not None:
                self._plan.growths[channel] = growth
            return True
        if entry is None and bundle is not None and bundle.live.get(channel) == text:
            self._in_bundle[channel] = text
            return True
        return False

    def _keep(self, channel: str) -> None:
        """Keep an inline value of a channel that this graph does not know.

        A channel that a graph emptied has another version than its parent.
        """
        if self._parent.inline.get(channel) != self._text(channel) or (
            channel in self._new_versions
        ):
            return
        if channel in self._parent.kept:
            self._plan.inline[channel] = self._parent.kept[channel]
        else:
            self._plan.unknown.append(channel)

    # ------------------------------------------------------------ small values

    def _place_recent(self) -> None:
        """Keep values inline that change with every step, as far as there is room."""
        room = RECENT_TOTAL_BYTES
        for one in self._recent:
            room -= one.size
            if room < 0:
                self._write(one)
            else:
                self._plan.inline[one.channel] = one.value
                self._plan.recent.add(one.channel)

    def _place_small(self, small: list[_Small]) -> None:
        """Put small values inline; those beyond the total into a bundle, or into documents."""
        parent, moved = self._parent.bundle, list[_Small]()
        most = INLINE_TOTAL_BYTES if parent is None else BUNDLED_INLINE_BYTES
        if sum(one.size for one in small) > most:
            inline, moved = self._beyond(small)
        else:
            inline = small
        self._plan.inline |= {one.channel: one.value for one in inline}
        if self._cuts and (moved or self._in_bundle):
            self._place_bundle(moved)
        else:
            for one in moved:
                self._write(one)

    def _beyond(self, small: list[_Small]) -> tuple[list[_Small], list[_Small]]:
        """Choose what stays inline, and what does not.

        With a bundle, the values that the step did not write are moved, for good; what it wrote
        may soon be written again. Without one each moved value is a document, so the largest
        are moved.
        """
        if self._cuts:
            written = [one for one in small if one.written]
            if sum(one.size for one in written) > RECENT_TOTAL_BYTES:
                return [], small
            return written, [one for one in small if not one.written]
        room, inline, moved = INLINE_TOTAL_BYTES, list[_Small](), list[_Small]()
        for one in sorted(small, key=lambda one: (one.size, one.channel)):
            room -= one.size
            (inline if room >= 0 else moved).append(one)
        return inline, moved

    def _place_bundle(self, moved: list[_Small]) -> None:
        """Carry the parent's bundle over and add values; write it again if it is mostly dead."""
        parent, entry = self._parent.bundle, self._parent.manifest.get(BUNDLE)
        kept: tuple[int, ...] = ()
        if parent is not None and entry is not None and entry.pieces is not None:
            kept = entry.pieces
        bundle = self._bundle(parent if kept else None, moved)
        if kept and (bundle.is_mostly_dead or len(kept) > MAX_PIECES):
            moved, kept = [*moved, *self._unbundled()], ()
            bundle = self._bundle(None, moved)
        values = [(one.size, one.channel, one.value) for one in moved]
        pieces = list(bundle_pieces(self._codec, values))
        if not all(pieces):
            # What can be serialized alone, but not in a dict, as one that is nested too deep.
            for one in moved:
                self._write(one)
            if not kept:
                return
            pieces, bundle = [], self._bundle(parent, [])
        self._plan.bundle = bundle
        first = ManifestEntry(BUNDLE, PIECES_VERSION, 0, pieces=()) if entry is None else entry
        self._pieces.add(first, kept, [self._codec.seal(piece) for piece in pieces])

    def _bundle(self, before: Bundle | None, added: Iterable[_Small]) -> Bundle:
        """What the bundle holds when values are added to the one before."""
        new = {one.channel: self._text(one.channel) for one in added}
        if before is None:
            return Bundle(len(new), new)
        live = self._in_bundle | new
        return Bundle(before.pairs + len(new), live, (before.names | new.keys()) - live.keys())

    def _unbundled(self) -> list[_Small]:
        """The values of the parent's bundle that count; those not at hand are to be read."""
        at_hand = {**self._parent.kept, **self._values}
        self._plan.unknown += [name for name in self._in_bundle if name not in at_hand]
        # Their sizes were checked when they came to lie there.
        return [
            _Small(INLINE_VALUE_BYTES, channel, at_hand[channel], None, written=False)
            for channel in self._in_bundle
            if channel in at_hand
        ]

    # ------------------------------------------------------------ large values

    def _place_large(self, one: _Small) -> None:
        channel, data = one.channel, self._cuttable(one)
        if not data:
            if self._is_recent(one):
                self._recent.append(one)
            else:
                self._write(one)
            return
        before, entry = self._parent.growths.get(channel), self._parent.manifest.get(channel)
        cut = cut_value(data, before) if before and entry and self._parent.exists else None
        if cut is not None and entry is not None:
            self._pieces.place_cut(channel, self._text(channel), cut, entry)
        elif self._is_recent(one, replaced=before is not None):
            self._recent.append(one)
        else:
            self._write(one)

    def _cuttable(self, one: _Small) -> bytes:
        """The serialization of a list or dict, in the form that LangGraph gives it; else empty."""
        type_, data = one.typed or ("", b"")
        cuttable = (
            self._cuts
            and type_ in ("msgpack", _IN_CLEAR)
            and one.channel not in RESERVED_IN_PARTS
            and header_length(data) > 0
        )
        return data if cuttable else b""

    def _is_recent(self, one: _Small, *, replaced: bool = True) -> bool:
        """Whether a value changes with every step: it did with this and the one before.

        Args:
            one: The value.
            replaced: Whether another value was there, from which it has not grown.
        """
        if one.size > RECENT_VALUE_BYTES or not self._may_be_inline(one.value, one.typed):
            return False
        if one.channel in RESERVED_IN_PARTS:
            return True  # It is there for one step.
        parent = self._parent
        if not one.written or one.channel not in parent.wrote:
            return False
        return replaced or one.channel in parent.recent or not self._cuttable(one)

    def _write(self, one: _Small) -> None:
        channel, value, typed = one.channel, one.value, one.typed
        data = self._cuttable(one)
        if data and self._codec.encrypts():
            self._pieces.write(channel, self._text(channel), data)
            return
        if typed is None or typed[0] == _IN_CLEAR:
            typed = self._codec.dumps(value)
        if self._refer_to_item(channel, value, typed):
            return
        parts = None
        if channel in RESERVED_IN_PARTS:
            parts = split_parts(self._codec, value, typed)
        entry = replace(
            self._new_entry(channel),
            size=sum(len(data) for _, data in parts or [typed]),
            parts=None if parts is None else len(parts),
            snapshot=isinstance(value, DeltaSnapshot),
        )
        self._plan.written.append((entry, parts or [typed]))
        if data:
            self._plan.growths[channel] = first_growth(data)
        for number, part in enumerate(parts or ()):
            if len(part[1]) > LARGE_ITEM_BYTES:
                item = replace(entry, parts=None, stored_part=number, size=len(part[1]))
                self._plan.digests[digest(part)] = item

    def _refer_to_item(self, channel: str, value: Any, typed: Typed) -> bool:
        """Refer to an item of the graph's input that is the same bytes, if there is one."""
        if not self._parent.digests or len(typed[1]) <= LARGE_ITEM_BYTES:
            return False
        item = self._parent.digests.get(digest(typed))
        if item is None or isinstance(value, DeltaSnapshot):
            return False
        self._plan.carried.append(
            replace(
                item,
                channel=channel,
                channel_version=self._text(channel),
                stored_channel=item.stored_channel or item.channel,
            )
        )
        return True

    def _new_entry(self, channel: str) -> ManifestEntry:
        version, text = self._versions.get(channel), self._text(channel)
        # A value that this step did not write has been stored before, perhaps, under the
        # shared key, for checkpoints that are just being removed.
        private = channel in self._private or channel not in self._new_versions
        key = value_version(version, self._checkpoint["id"], private=private)
        return ManifestEntry(channel, key, 0, channel_version=None if key == text else text)


_OTHER_MEANING = frozenset({BUNDLE, COPY_CHANNEL})

_IN_CLEAR = "in clear"
"""The type, here only, of a serialization that is yet to be encrypted."""
