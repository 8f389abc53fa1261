"""migrate_thread: a thread of the whole layout becomes a split one, checkpoint by checkpoint.

Each checkpoint is put again in its place, parents first: `SplitPut` plans, measures and writes
its values as for any put. Only the commit is another one (`_Move`). A reader sees a checkpoint
as it was, or as it is then, with the same values. Every step can be repeated after a crash.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from langgraph.checkpoint.base import Checkpoint

from langgraph.checkpoint.mongodb._database.driver import USUAL_LIMIT
from langgraph.checkpoint.mongodb._database.port import Update
from langgraph.checkpoint.mongodb._layout.checkpoint import ALL_FIELDS, KEY_FIELDS, CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec, document_size
from langgraph.checkpoint.mongodb._layout.found import Found
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, checkpoint_queries
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, layout_of
from langgraph.checkpoint.mongodb._layout.metadata import has_old_form
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan
from langgraph.checkpoint.mongodb._layout.states import CLAIMED, REKEYED, RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._layout.ttl import aware, value_stamp
from langgraph.checkpoint.mongodb._layout.whole import as_strings, strings_of
from langgraph.checkpoint.mongodb._operations.arguments import checked
from langgraph.checkpoint.mongodb._operations.commit import Committed, required
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import learn
from langgraph.checkpoint.mongodb._operations.memory import Memory
from langgraph.checkpoint.mongodb._operations.put_split import SplitPut
from langgraph.checkpoint.mongodb._operations.reading import decode
from langgraph.checkpoint.mongodb.errors import OldMetadataError

__all__ = ["migrate_thread"]

logger = logging.getLogger(__name__)

# A running graph can put whole checkpoints as fast as they are migrated.
_PASSES = 20

# Each further attempt needs another change of the same checkpoint at that very moment.
_ATTEMPTS = 10

# How far ahead values are stamped where the TTL is not known.
_SLACK = timedelta(hours=1)

# Documents fetched at a time, as far as one answer of the server's holds them.
_BATCH = 8

# Of so many checkpoints it is known how their values lie: a fork mostly begins at a near one.
_LINES = 16

# What an entry of a manifest takes at most, long names aside.
_ENTRY_BYTES = 512

_KEY_FIELDS: Document = {**KEY_FIELDS, "parent_checkpoint_id": 1, "layout": 1, UNPROVEN: 1}


async def migrate_thread(context: Context, thread_id: str) -> int:
    """Migrate a thread; see `MongoDBSaver.migrate_thread`."""
    checked(thread_id, "thread_id")
    moved = 0
    # What the saver remembers stays: a run that is under way on it counts in integers to its end,
    # and its next checkpoint is to be a whole one.
    context = replace(context, memory=Memory())
    lines = _Lines(context)
    for _ in range(_PASSES):
        waiting = await _whole_checkpoints(context, thread_id)
        if not waiting:
            break
        moved += await _migrate(context, lines, waiting)
    else:
        logger.debug("Thread %r: is put into as fast as it is migrated.", thread_id)
    logger.debug("Thread %r: migrated %d checkpoints.", thread_id, moved)
    return moved


async def _whole_checkpoints(context: Context, thread_id: str) -> list[CheckpointKey]:
    """The checkpoints of a thread that are to be migrated, each after its parent.

    Raises:
        UnknownLayoutError: A newer release wrote one; nothing has been changed.
    """
    query = {"thread_id": thread_id}
    found = await context.io.find("checkpoints", query, _KEY_FIELDS, primary=True)
    # One that is just being put is not there yet: a later pass, or migration, finds it.
    parents = {
        CheckpointKey.of(document): document.get("parent_checkpoint_id")
        for document in found
        if layout_of(document) != SPLIT and not document.get(UNPROVEN)
    }
    ordered: dict[CheckpointKey, None] = {}
    for key in sorted(parents):
        line = []
        # Ids grow along a line of descent, mostly.
        while key in parents and key not in ordered and key not in line:
            line.append(key)
            key = key._replace(checkpoint_id=parents[key] or "")
        ordered |= dict.fromkeys(reversed(line))
    return [*ordered]


async def _migrate(context: Context, lines: _Lines, waiting: Sequence[CheckpointKey]) -> int:
    moved = 0
    for batch in _batches(waiting):
        left = [*batch]
        while left:
            (query,) = checkpoint_queries(left)
            order = [("checkpoint_id", 1)]
            found = await context.io.find(
                "checkpoints", query, ALL_FIELDS, sort=order, limit=len(left), primary=True
            )
            documents = {CheckpointKey.of(document): document for document in found}
            if not documents:
                break  # Removed meanwhile.
            for key in [one for one in left if one in documents]:
                moved += await _move(context, lines, documents.pop(key))
                left.remove(key)
    return moved


def _batches(keys: Sequence[CheckpointKey]) -> Iterator[list[CheckpointKey]]:
    """Neighbours of one namespace."""
    batch: list[CheckpointKey] = []
    for key in keys:
        if batch and (len(batch) == _BATCH or batch[0].checkpoint_ns != key.checkpoint_ns):
            yield batch
            batch = []
        batch.append(key)
    if batch:
        yield batch


async def _move(context: Context, lines: _Lines, document: Document | None) -> bool:
    """Migrate one checkpoint, as it is by now if it is changed meanwhile.

    Returns:
        Whether it was done here.
    """
    key = CheckpointKey.of(document) if document else CheckpointKey("", "", "")
    for _ in range(_ATTEMPTS):
        if document is None or layout_of(document) == SPLIT:
            return False
        _check_origin(document)
        line = await lines.before(document)
        checkpoint = await _read(context, document, line)
        move = _Move(context, document, checkpoint, line, await context.io.now())
        try:
            await move.store(move.parent, None)
        except _ChangedError:
            found = await context.io.find(
                "checkpoints", key.query(), ALL_FIELDS, limit=1, primary=True
            )
            document = found[0] if found else None
            continue
        lines.add(key, move.line())
        return True
    raise RuntimeError(
        f"Checkpoint {key.checkpoint_id!r} of thread {key.thread_id!r} was changed "
        f"{_ATTEMPTS} times while it was migrated. Try again when nothing else writes to it."
    )


def _check_origin(document: Document) -> None:
    """Refuse what older releases of this saver have not written."""
    metadata = document.get("metadata")
    if isinstance(metadata, bytes):
        raise ValueError(
            f"Cannot migrate thread {document['thread_id']!r}: the JavaScript saver wrote "
            f"checkpoint {document['checkpoint_id']!r}. Go on with the thread there."
        )
    if has_old_form(metadata):
        raise OldMetadataError


async def _read(context: Context, document: Document, line: _Line) -> Checkpoint:
    """A whole checkpoint as it is read, with the versions that it has in the split layout.

    Raises:
        ValueError: Some of its objects cannot be made here, and would be lost.
    """
    found = Found.of(document)
    size = len(document["checkpoint"])
    lost = await context.io.offload(size, _lost, context.codec, document)
    if lost:
        raise ValueError(
            f"Cannot migrate checkpoint {document['checkpoint_id']!r} of thread "
            f"{document['thread_id']!r}: its state holds objects of {', '.join(lost)}, which "
            "cannot be imported, or may not, and would be lost. Migrate where the classes of the "
            "application can be imported, with its serializer. This checkpoint is as it was."
        )
    read = (await decode(context, found)).checkpoint
    checkpoint: Checkpoint = as_strings(document, read, line.strings)
    return checkpoint


def _lost(codec: Codec, document: Document) -> list[str]:
    stored = document["type"], document["checkpoint"]
    return codec.lost_in_loading(stored, codec.loads(stored))


@dataclass(frozen=True, slots=True)
class _Line:
    """What is known of a checkpoint that another one follows.

    Attributes:
        parent: How its values lie; one that is not stored if nothing can be carried over.
        strings: Its versions, by the integers they begin with.
        fingerprints: Those of its values that lie in documents, by channel; only if its
            values were at hand.
        versions: Its channel versions.
    """

    parent: CheckpointInfo
    strings: Mapping[int, str] = field(default_factory=dict)
    fingerprints: Mapping[str, bytes] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)


_NOTHING = _Line(CheckpointInfo.absent(SPLIT))


class _Lines:
    """The checkpoints that were migrated last, for those that follow them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: OrderedDict[CheckpointKey, _Line] = OrderedDict()

    def add(self, key: CheckpointKey, line: _Line) -> None:
        """Keep what is known of a checkpoint."""
        self._known[key] = line
        while len(self._known) > _LINES:
            self._known.popitem(last=False)

    async def before(self, document: Document) -> _Line:
        """What is known of a checkpoint's parent."""
        parent_id = document.get("parent_checkpoint_id")
        if not parent_id:
            return _NOTHING
        key = CheckpointKey.of(document)._replace(checkpoint_id=parent_id)
        if key not in self._known:
            self.add(key, await self._read(key))
        self._known.move_to_end(key)
        return self._known[key]

    async def _read(self, key: CheckpointKey) -> _Line:
        query = {**key.query(), UNPROVEN: None}
        found = await self._context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
        if not found or layout_of(found[0]) != SPLIT:
            return _NOTHING
        checkpoint = SPLIT.read(self._context.codec, found[0]).checkpoint
        hidden = found[0].get(RETAINED)
        parent = _NOTHING.parent if hidden else await learn(self._context, found[0])
        versions = checkpoint.get("channel_versions") or {}
        return _Line(parent, strings_of(checkpoint), versions=versions)


class _ChangedError(Exception):
    """The checkpoint is not any more what was read."""


class _Move(SplitPut):
    """A whole checkpoint, put again in the split layout.

    Args:
        call: What the call works with.
        document: Its document.
        checkpoint: The checkpoint with the versions that it gets.
        line: What is known of its parent.
        began: When this began, by the server's time.

    Attributes:
        parent: What it may carry values over from.
    """

    def __init__(
        self,
        context: Context,
        document: Document,
        checkpoint: Checkpoint,
        line: _Line,
        began: datetime,
    ) -> None:
        fields = {name: document[name] for name in document.keys() - {"_id", CLAIMED}}
        fields.setdefault("parent_checkpoint_id", None)
        if "created_at" in fields:
            fields["created_at"] = aware(fields["created_at"])
        # Deltas are rebuilt from the ancestors that are there: nothing is new in that.
        super().__init__(context, CheckpointKey.of(document), checkpoint, {}, fields, {}, began)
        self._document = document
        self._versions: Mapping[str, Any] = checkpoint.get("channel_versions") or {}
        self._fingerprints: dict[str, bytes] = {}
        # Whole and claimed it must fit, too, for a moment.
        self.parent = line.parent if _fits(document, line.parent, self.values) else _NOTHING.parent
        as_parent = {
            name
            for name in self.values.keys() & self._versions.keys()
            if self._versions[name] == line.versions.get(name)
        }
        self._same = {
            name
            for name in as_parent & line.fingerprints.keys()
            if self._fingerprint(name) == line.fingerprints[name]
        }
        # The parent's text for the version is taken by the parent's value.
        self._unlike = as_parent - self._same
        self.new_versions = {
            name: self._versions[name]
            for name in self.values.keys() & self._versions.keys() - self._same
        }

    def _fingerprint(self, channel: str) -> bytes:
        if channel not in self._fingerprints:
            value = self.values[channel]
            self._fingerprints[channel] = self.context.codec.fingerprint(value)
        return self._fingerprints[channel]

    def line(self) -> _Line:
        """What is known of it, once it is stored, for those that follow it."""
        parent = self.context.memory.info(self.key)
        strings = strings_of({**self.checkpoint})
        if parent is None or self._document.get(RETAINED):
            return _Line(_NOTHING.parent, strings, versions=self._versions)
        outside = {*parent.manifest, *(parent.bundle.live if parent.bundle else ())}
        prints = {name: self._fingerprint(name) for name in outside & self.values.keys()}
        return _Line(parent, strings, prints, self._versions)

    async def _plan(self, parent: CheckpointInfo, own: Collection[str], salt: int) -> PutPlan:
        return await super()._plan(self._restricted(parent), {*own, *self._unlike}, salt)

    def _restricted(self, parent: CheckpointInfo) -> CheckpointInfo:
        """The parent without the values that the checkpoint does not have.

        In the whole layout a channel that is not there has no value, not that of the parent.
        """
        bundle = parent.bundle
        if bundle is not None:
            live = {name: text for name, text in bundle.live.items() if name in self._same}
            bundle = replace(bundle, live=live, dead=bundle.names - live.keys())
        manifest = {
            name: entry
            for name, entry in parent.manifest.items()
            if name in self.values or name not in self._versions
        }
        return replace(parent, manifest=manifest, bundle=bundle, inline={}, kept={})

    def _value_stamp(self) -> datetime | None:
        stamp: datetime | None = self.fields.get("created_at")
        if stamp is None:
            return None
        # Of now: the checkpoint's own may be renewed at this moment, without them.
        at = max(stamp, self.began)
        return at + _SLACK if self.context.ttl is None else value_stamp(self.context.ttl, at)

    async def _stamp_again(self, plan: PutPlan) -> datetime | None:
        return self._value_stamp()  # The checkpoint keeps its own, however long this takes.

    async def _commit(self, plan: PutPlan, parent: CheckpointInfo, *, checking: bool) -> Committed:
        """Make the checkpoint a split one, if it is still what was read, and its parent is there.

        Raises:
            _ChangedError: It is not.
        """
        if checking and not await self._all_stored(plan):
            return Committed(created=False, proven=False)
        there = {name: self._document.get(name) for name in _IDENTIFYING}
        there |= {**self.key.query(), "layout": None}
        split = {name: self.fields[name] for name in _SPLIT if name in self.fields}
        same = dict(there)
        if len(self._document["checkpoint"]) + len(split["checkpoint"]) < _MOST_COMPARED:
            same["checkpoint"] = self._document["checkpoint"]
        change = Update(same, {"$set": split, "$unset": {CLAIMED: ""}})
        updates = [change]
        if plan.carried:
            parent_key = self.key._replace(checkpoint_id=self.fields["parent_checkpoint_id"])
            claim = Update(there, {"$set": {CLAIMED: split["channels"]}})
            updates = [claim, required(self.key, parent_key, parent.rekeyed), change]
        done = await self.context.io.update("checkpoints", updates)
        if not done.stopped and done.missed:
            raise _ChangedError
        return Committed(created=False, proven=not done.stopped)


# What the commit sets.
_SPLIT = ("layout", "type", "checkpoint", "channels", REKEYED)

# Fields that tell whether the checkpoint was put anew, or values that nothing names were swept.
_IDENTIFYING = ("_id", "type", "parent_checkpoint_id", "created_at", REKEYED)

# A larger state is not sent as a query: with the rest it would be too large for one.
_MOST_COMPARED = 12 * 1024 * 1024


def _fits(document: Document, parent: CheckpointInfo, values: Mapping[str, Any]) -> bool:
    """Whether a whole document has room for a claim."""
    names = sum(len(name.encode()) for name in (*parent.manifest, *values))
    pieces = sum(len(entry.pieces or ()) for entry in parent.manifest.values())
    claim = (len(parent.manifest) + len(values)) * _ENTRY_BYTES + 2 * names + 4 * pieces
    payload = document["checkpoint"]
    return document_size({**document, "checkpoint": b""}, payload) + claim < USUAL_LIMIT
