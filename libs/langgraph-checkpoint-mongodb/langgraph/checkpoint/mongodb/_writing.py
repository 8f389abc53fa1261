"""put: decided, measured, and only then written.

Values first, the checkpoint's own document last; `_commit` says what makes that safe
while others remove checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bson import ObjectId
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from langgraph.checkpoint.mongodb._bundle import BUNDLE
from langgraph.checkpoint.mongodb._codec import Typed, document_size, estimate_size, explained
from langgraph.checkpoint.mongodb._commit import (
    DOOMED,
    REKEYED,
    UNPROVEN,
    VISIBLE,
    Committed,
    commit,
)
from langgraph.checkpoint.mongodb._compat import COUNTERS
from langgraph.checkpoint.mongodb._conflict import parent_again
from langgraph.checkpoint.mongodb._documents import (
    LAYOUT,
    UNCOUNTED,
    VALUE_KEY,
    CheckpointKey,
    Document,
    ManifestEntry,
    ValueKey,
    layout_of,
    payload_size,
    value_documents,
    version_text,
)
from langgraph.checkpoint.mongodb._memory import Life, Parent, Planning
from langgraph.checkpoint.mongodb._packing import pack_checkpoint
from langgraph.checkpoint.mongodb._parts import describe_part
from langgraph.checkpoint.mongodb._plan import Plan, Planner
from langgraph.checkpoint.mongodb._port import Call, Update
from langgraph.checkpoint.mongodb._queries import (
    ALL_FIELDS,
    NEWEST_OF_ROOT_FIRST,
    PARENT_FIELDS,
    callers_of,
    config_of,
    put_key,
    value_queries,
)
from langgraph.checkpoint.mongodb._reading import learn, read_values, small_values
from langgraph.checkpoint.mongodb._renewal import renew
from langgraph.checkpoint.mongodb._ttl import value_stamp
from langgraph.checkpoint.mongodb._whole import whole_fields
from langgraph.checkpoint.mongodb.errors import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
)

__all__ = ["OFFLOAD_ENOUGH", "SplitPut", "check_payload", "put"]

_INPUT = "__start__"

# What a put takes at most, unless its process was suspended: then it looks again.
_LATE = timedelta(minutes=5)

OFFLOAD_ENOUGH = 1024 * 1024
"""No more of a value's bytes are counted to choose where to serialize it."""

_VALUE_DOCUMENT = "its value document"

# No server's limit is smaller.
_CHECK_FROM = 512 * 1024

# Each further attempt needs another removal at that very moment.
_ATTEMPTS = 5


async def put(
    call: Call,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> RunnableConfig:
    """Store a checkpoint; see `MongoDBSaver.put`."""
    key, parent_id = put_key(config, checkpoint)
    parent = await _parent(call, key, parent_id)
    metadata = get_checkpoint_metadata(config, metadata)
    fields = _common_fields(call, parent_id, metadata)
    began = await call.io.now()
    if call.ttl is not None:
        fields["created_at"] = began
    rebuilt = _rebuilt(checkpoint, metadata)
    if unknown := _unknown(checkpoint, parent, {*rebuilt, *new_versions}):
        fields[UNCOUNTED] = sorted(unknown)
        rebuilt |= unknown
    callers = callers_of(key, metadata.get("parents"))
    await renew(call, callers)
    if rebuilt and parent_id and not parent.stored:
        await _give_up(call, key, False, rebuilt)
    # What is no mapping by channel cannot be divided: it is taken whole.
    if parent.layout == LAYOUT and isinstance(checkpoint.get("channel_values", {}), Mapping):
        split = SplitPut(call, key, checkpoint, rebuilt, fields, new_versions, began)
        with call.io.memory.planning(key) if _INPUT in split.values else nullcontext() as planning:
            await split.store(parent, planning)
    else:
        await _put_whole(call, key, checkpoint, fields, parent, rebuilt if parent.stored else {})
    call.io.memory.note_life(key, Life.of(fields, callers))
    return config_of(key)


async def _parent(call: Call, key: CheckpointKey, parent_id: str | None) -> Parent:
    """What is known of the parent, from memory or by a small query."""
    memory = call.io.memory
    if parent_id:
        parent_key = key._replace(checkpoint_id=parent_id)
        if known := memory.parent(parent_key):
            return known
        query = {**parent_key.query(), **VISIBLE}
        if memory.layout(key.thread_id) in (None, LAYOUT):
            # Whole: how its values are cut stands in the packed checkpoint.
            split = {**query, "layout": LAYOUT}
            if found := await call.io.find("checkpoints", split, ALL_FIELDS, most=1, fresh=True):
                return await learn(call, found[0])
        found = await call.io.find("checkpoints", query, PARENT_FIELDS, most=1, fresh=True)
        if found:
            return Parent.of(found[0])
    layout = memory.layout(key.thread_id)
    if layout is None:
        thread = {"thread_id": key.thread_id}
        found = await call.io.find(
            "checkpoints", thread, PARENT_FIELDS, sort=NEWEST_OF_ROOT_FIRST, most=1, fresh=True
        )
        layout = layout_of(found[0]) if found else LAYOUT
    return Parent(layout, {}, stored=False)


def _common_fields(call: Call, parent_id: str | None, metadata: CheckpointMetadata) -> Document:
    """The fields that both layouts have."""
    fields: Document = {
        "parent_checkpoint_id": parent_id,
        "metadata": call.codec.dumps_metadata(metadata),
    }
    if isinstance(run_id := metadata.get("run_id"), str):
        fields["run_id"] = run_id
    return fields


async def _put_whole(
    call: Call,
    key: CheckpointKey,
    checkpoint: Checkpoint,
    fields: Document,
    parent: Parent,
    rebuilt: Mapping[str, str],
) -> None:
    """Store a checkpoint of a thread that began in the whole layout."""
    values: Any = checkpoint.get("channel_values") or {}
    by_channel = values if isinstance(values, Mapping) else {"": values}
    with explained(call.codec, by_channel.items(), key.thread_id):
        fields |= await call.io.offload(_size_of(by_channel), whole_fields, call.codec, checkpoint)
    what = "its channel values, which this thread's old layout keeps together"
    await _check_checkpoint(call, key, {**fields, UNPROVEN: True} if rebuilt else fields, what)
    parent_key = key._replace(checkpoint_id=fields["parent_checkpoint_id"]) if rebuilt else None
    created = False
    for attempt in range(_ATTEMPTS):
        done = await commit(call, key, fields, relies_on=parent_key, rekeyed=parent.rekeyed)
        created |= done.created
        if done.proven:
            break
        parent = await parent_again(call, key, fields, rebuilt)
        if not parent.stored or attempt + 1 == _ATTEMPTS:
            await _give_up(call, key, created, rebuilt)
    known = Parent(1, {}, fields.get("created_at"), rebuilt=frozenset(rebuilt))
    call.io.memory.remember(key, known)


def _rebuilt(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The delta channels that only a checkpoint's ancestors hold, with their versions."""
    versions = checkpoint.get("channel_versions") or {}
    # A channel that was never written is counted, too.
    counted = metadata.get(COUNTERS) or {}
    return {channel: version_text(versions[channel]) for channel in counted if channel in versions}


def _unknown(checkpoint: Checkpoint, parent: Parent, known: Collection[str]) -> dict[str, str]:
    """The delta channels that only ancestors hold, and of which the graph says nothing."""
    versions = checkpoint.get("channel_versions") or {}
    values = checkpoint.get("channel_values") or {}
    return {
        channel: version_text(versions[channel])
        for channel in parent.rebuilt
        if channel in versions and channel not in values and channel not in known
        # A snapshot is counted after the next step, and carried over.
        if not parent.holds(channel, version_text(versions[channel]))
    }


async def _give_up(call: Call, key: CheckpointKey, created: bool, lost: Mapping[str, str]) -> None:
    """Leave nothing of a checkpoint that cannot be stored whole, and say so."""
    if created:
        await call.io.delete("checkpoints", key.query())
    raise MissingChannelValueError(*key, sorted(lost.items()))


class SplitPut:
    """One put in the split layout.

    Args:
        call: What the call works with.
        key: The checkpoint's key.
        checkpoint: The checkpoint.
        rebuilt: Its delta channels that only its ancestors hold, with their versions.
        fields: Those fields of its document that do not depend on the channel values.
        new_versions: The channels that the step wrote.
        began: When it began, by the server's time.
    """

    def __init__(
        self,
        call: Call,
        key: CheckpointKey,
        checkpoint: Checkpoint,
        rebuilt: Mapping[str, str],
        fields: Document,
        new_versions: ChannelVersions,
        began: datetime,
    ) -> None:
        self.began = began
        self.call, self.key, self.checkpoint = call, key, checkpoint
        self.fields, self.new_versions = fields, new_versions
        self.values: Mapping[str, Any] = checkpoint.get("channel_values") or {}
        self.rebuilt = rebuilt

    async def store(self, parent: Parent, planning: Planning | None) -> None:
        """Write the checkpoint; again, on its own, if its parent was removed meanwhile."""
        own: set[str] = set()
        created, salt = False, 0
        for attempt in range(_ATTEMPTS):
            if self.fields["parent_checkpoint_id"] and not parent.stored:
                self.fields[REKEYED] = ObjectId()
            plan = await self._plan(parent, own, salt)
            if planning is not None:
                planning.digests = plan.digests
                planning.done.set()
            documents = await self._measured(plan)
            taken = await self._write_values(documents, again=attempt > 0)
            if await self._is_another(plan, documents, taken) and attempt + 1 < _ATTEMPTS:
                salt += 1
                continue
            stamped = await self._stamp(plan, taken, parent)
            if late := await self._is_late():
                stamped = await self._stamp_again(plan)
            done = await self._commit(plan, parent, checking=late or bool(taken))
            created |= done.created
            if done.proven:
                break
            before, parent = (
                parent,
                await parent_again(self.call, self.key, self.fields, self.rebuilt),
            )
            lost = {} if parent.stored else self._not_in_hand(plan)
            if lost or attempt + 1 == _ATTEMPTS:
                lost = lost or {entry.channel: entry.holds for entry, _ in plan.written}
                await _give_up(self.call, self.key, created, lost)
            if not parent.stored:
                own |= {entry.channel for entry in plan.carried}
                kept = {name: plan.inline[name] for name in plan.inline.keys() - self.values.keys()}
                parent = replace(parent, inline=before.inline, kept=kept)
        rekeyed = self.fields.get(REKEYED)
        versions = self.checkpoint.get("channel_versions") or {}
        known = Parent(
            LAYOUT,
            plan.manifest(),
            stamped,
            digests=plan.digests,
            rekeyed=rekeyed,
            growths=plan.growths,
            bundle=plan.bundle,
            wrote=frozenset(self.new_versions),
            recent=frozenset(plan.recent),
            inline={name: version_text(versions.get(name)) for name in plan.inline},
            kept={name: plan.inline[name] for name in plan.inline.keys() - self.values.keys()},
            rebuilt=frozenset(self.rebuilt),
        )
        self.call.io.memory.remember(self.key, known)

    async def _plan(self, parent: Parent, own: Collection[str], salt: int) -> Plan:
        plan = await self._planned(parent, own, salt)
        if plan.unknown:
            # A graph that does not know a channel goes on with a thread that holds its value.
            kept = await self._read_of_parent(plan.unknown)
            parent = replace(parent, kept={**parent.kept, **kept})
            plan = await self._planned(parent, own, salt)
        if plan.unknown:
            await self._lost(plan.unknown)
        return plan

    async def _planned(self, parent: Parent, own: Collection[str], salt: int) -> Plan:
        @explained(self.call.codec, self.values.items(), self.key.thread_id)
        def plan() -> Plan:
            codec, checkpoint = self.call.codec, self.checkpoint
            plan = Planner(codec, checkpoint, self.new_versions, parent, own, salt).plan()
            type_, data = pack_checkpoint(codec, checkpoint, plan.inline, plan.growths, plan.bundle)
            channels = [entry.to_document() for entry in plan.manifest().values()]
            self.fields.update(layout=LAYOUT, type=type_, checkpoint=data, channels=channels)
            return plan

        return await self.call.io.offload(_size_of(self.values), plan)

    async def _read_of_parent(self, channels: Sequence[str]) -> dict[str, Any]:
        """Read values of the parent that lie inline or in its bundle, as far as they do.

        Raises:
            MissingChannelValueError: The parent is gone, or its bundle.
        """
        parent = self.key._replace(checkpoint_id=self.fields["parent_checkpoint_id"])
        query = {**parent.query(), **VISIBLE}
        found = await self.call.io.find("checkpoints", query, ALL_FIELDS, most=1, fresh=True)
        if not found:
            await self._lost(channels)
        values = await small_values(self.call, found[0])
        return {channel: values[channel] for channel in channels if channel in values}

    async def _lost(self, channels: Iterable[str]) -> None:
        versions = self.checkpoint["channel_versions"]
        lost = {channel: version_text(versions[channel]) for channel in channels}
        await _give_up(self.call, self.key, False, lost)

    async def _measured(self, plan: Plan) -> list[Document]:
        """The value documents, all found small enough, as is the checkpoint's."""
        stamp = self._value_stamp()
        documents: list[Document] = []
        for entry, parts in plan.written:
            of_entry = value_documents(self.key, entry, parts, stamp)
            for document in of_entry:
                await check_payload(self.call, document, partial(self._where, parts, document))
            documents += of_entry
        for channel, size in plan.sizes.items():
            await self._check_cut(plan.manifest()[channel], size, stamp)
        what = "its metadata, or the number of its channels"
        # As it is until its parent has been found.
        await _check_checkpoint(self.call, self.key, {**self.fields, UNPROVEN: True}, what)
        return documents

    async def _check_cut(self, entry: ManifestEntry, size: int, stamp: datetime | None) -> None:
        """Make sure that a value in pieces is no larger than one document could hold."""
        if size < _CHECK_FROM:
            return
        whole = ManifestEntry(entry.channel, entry.holds, size)
        (document,) = value_documents(self.key, whole, [("msgpack", b"")], stamp)
        size += payload_size(document)
        limit = await self.call.io.document_limit(size)
        if size > limit:
            raise ChannelTooLargeError(entry.channel, size, limit, _VALUE_DOCUMENT)

    def _where(self, parts: Sequence[Typed], document: Document) -> str:
        if "part" not in document:
            return _VALUE_DOCUMENT
        return describe_part(self.call.codec, parts, document["part"])

    def _value_stamp(self) -> datetime | None:
        if self.call.ttl is None:
            return None
        return value_stamp(self.call.ttl, self.fields["created_at"])

    async def _is_another(
        self, plan: Plan, documents: Sequence[Document], taken: Collection[ValueKey]
    ) -> bool:
        """Whether the number of a new piece is that of a piece with other contents."""
        if not taken:
            return False
        pieces = {entry.channel for entry, _ in plan.written if entry.pieces is not None}
        values = {ValueKey.of(document): document["value"] for document in documents}
        ours = {key: values[key] for key in taken if key.channel in pieces}
        stored = await read_values(self.call, ours, fresh=True)
        return any(key in stored and stored[key]["value"] != value for key, value in ours.items())

    async def _write_values(self, documents: list[Document], *, again: bool) -> list[ValueKey]:
        """Write the values; return those that were there already.

        Pending writes may name them already. So they keep their keys when they are written
        `again`, and the marks are taken off of whoever is just removing them.
        """
        places = await self.call.io.insert("values", documents) if documents else []
        taken = [ValueKey.of(documents[place]) for place in places]
        for query in value_queries(taken if again else ()):
            await self.call.io.update_many("values", query, {"$unset": {DOOMED: ""}})
        return taken

    async def _stamp(
        self, plan: Plan, taken: Sequence[ValueKey], parent: Parent
    ) -> datetime | None:
        """Renew the stamps of values that were there already; return the oldest stamp then."""
        oldest = stamp = self._value_stamp()
        renewed = [*taken]
        if plan.carried and parent.stamped is not None:
            if stamp is None or parent.stamped < self.fields["created_at"]:
                renewed += [key for entry in plan.carried for key in entry.keys(self.key)]
            else:
                oldest = parent.stamped
        await _restamp(self.call, renewed, stamp)
        return oldest

    async def _is_late(self) -> bool:
        """Whether it took so long that it was suspended, probably, since it began."""
        now = await self.call.io.now()
        late = now - self.began > _LATE
        if late:
            self.began = now
        return late

    async def _stamp_again(self, plan: Plan) -> datetime | None:
        """Renew the stamps that are as old as the beginning; return that of the values."""
        if self.call.ttl is not None:
            self.fields["created_at"] = self.began
            keys = [key for entry in plan.manifest().values() for key in entry.keys(self.key)]
            await _restamp(self.call, keys, self._value_stamp())
        return self._value_stamp()

    async def _commit(self, plan: Plan, parent: Parent, *, checking: bool) -> Committed:
        parent_key = None
        if parent.stored and (self.rebuilt or plan.carried or plan.written):
            parent_id = self.fields["parent_checkpoint_id"]
            parent_key = self.key._replace(checkpoint_id=parent_id)
        # The parent tells of a removal of what was written since it was read, not of what was
        # written before, or has expired; and where there is none, nothing tells.
        checking = bool(plan.written) and (checking or parent_key is None)
        return await commit(
            self.call,
            self.key,
            self.fields,
            relies_on=parent_key,
            rekeyed=parent.rekeyed,
            whole=partial(self._all_stored, plan) if checking else None,
        )

    async def _all_stored(self, plan: Plan) -> bool:
        """Whether the written values are there, and nobody is removing them."""
        wanted = {key for entry, _ in plan.written for key in entry.keys(self.key)}
        fields = {"_id": 0, **dict.fromkeys(VALUE_KEY, 1)}
        found = {
            ValueKey.of(document)
            for query in value_queries(wanted)
            for document in await self.call.io.find(
                "values", {**query, DOOMED: None}, fields, fresh=True
            )
        }
        return found == wanted

    def _not_in_hand(self, plan: Plan) -> dict[str, str]:
        """What a checkpoint without its parent would lack, by channel."""
        carried = {entry.channel: entry.holds for entry in plan.carried}
        carried.pop(BUNDLE, None)
        if plan.bundle:
            carried |= plan.bundle.live
        unknown = {
            channel: version for channel, version in carried.items() if channel not in self.values
        }
        return {**unknown, **self.rebuilt}


def _size_of(values: Mapping[str, Any]) -> Callable[[], int]:
    return lambda: estimate_size(*values.values(), enough=OFFLOAD_ENOUGH)


async def check_payload(call: Call, document: Document, where: Callable[[], str]) -> None:
    """Make sure that a channel value or pending write document can be stored.

    Raises:
        ChannelTooLargeError: It cannot.
    """
    size = payload_size(document)
    limit = await call.io.document_limit(size)
    if size > limit:
        raise ChannelTooLargeError(document["channel"], size, limit, where())


async def _check_checkpoint(call: Call, key: CheckpointKey, fields: Document, what: str) -> None:
    document = {**key.query(), **fields, "checkpoint": b""}
    size = document_size(document, fields["checkpoint"])
    limit = await call.io.document_limit(size)
    if size > limit:
        raise CheckpointTooLargeError(what, size, limit, key.checkpoint_id)


async def _restamp(call: Call, keys: Sequence[ValueKey], stamp: datetime | None) -> None:
    """Renew the TTL stamps of value documents, or take them away.

    A value without a stamp is named by a checkpoint that never expires, and keeps none.

    Args:
        call: What the call works with.
        keys: The documents' unique keys.
        stamp: The new stamp, None for no expiry.
    """
    if stamp is None:
        updates = [Update(key.query(), {"$unset": {"created_at": ""}}) for key in keys]
    else:
        updates = [
            Update(
                {**key.query(), "created_at": {"$exists": True}}, {"$set": {"created_at": stamp}}
            )
            for key in keys
        ]
    if updates:
        await call.io.update("values", updates)
