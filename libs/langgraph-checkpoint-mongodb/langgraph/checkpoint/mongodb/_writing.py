"""put: decided, measured, and only then written.

Values first, the checkpoint's own document last; `_commit` says what makes that safe
while others remove checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
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
from langgraph.checkpoint.mongodb._codec import Typed, document_size, estimate_size
from langgraph.checkpoint.mongodb._commit import (
    REKEYED,
    UNPROVEN,
    VISIBLE,
    Committed,
    commit,
    commit_if,
)
from langgraph.checkpoint.mongodb._compat import COUNTERS
from langgraph.checkpoint.mongodb._documents import (
    LAYOUT,
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
from langgraph.checkpoint.mongodb._memory import Parent, Planning
from langgraph.checkpoint.mongodb._packing import pack_checkpoint
from langgraph.checkpoint.mongodb._parts import describe_part
from langgraph.checkpoint.mongodb._plan import Plan, Planner
from langgraph.checkpoint.mongodb._port import Call, Update
from langgraph.checkpoint.mongodb._queries import (
    ALL_FIELDS,
    NEWEST_OF_ROOT_FIRST,
    PARENT_FIELDS,
    config_of,
    put_key,
    value_queries,
)
from langgraph.checkpoint.mongodb._reading import learn, load_checkpoint, read_values
from langgraph.checkpoint.mongodb._ttl import now, value_stamp
from langgraph.checkpoint.mongodb._whole import whole_fields
from langgraph.checkpoint.mongodb.errors import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
)

__all__ = ["OFFLOAD_ENOUGH", "check_payload", "put"]

_INPUT = "__start__"

OFFLOAD_ENOUGH = 1024 * 1024
"""No more of a value's bytes are counted to choose where to serialize it."""

_VALUE_DOCUMENT = "its value document"

# No server's limit is smaller.
_CHECK_FROM = 512 * 1024

# Each further attempt needs another removal of the whole thread at that very moment.
_ATTEMPTS = 3


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
    rebuilt = _rebuilt(checkpoint, metadata)
    if rebuilt and parent_id and not parent.stored:
        await _give_up(call, key, False, rebuilt)
    if parent.layout == LAYOUT:
        split = _SplitPut(call, key, checkpoint, rebuilt, fields, new_versions)
        with call.io.memory.planning(key) if _INPUT in split.values else nullcontext() as planning:
            await split.store(parent, planning)
    else:
        await _put_whole(call, key, checkpoint, fields, rebuilt if parent.stored else {})
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
    if call.ttl is not None:
        fields["created_at"] = now()
    return fields


async def _put_whole(
    call: Call,
    key: CheckpointKey,
    checkpoint: Checkpoint,
    fields: Document,
    rebuilt: Mapping[str, str],
) -> None:
    """Store a checkpoint of a thread that began in the whole layout."""
    values = checkpoint.get("channel_values") or {}
    fields |= await call.io.offload(_size_of(values), whole_fields, call.codec, checkpoint)
    what = f"its {len(values)} channel values, which this thread's old layout keeps together"
    await _check_checkpoint(call, key, {**fields, UNPROVEN: True} if rebuilt else fields, what)
    parent_key = key._replace(checkpoint_id=fields["parent_checkpoint_id"]) if rebuilt else None
    done = await commit(call, key, fields, relies_on=parent_key)
    if not done.proven:
        await _give_up(call, key, done.created, rebuilt)
    call.io.memory.remember(key, Parent(1, {}, fields.get("created_at")))


def _rebuilt(checkpoint: Checkpoint, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The delta channels that only a checkpoint's ancestors hold, with their versions."""
    versions = checkpoint.get("channel_versions") or {}
    # A channel that was never written is counted, too.
    counted = metadata.get(COUNTERS) or {}
    return {channel: version_text(versions[channel]) for channel in counted if channel in versions}


async def _give_up(call: Call, key: CheckpointKey, created: bool, lost: Mapping[str, str]) -> None:
    """Leave nothing of a checkpoint that cannot be stored whole, and say so."""
    if created:
        await call.io.delete("checkpoints", key.query())
    raise MissingChannelValueError(*key, sorted(lost.items()))


class _SplitPut:
    """One put in the split layout.

    Args:
        call: What the call works with.
        key: The checkpoint's key.
        checkpoint: The checkpoint.
        rebuilt: Its delta channels that only its ancestors hold, with their versions.
        fields: Those fields of its document that do not depend on the channel values.
        new_versions: The channels that the step wrote.
    """

    def __init__(
        self,
        call: Call,
        key: CheckpointKey,
        checkpoint: Checkpoint,
        rebuilt: Mapping[str, str],
        fields: Document,
        new_versions: ChannelVersions,
    ) -> None:
        self.call, self.key, self.checkpoint = call, key, checkpoint
        self.fields, self.new_versions = fields, new_versions
        self.values: Mapping[str, Any] = checkpoint.get("channel_values") or {}
        self.rebuilt = rebuilt

    async def store(self, parent: Parent, planning: Planning | None) -> None:
        """Write the checkpoint; again, on its own, if its parent was removed meanwhile."""
        own: set[str] = set()
        created = False
        for attempt in range(_ATTEMPTS):
            if self.fields["parent_checkpoint_id"] and not parent.stored:
                self.fields[REKEYED] = ObjectId()
            plan = await self._plan(parent, own, attempt)
            if planning is not None:
                planning.digests = plan.digests
                planning.done.set()
            documents = await self._measured(plan)
            taken = await self.call.io.insert("values", documents) if documents else []
            if await self._is_another(plan, documents, taken) and attempt + 1 < _ATTEMPTS:
                continue
            renewed = [ValueKey.of(documents[place]) for place in taken]
            stamped = await self._renew(plan, renewed, parent)
            done = await self._commit(plan, parent)
            created |= done.created
            if done.proven:
                break
            lost = self._not_in_hand(plan)
            if lost or attempt + 1 == _ATTEMPTS:
                lost = lost or {entry.channel: entry.holds for entry, _ in plan.written}
                await _give_up(self.call, self.key, created, lost)
            own |= {entry.channel for entry in plan.carried}
            kept = {name: plan.inline[name] for name in plan.inline.keys() - self.values.keys()}
            parent = Parent(LAYOUT, {}, stored=False, inline=parent.inline, kept=kept)
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
        )
        self.call.io.memory.remember(self.key, known)

    async def _plan(self, parent: Parent, own: Collection[str], attempt: int) -> Plan:
        plan = await self._planned(parent, own, attempt)
        if plan.unknown:
            # A graph that does not know a channel goes on with a thread that holds its value.
            kept = await self._inline_of_parent(plan.unknown)
            plan = await self._planned(replace(parent, kept=kept), own, attempt)
        return plan

    async def _planned(self, parent: Parent, own: Collection[str], attempt: int) -> Plan:
        def plan() -> Plan:
            codec, checkpoint = self.call.codec, self.checkpoint
            plan = Planner(codec, checkpoint, self.new_versions, parent, own, attempt).plan()
            type_, data = pack_checkpoint(codec, checkpoint, plan.inline, plan.growths, plan.bundle)
            channels = [entry.to_document() for entry in plan.manifest().values()]
            self.fields.update(layout=LAYOUT, type=type_, checkpoint=data, channels=channels)
            return plan

        return await self.call.io.offload(_size_of(self.values), plan)

    async def _inline_of_parent(self, channels: Sequence[str]) -> dict[str, Any]:
        """Read inline values of the parent.

        Raises:
            MissingChannelValueError: The parent is gone.
        """
        parent = self.key._replace(checkpoint_id=self.fields["parent_checkpoint_id"])
        query = {**parent.query(), **VISIBLE}
        found = await self.call.io.find("checkpoints", query, ALL_FIELDS, most=1, fresh=True)
        if not found:
            versions = self.checkpoint["channel_versions"]
            lost = {channel: version_text(versions[channel]) for channel in channels}
            await _give_up(self.call, self.key, False, lost)
        unpacked = await self.call.io.offload(
            len(found[0]["checkpoint"]), load_checkpoint, self.call.codec, found[0]
        )
        inline = unpacked.checkpoint["channel_values"]
        return {channel: inline[channel] for channel in channels if channel in inline}

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
        self, plan: Plan, documents: list[Document], taken: Sequence[int]
    ) -> bool:
        """Whether the number of a new piece is that of a piece with other contents."""
        pieces = {entry.channel for entry, _ in plan.written if entry.pieces is not None}
        ours = {
            ValueKey.of(documents[place]): documents[place]["value"]
            for place in taken
            if documents[place]["channel"] in pieces
        }
        stored = await read_values(self.call, ours, fresh=True)
        return any(key in stored and stored[key]["value"] != value for key, value in ours.items())

    async def _renew(self, plan: Plan, renewed: list[ValueKey], parent: Parent) -> datetime | None:
        """Renew the stamps of values that were there; return the oldest stamp then."""
        stamp = self._value_stamp()
        oldest = stamp
        if plan.carried and parent.stamped is not None:
            if stamp is None or parent.stamped < self.fields["created_at"]:
                renewed += [key for entry in plan.carried for key in entry.keys(self.key)]
            else:
                oldest = parent.stamped
        await _restamp(self.call, renewed, stamp)
        return oldest

    async def _commit(self, plan: Plan, parent: Parent) -> Committed:
        call, key, fields = self.call, self.key, self.fields
        if parent.stored and (self.rebuilt or plan.carried or plan.written):
            parent_key = key._replace(checkpoint_id=fields["parent_checkpoint_id"])
            return await commit(call, key, fields, relies_on=parent_key, rekeyed=parent.rekeyed)
        if plan.written:
            return await commit_if(call, key, fields, partial(self._all_stored, plan))
        return await commit(call, key, fields, relies_on=None)

    async def _all_stored(self, plan: Plan) -> bool:
        """Whether the values of a checkpoint without a parent are there: once a namespace."""
        wanted = {key for entry, _ in plan.written for key in entry.keys(self.key)}
        fields = {"_id": 0, **dict.fromkeys(VALUE_KEY, 1)}
        found = {
            ValueKey.of(document)
            for query in value_queries(wanted)
            for document in await self.call.io.find("values", query, fields, fresh=True)
        }
        return found == wanted

    def _not_in_hand(self, plan: Plan) -> dict[str, str]:
        """What a checkpoint without its parent would lack, by channel."""
        carried = {entry.channel: entry.holds for entry in plan.carried}
        if BUNDLE in carried and plan.bundle:
            del carried[BUNDLE]
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
