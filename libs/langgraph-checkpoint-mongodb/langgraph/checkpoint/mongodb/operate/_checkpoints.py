"""verify: one checkpoint document, and whether what it names is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import PyMongoError

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE, load_bundle
from langgraph.checkpoint.mongodb._layout.checkpoint import delta_channels
from langgraph.checkpoint.mongodb._layout.growing import Growth, digest_of
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._layout.layouts import layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.metadata import has_old_form
from langgraph.checkpoint.mongodb._layout.packing import Unpacked, is_packed
from langgraph.checkpoint.mongodb._layout.states import CLAIMED, DOOMED, RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._layout.ttl import aware
from langgraph.checkpoint.mongodb._layout.values import version_text
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError, UnknownLayoutError
from langgraph.checkpoint.mongodb.operate._findings import Finding
from langgraph.checkpoint.mongodb.operate._store import Store
from langgraph.checkpoint.mongodb.operate._values import Values, bodies_of, is_old_mark, named

__all__ = ["Checkpoints"]


class Checkpoints:
    """The checkpoints of one thread, seen one after another.

    Args:
        store: What is read.
        values: The thread's value documents, all seen.
        long_ago: What is younger may be under way.

    Attributes:
        parents: The parent of each that was seen.
        named: The value documents that they name.
        retained: Whether some are kept for delta channels alone.
    """

    def __init__(self, store: Store, values: Values, long_ago: ObjectId) -> None:
        self._store, self._values, self._long_ago = store, values, long_ago
        self.parents: dict[CheckpointKey, str | None] = {}
        self.named: set[ValueKey] = set()
        self.retained = False
        self._compared: set[tuple[Any, ...]] = set()
        self._cut: list[tuple[CheckpointKey, list[str]]] = []

    def see(self, document: Document) -> Iterator[Finding]:
        """Look at one document."""
        key = CheckpointKey(*(document.get(name) for name in CheckpointKey._fields))  # type: ignore[arg-type]
        texts = (key.checkpoint_ns, key.checkpoint_id)
        parent_id = document.get("parent_checkpoint_id")
        if not all(isinstance(one, str) for one in texts) or not isinstance(parent_id or "", str):
            what = f"checkpoint document {document['_id']!r} has no whole key"
            yield Finding("key", what, key.thread_id)
            return
        if key in self.parents:
            yield Finding("duplicate-checkpoint", "it is stored twice", *key)
        self.parents[key] = parent_id
        self.retained |= bool(document.get(RETAINED))
        yield from self._marks(key, document)
        yield from self._metadata(key, document)
        try:
            layout = layout_of(document)
        except UnknownLayoutError as error:
            yield Finding("layout-unknown", str(error), *key)
            return
        packed = is_packed(document)
        if packed != layout.divides or layout.divides != ("channels" in document):
            what = f"its layout is {layout.number}, and its type {document.get('type')!r}"
            yield Finding("layout-mixed", what, *key)
            return
        if document.get(UNPROVEN):
            return  # Readers do not see it, so it may lack what it names.
        manifest: dict[str, ManifestEntry] = {}
        yield from self._manifest(key, document, "channels", manifest)
        try:
            unpacked = layout.read(self._store.context.codec, document)
            yield from self._state(key, document, manifest, unpacked)
        except PyMongoError:
            raise
        except Exception as error:
            # Whatever the serializer raises for bytes that are not its own.
            reason = f"{type(error).__name__}: {error}"
            yield Finding("state", f"its state cannot be read: {reason[:200]}", *key)

    def end(self) -> Iterator[Finding]:
        """What only all of them together tell."""
        for key, channels in self._cut:
            parent = key._replace(checkpoint_id=self.parents[key] or "")
            if parent not in self.parents:
                what = f"{', '.join(map(repr, channels))}: rebuilt from checkpoints that are gone"
                yield Finding("history-cut", what, *key)
        yield from self._loops()

    def _loops(self) -> Iterator[Finding]:
        done: set[CheckpointKey] = set()
        for key in self.parents:
            line: dict[CheckpointKey, None] = {}
            at = key
            while at in self.parents and at not in done and at not in line:
                line[at] = None
                at = at._replace(checkpoint_id=self.parents[at] or "")
            if at in line:
                yield Finding("loop", "it is an ancestor of itself", *at)
            done |= line.keys()

    def _marks(self, key: CheckpointKey, document: Document) -> Iterator[Finding]:
        id_ = document.get("_id")
        old = isinstance(id_, ObjectId) and id_ < self._long_ago
        if is_old_mark(document.get(DOOMED), self._long_ago):
            yield Finding("doomed", "it was to be removed, and is there", *key)
        if document.get(UNPROVEN):
            if old:
                yield Finding("unproven", "its put did not come to its end", *key)
            yield from self._manifest(key, document, "channels", looking=False)
        if CLAIMED in document:
            yield Finding("claimed", "its migration did not come to its end", *key)
            yield from self._manifest(key, document, CLAIMED, looking=False)

    def _metadata(self, key: CheckpointKey, document: Document) -> Iterator[Finding]:
        stored = document.get("metadata")
        if has_old_form(stored):
            yield Finding("metadata-old", "its metadata has the form of before 0.2.2", *key)
            return
        try:
            self._store.context.codec.loads_metadata(document)
        except Exception as error:
            # Whatever the serializer raises for bytes that are not its own.
            what = f"its metadata cannot be read: {type(error).__name__}: {error}"
            yield Finding("metadata", what[:300], *key)

    def _manifest(
        self,
        key: CheckpointKey,
        document: Document,
        name: str,
        manifest: dict[str, ManifestEntry] | None = None,
        *,
        looking: bool = True,
    ) -> Iterator[Finding]:
        """Read a manifest.

        Args:
            key: The checkpoint.
            document: Its document.
            name: The field.
            manifest: Where the entries go, by channel.
            looking: Whether what it names is to be there.
        """
        manifest = {} if manifest is None else manifest
        entries = document.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
            yield Finding("manifest", "its manifest is no list of entries", *key)
            return
        for one in entries:
            try:
                entry = ManifestEntry.from_document(one)
            except DamagedCheckpointError as error:
                yield Finding("manifest", error.what, *key)
                continue
            if entry.channel in manifest:
                yield Finding("manifest", f"it names channel {entry.channel!r} twice", *key)
            manifest[entry.channel] = entry
            self.named.update(entry.keys(key))
            if looking:
                yield from self._entry(key, entry, aware(document.get("created_at")))

    def _entry(
        self, key: CheckpointKey, entry: ManifestEntry, stamp: datetime | None
    ) -> Iterator[Finding]:
        """Whether what an entry names is there, and of its size."""
        known = [self._values.known.get(one) for one in entry.keys(key)]
        kind = "part" if entry.parts is not None else "value"
        kind = "piece" if entry.pieces is not None else kind
        for one, found in zip(entry.keys(key), known, strict=True):
            if found is None:
                yield Finding(f"{kind}-missing", f"{named(one)} is not there", *key)
            elif found.stamp is not None and (stamp is None or found.stamp < stamp):
                yield Finding("stamp", f"{named(one)} expires before the checkpoint", *key)
        there = [one for one in known if one is not None]
        if len(there) < len(known) or entry.pieces is not None:
            return
        size = sum(one.size for one in there)
        if size != entry.size:
            what = f"it names {entry.size:,} bytes of {entry.channel!r}, and {size:,} are there"
            yield Finding("value-size", what, *key)
        if entry.parts is not None and there and there[0].parts != entry.parts - 1:
            what = f"channel {entry.channel!r} has {entry.parts} parts, and its first tells others"
            yield Finding("parts", what, *key)

    def _state(
        self,
        key: CheckpointKey,
        document: Document,
        manifest: Mapping[str, ManifestEntry],
        unpacked: Unpacked,
    ) -> Iterator[Finding]:
        checkpoint: Mapping[str, Any] = unpacked.checkpoint
        if checkpoint.get("id") != key.checkpoint_id:
            yield Finding("id", f"its state is that of checkpoint {checkpoint.get('id')!r}", *key)
        versions = checkpoint.get("channel_versions") or {}
        values = checkpoint.get("channel_values") or {}
        for channel, entry in manifest.items():
            if channel == BUNDLE:
                yield from self._bundle(key, entry, unpacked)
            elif entry.pieces is not None:
                yield from self._pieces(key, entry, unpacked.growths.get(channel))
            elif entry.holds != version_text(versions.get(channel)):
                what = (
                    f"it names the value of {channel!r} at version {entry.holds!r}, and is at "
                    f"{version_text(versions.get(channel))!r}"
                )
                yield Finding("value-version", what, *key)
        rebuilt = delta_channels(document) & versions.keys() - values.keys() - manifest.keys()
        if rebuilt and self.parents[key] and not document.get(RETAINED):
            self._cut.append((key, sorted(rebuilt)))

    def _pieces(
        self, key: CheckpointKey, entry: ManifestEntry, growth: Growth | None
    ) -> Iterator[Finding]:
        """Whether pieces are as many, as long, and what they were when they were cut."""
        keys = entry.keys(key)
        count = sum(group.count for group in growth.groups) if growth else 0
        if growth is None or count != len(keys):
            what = f"channel {entry.channel!r} has {len(keys)} pieces, and its state tells {count}"
            yield Finding("pieces", what, *key)
            return
        at = 0
        for group in growth.groups:
            of_group = keys[at : at + group.count]
            at += group.count
            seen = (*of_group, group.digest)
            known = [self._values.known.get(one) for one in of_group]
            if None in known or seen in self._compared:
                continue
            self._compared.add(seen)
            bodies = bodies_of(self._store, key, of_group)
            size = sum(map(len, bodies))
            if size != group.size or digest_of(b"".join(bodies)) != group.digest:
                what = f"{named(of_group[0])} is not what was stored"
                yield Finding("piece-changed", what, *key)

    def _bundle(
        self, key: CheckpointKey, entry: ManifestEntry, unpacked: Unpacked
    ) -> Iterator[Finding]:
        keys = entry.keys(key)
        seen = (*keys, unpacked.pairs)
        if seen in self._compared or any(one not in self._values.known for one in keys):
            return
        self._compared.add(seen)
        bodies = bodies_of(self._store, key, keys)
        try:
            load_bundle(self._store.context.codec, bodies, unpacked.pairs, unpacked.dead)
        except Exception as error:
            # Whatever the serializer raises for bytes that are not its own.
            what = f"its small values cannot be read: {type(error).__name__}: {error}"
            yield Finding("bundle", what[:300], *key)
