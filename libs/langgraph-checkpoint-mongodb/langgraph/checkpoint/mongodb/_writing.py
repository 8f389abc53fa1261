"""put and put_writes: decided, measured, and only then written.

Values first, the checkpoint's own document last; `_commit` says what makes that safe
while others remove checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
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

from langgraph.checkpoint.mongodb._codec import Typed, document_size, estimate_size
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
    VALUE_KEY,
    WRITE_KEY,
    CheckpointKey,
    Document,
    ManifestEntry,
    ValueKey,
    layout_of,
    payload_size,
    refer,
    value_documents,
    version_text,
    write_documents,
)
from langgraph.checkpoint.mongodb._memory import Life, Parent, Planning
from langgraph.checkpoint.mongodb._packing import pack_checkpoint
from langgraph.checkpoint.mongodb._parts import LARGE_ITEM_BYTES, describe_part, digest
from langgraph.checkpoint.mongodb._plan import Plan, Planner
from langgraph.checkpoint.mongodb._port import Call, Update
from langgraph.checkpoint.mongodb._queries import (
    NEWEST_OF_ROOT_FIRST,
    PARENT_FIELDS,
    callers_of,
    config_of,
    put_key,
    value_queries,
    writes_key,
)
from langgraph.checkpoint.mongodb._renewal import renew, renew_for_writes
from langgraph.checkpoint.mongodb._ttl import value_stamp
from langgraph.checkpoint.mongodb._whole import whole_fields
from langgraph.checkpoint.mongodb.errors import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
)

__all__ = ["put", "put_writes"]

_INPUT = "__start__"

# What a put takes at most, unless its process was suspended: then it looks again.
_LATE = timedelta(minutes=5)

_OFFLOAD_ENOUGH = 1024 * 1024

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
    callers = callers_of(key, metadata.get("parents"))
    await renew(call, callers)
    if rebuilt and parent_id and not parent.stored:
        await _give_up(call, key, False, rebuilt)
    if parent.layout == LAYOUT:
        split = _SplitPut(call, key, checkpoint, rebuilt, fields, new_versions, began)
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
        found = await call.io.find(
            "checkpoints", {**parent_key.query(), **VISIBLE}, PARENT_FIELDS, most=1, fresh=True
        )
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
    values = checkpoint.get("channel_values") or {}
    fields |= await call.io.offload(_size_of(values), whole_fields, call.codec, checkpoint)
    what = f"its {len(values)} channel values, which this thread's old layout keeps together"
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
        created = False
        for attempt in range(_ATTEMPTS):
            if self.fields["parent_checkpoint_id"] and not parent.stored:
                self.fields[REKEYED] = ObjectId()
            plan = await self._plan(parent, own)
            if planning is not None:
                planning.digests = plan.digests
                planning.done.set()
            documents = await self._measured(plan)
            taken = await self._write_values(documents, again=attempt > 0)
            stamped = await self._stamp(plan, taken, parent)
            if late := await self._is_late():
                stamped = await self._stamp_again(plan)
            done = await self._commit(plan, parent, checking=late or bool(taken))
            created |= done.created
            if done.proven:
                break
            parent = await parent_again(self.call, self.key, self.fields, self.rebuilt)
            lost = {} if parent.stored else self._not_in_hand(plan)
            if lost or attempt + 1 == _ATTEMPTS:
                lost = lost or {entry.channel: entry.holds for entry, _ in plan.written}
                await _give_up(self.call, self.key, created, lost)
            own |= set() if parent.stored else {entry.channel for entry in plan.carried}
        rekeyed = self.fields.get(REKEYED)
        known = Parent(LAYOUT, plan.manifest(), stamped, digests=plan.digests, rekeyed=rekeyed)
        self.call.io.memory.remember(self.key, known)

    async def _plan(self, parent: Parent, own: Collection[str]) -> Plan:
        def plan() -> Plan:
            codec, checkpoint = self.call.codec, self.checkpoint
            held, digests = parent.manifest, parent.digests
            plan = Planner(codec, checkpoint, self.new_versions, held, digests, own).plan()
            type_, data = pack_checkpoint(codec, checkpoint, plan.inline)
            channels = [entry.to_document() for entry in plan.manifest().values()]
            self.fields.update(layout=LAYOUT, type=type_, checkpoint=data, channels=channels)
            return plan

        return await self.call.io.offload(_size_of(self.values), plan)

    async def _measured(self, plan: Plan) -> list[Document]:
        """The value documents, all found small enough, as is the checkpoint's."""
        stamp = self._value_stamp()
        documents: list[Document] = []
        for entry, parts in plan.written:
            of_entry = value_documents(self.key, entry, parts, stamp)
            for document in of_entry:
                await _check_payload(self.call, document, partial(self._where, parts, document))
            documents += of_entry
        what = "its metadata, or the number of its channels"
        # As it is until its parent has been found.
        await _check_checkpoint(self.call, self.key, {**self.fields, UNPROVEN: True}, what)
        return documents

    def _where(self, parts: Sequence[Typed], document: Document) -> str:
        if "part" not in document:
            return "its value document"
        return describe_part(self.call.codec, parts, document["part"])

    def _value_stamp(self) -> datetime | None:
        if self.call.ttl is None:
            return None
        return value_stamp(self.call.ttl, self.fields["created_at"])

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
        unknown = {
            channel: version for channel, version in carried.items() if channel not in self.values
        }
        return {**unknown, **self.rebuilt}


def _size_of(values: Mapping[str, Any]) -> Callable[[], int]:
    return lambda: estimate_size(*values.values(), enough=_OFFLOAD_ENOUGH)


async def _check_payload(call: Call, document: Document, where: Callable[[], str]) -> None:
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


async def put_writes(
    call: Call,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> None:
    """Store pending writes; see `MongoDBSaver.put_writes`."""
    key = writes_key(config, task_id, task_path)
    if not writes:
        return
    stamp = None if call.ttl is None else await call.io.now()
    documents = await call.io.offload(
        lambda: estimate_size(*(value for _, value in writes), enough=_OFFLOAD_ENOUGH),
        write_documents,
        *(call.codec, key, writes, task_id, task_path, stamp),
    )
    for document in documents:
        await _check_payload(call, document, lambda: f"the pending write of task {task_id!r}")
    await _refer_to_input(call, key, documents)
    await renew_for_writes(call, key)
    if all(document["idx"] >= 0 for document in documents):
        # What is there already stays: the task ran before.
        await call.io.insert("writes", documents)
    else:
        await call.io.update("writes", [_write_upsert(document) for document in documents])


async def _refer_to_input(call: Call, key: CheckpointKey, documents: Sequence[Document]) -> None:
    """Let large writes name the items of the graph's input that are the same bytes."""
    large = [document for document in documents if len(document["value"]) > LARGE_ITEM_BYTES]
    if not large:
        return
    digests: Mapping[bytes, ManifestEntry] = {}
    if planning := call.io.memory.planned(key):
        await call.io.wait(planning.done)
        digests = planning.digests
    elif known := call.io.memory.parent(key):
        digests = known.digests
    if digests:
        await call.io.offload(_OFFLOAD_ENOUGH, _refer, large, digests)


def _refer(documents: Sequence[Document], digests: Mapping[bytes, ManifestEntry]) -> None:
    for document in documents:
        if stored := digests.get(digest((document["type"], document["value"]))):
            refer(document, stored)


def _write_upsert(document: Document) -> Update:
    """A special channel (an error, a resume value) replaces; any other stays as it was."""
    query = {name: document[name] for name in WRITE_KEY}
    rest = {name: value for name, value in document.items() if name not in query}
    operator = "$set" if document["idx"] < 0 else "$setOnInsert"
    return Update(query, {operator: rest}, upsert=True)
