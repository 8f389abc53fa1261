"""get_tuple and list: the checkpoint, exactly the values that it names, its writes.

A checkpoint is read whole or not at all. A value that is not found is looked for once
more on the primary, by what the checkpoint says then: a secondary may lag, and the
checkpoint may have been removed in between.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from langgraph.checkpoint.mongodb._bundle import BUNDLE, Bundle, load_bundle
from langgraph.checkpoint.mongodb._codec import Codec, native_metadata
from langgraph.checkpoint.mongodb._commit import RETAINED, UNPROVEN, VISIBLE
from langgraph.checkpoint.mongodb._compat import COUNTERS, steps_since_snapshot
from langgraph.checkpoint.mongodb._documents import (
    LAYOUT,
    CheckpointKey,
    Document,
    ManifestEntry,
    ValueKey,
    delta_channels,
    layout_of,
    version_text,
)
from langgraph.checkpoint.mongodb._growing import header_length, join_value
from langgraph.checkpoint.mongodb._memory import Life, Parent
from langgraph.checkpoint.mongodb._packing import Unpacked, unpack_checkpoint
from langgraph.checkpoint.mongodb._parts import join_parts
from langgraph.checkpoint.mongodb._pending import (
    counting,
    pending_writes,
    referred,
    write_order,
)
from langgraph.checkpoint.mongodb._port import Call
from langgraph.checkpoint.mongodb._queries import (
    ALL_FIELDS,
    KEY_FIELDS,
    NEWEST_FIRST,
    NEWEST_OF_ROOT_FIRST,
    any_of,
    callers_of,
    config_of,
    thread_config,
    value_queries,
)
from langgraph.checkpoint.mongodb._whole import whole_checkpoint
from langgraph.checkpoint.mongodb.errors import DamagedCheckpointError, MissingChannelValueError

__all__ = ["Found", "complete", "decode", "fill", "get_tuple"]


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """A checkpoint as it was read, everything there, nothing deserialized.

    Attributes:
        document: The checkpoint document.
        parent: What a put that follows it needs to know; its manifest.
        values: The value documents that were read, with others of the same page.
        writes: The pending write documents.
    """

    document: Document
    parent: Parent
    values: Mapping[ValueKey, Document] = field(default_factory=dict)
    writes: list[Document] = field(default_factory=list)

    @classmethod
    def of(cls, document: Document) -> Found:
        """A checkpoint of which the values and writes are still to be read."""
        return cls(document, Parent.of(document))

    @property
    def key(self) -> CheckpointKey:
        """The checkpoint's key."""
        return key_of(self.document)

    def named(self) -> list[ValueKey]:
        """The value documents that its manifest names."""
        return [key for entry in self.parent.manifest.values() for key in entry.keys(self.key)]

    def fill(self) -> list[tuple[str, str]]:
        """Complete the pending writes; return channel and version of what was not found."""
        named = [
            (entry.channel, entry.version)
            for entry in self.parent.manifest.values()
            if not all(key in self.values for key in entry.keys(self.key))
        ]
        if len({write_order(one) for one in self.writes}) < len(self.writes):
            logger.warning(
                "Pending writes of checkpoint %r of thread %r are stored twice: their collection "
                "has no unique index. Each is read once. Construct a saver with "
                "create_indexes=True, or call its setup().",
                self.key.checkpoint_id,
                self.key.thread_id,
            )
        # Before the values are looked for: those of a part that does not count may be gone.
        self.writes = counting(self.writes)
        return named + fill_writes(self.writes, self.values)

    def learn(self, unpacked: Unpacked, values: Mapping[str, Any]) -> None:
        """Note what only the deserialized checkpoint tells.

        Args:
            unpacked: What its own document holds.
            values: The values that lie in other documents, those of its bundle among them.
        """
        manifest, checkpoint = self.parent.manifest, unpacked.checkpoint
        versions: Mapping[str, Any] = checkpoint.get("channel_versions") or {}
        cut = {
            channel: replace(entry, channel_version=version_text(versions.get(channel)))
            for channel, entry in manifest.items()
            if entry.pieces is not None and channel != BUNDLE
        }
        bundle = None
        if BUNDLE in manifest and values:
            live = {one: version_text(versions.get(one)) for one in values if one not in manifest}
            bundle = Bundle(unpacked.pairs, live, frozenset(unpacked.dead))
        self.parent = replace(
            self.parent,
            manifest={**manifest, **cut} if cut else manifest,
            growths=unpacked.growths,
            bundle=bundle,
            wrote=frozenset(checkpoint.get("updated_channels") or ()),
            inline={one: version_text(versions.get(one)) for one in checkpoint["channel_values"]},
        )

    def size(self) -> int:
        """Bytes that are to be deserialized."""
        values = sum(entry.size for entry in self.parent.manifest.values())
        writes = sum(len(document["value"]) for document in self.writes)
        return len(self.document["checkpoint"]) + values + writes


def key_of(document: Mapping[str, Any]) -> CheckpointKey:
    """The key of a checkpoint or pending write document."""
    return CheckpointKey(
        document["thread_id"], document["checkpoint_ns"], document["checkpoint_id"]
    )


async def get_tuple(call: Call, config: RunnableConfig) -> CheckpointTuple | None:
    """Read one checkpoint; see `MongoDBSaver.get_tuple`."""
    thread_id, checkpoint_ns, checkpoint_id = thread_config(config)
    query: Document = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, **VISIBLE}
    if checkpoint_id is not None:
        # Whoever walks along parents finds those that delta channels are rebuilt from, too.
        del query[RETAINED]
        query["checkpoint_id"] = checkpoint_id
    first = await _first(call, query)
    while first is not None:
        document, writes = first
        found = Found.of(document)
        joined = None if writes is None else {found.key: writes}
        if whole := await complete(call, [found], writes=joined):
            read = await decode(call, whole[0])
            _note(call, whole[0], read)
            return read
        if checkpoint_id is not None:
            break
        # Removed meanwhile. A prune removes the newest when there is a newer one.
        first = await call.io.newest(query, NEWEST_FIRST, fresh=True)
    if checkpoint_id is not None:
        _check_not_expected(call, CheckpointKey(thread_id, checkpoint_ns, checkpoint_id))
    return None


def _note(call: Call, found: Found, read: CheckpointTuple) -> None:
    """Remember what a checkpoint that was read tells."""
    if not found.document.get(RETAINED):
        call.io.memory.remember(found.key, _remembered(call, found))
    call.io.memory.met(found.key)
    call.io.memory.note_life(found.key, _life(call, found))
    parent_id = found.document.get("parent_checkpoint_id")
    versions, values = read.checkpoint["channel_versions"], read.checkpoint["channel_values"]
    rebuilt = delta_channels(found.document) & versions.keys() - values.keys()
    if rebuilt and parent_id:
        parent = found.key._replace(checkpoint_id=parent_id)
        call.io.memory.expect(parent, found.key, sorted(rebuilt))


def _check_not_expected(call: Call, key: CheckpointKey) -> None:
    """Make sure that no walk along parents ends before its beginning.

    The base class's walk takes a parent that is not there for the end of the thread, and what
    was found until then for all. It has just read the checkpoint that named it.

    Raises:
        MissingChannelValueError: A checkpoint that was read is rebuilt from this one.
    """
    if expected := call.io.memory.expected(key):
        child, channels = expected
        before = f"before checkpoint {child.checkpoint_id}"
        raise MissingChannelValueError(*child, [(channel, before) for channel in channels])


def _remembered(call: Call, found: Found) -> Parent:
    """What to remember of a checkpoint that was read."""
    if not native_metadata(found.document, COUNTERS):
        return found.parent
    counters = call.codec.loads_metadata_item(found.document, COUNTERS)
    return replace(found.parent, steps=steps_since_snapshot(counters))


def _life(call: Call, found: Found) -> Life:
    """What to remember of a checkpoint's stamp."""
    parents = native_metadata(found.document, "parents")
    ids = {ns: call.codec.loads((type_, data)) for ns, (type_, data) in parents.items()}
    return Life.of(found.document, callers_of(found.key, ids))


async def _first(call: Call, query: Document) -> tuple[Document, list[Document] | None] | None:
    """What a config names, with its writes or None; it tells its thread's layout, too."""
    if query["checkpoint_ns"] or "checkpoint_id" in query:
        return await call.io.newest(query, NEWEST_FIRST)
    # The root's newest, or else any other: one query tells a thread's layout, too, and
    # with it whether a first checkpoint begins a new thread.
    thread = {"thread_id": query["thread_id"], **VISIBLE}
    found = await call.io.newest(thread, NEWEST_OF_ROOT_FIRST)
    layout = layout_of(found[0]) if found else LAYOUT
    call.io.memory.note_layout(query["thread_id"], layout)
    return found if found and not found[0]["checkpoint_ns"] else None


async def complete(
    call: Call,
    found: Sequence[Found],
    known: Mapping[ValueKey, Document] | None = None,
    writes: Mapping[CheckpointKey, list[Document]] | None = None,
    *,
    check: bool = True,
) -> list[Found]:
    """Read values and writes of checkpoints; leave out those that were removed meanwhile.

    Args:
        call: What the call works with.
        found: The checkpoints.
        known: Value documents that were read already.
        writes: The pending writes, if they were read already.
        check: Whether to `fill` each as well.

    Raises:
        MissingChannelValueError: A checkpoint that is still there lacks a value.
    """
    known = known or {}
    wanted = {key for one in found for key in one.named()}
    reading = read_values(call, wanted - known.keys())
    if writes is not None:
        values = await reading
    else:
        of_all = read_writes(call, [one.key for one in found])
        values, writes = await call.io.together(reading, of_all)
    values |= {key: known[key] for key in wanted & known.keys()}
    for one in found:
        one.values = values
        one.writes = writes.get(one.key, [])
    if not check:
        return list(found)
    return [whole for one in found if (whole := await fill(call, one))]


async def fill(call: Call, found: Found) -> Found | None:
    """Make sure that a checkpoint is there whole; None when it was removed meanwhile.

    Raises:
        MissingChannelValueError: It is still there, but lacks a value.
    """
    return await _look_again(call, found) if found.fill() else found


async def _look_again(call: Call, found: Found) -> Found | None:
    """Read a checkpoint that lacked a value once more, from the primary.

    It may have been hidden meanwhile: then it is as whole as before.
    """
    query = {**found.key.query(), UNPROVEN: None}
    documents = await call.io.find("checkpoints", query, ALL_FIELDS, most=1, fresh=True)
    if not documents:
        return None
    again = Found.of(documents[0])
    again.values = await read_values(call, again.named(), fresh=True)
    again.writes = found.writes
    if missing := again.fill():
        raise MissingChannelValueError(*again.key, missing)
    return again


async def read_values(
    call: Call, keys: Iterable[ValueKey], *, fresh: bool = False
) -> dict[ValueKey, Document]:
    """Read value documents, each once."""
    return {
        ValueKey.of(document): document
        for query in value_queries(keys)
        for document in await call.io.find("values", query, ALL_FIELDS, fresh=fresh)
    }


async def read_all_values(
    call: Call, key: CheckpointKey, manifest: Mapping[str, ManifestEntry]
) -> dict[ValueKey, Document]:
    """Read the documents of a checkpoint's values, from the primary, those not found there.

    Raises:
        MissingChannelValueError: One is not there.
    """
    wanted = {one for entry in manifest.values() for one in entry.keys(key)}
    stored = await read_values(call, wanted)
    if lost := wanted - stored.keys():
        stored |= await read_values(call, lost, fresh=True)
    check_found(key, manifest, stored)
    return stored


def check_found(
    key: CheckpointKey,
    manifest: Mapping[str, ManifestEntry],
    stored: Mapping[ValueKey, Document],
) -> None:
    """Make sure that all documents of a checkpoint's values were found.

    Raises:
        MissingChannelValueError: One was not.
    """
    missing = [
        (entry.channel, entry.holds)
        for entry in manifest.values()
        if not all(one in stored for one in entry.keys(key))
    ]
    if missing:
        raise MissingChannelValueError(*key, missing)


def load_checkpoint(codec: Codec, document: Document) -> Unpacked:
    """Deserialize a checkpoint of either layout, with the values of its own document."""
    if layout_of(document) == LAYOUT:
        return unpack_checkpoint(codec, document)
    return Unpacked(whole_checkpoint(codec, document), {}, 0, [])


def load_values(
    codec: Codec,
    key: CheckpointKey,
    manifest: Mapping[str, ManifestEntry],
    unpacked: Unpacked,
    stored: Mapping[ValueKey, Document],
) -> dict[str, Any]:
    """Deserialize the values that lie in documents, which were read.

    Args:
        codec: The serializer.
        key: Their checkpoint.
        manifest: Their manifest entries, by channel.
        unpacked: What their checkpoint's own document holds.
        stored: The value documents.

    Returns:
        The values by channel, those of a bundle each.
    """
    values: dict[str, Any] = {}
    for channel, entry in manifest.items():
        if entry.pieces is None:
            values[channel] = load_value(codec, entry, key, stored)
            continue
        bodies = [piece_body(codec, stored[one]) for one in entry.keys(key)]
        if channel == BUNDLE:
            values |= load_bundle(codec, bodies, unpacked.pairs, unpacked.dead)
        else:
            joined = join_value(unpacked.growths[channel], bodies)
            values[channel] = codec.loads_in_clear(joined)
    return values


def load_value(
    codec: Codec,
    entry: ManifestEntry,
    key: CheckpointKey,
    stored: Mapping[ValueKey, Document],
) -> Any:
    """Deserialize a value that is not cut, whose documents were read."""
    parts = [(stored[one]["type"], stored[one]["value"]) for one in entry.keys(key)]
    size = sum(len(data) for _, data in parts)
    if size != entry.size:
        raise DamagedCheckpointError(
            key.checkpoint_id,
            f"it names {entry.size:,} bytes of channel {entry.channel!r}, and {size:,} are stored",
        )
    return codec.loads(parts[0]) if entry.parts is None else join_parts(codec, parts)


def piece_body(codec: Codec, document: Document) -> bytes:
    """The bytes of a piece, without the header of one that is a whole serialization."""
    if "part" in document:
        return codec.unseal((document["type"], document["value"]))
    whole: bytes = document["value"]
    return whole[header_length(whole) :]


async def learn(call: Call, document: Document) -> Parent:
    """What a checkpoint's document tells a put that follows it, how values are cut included.

    Raises:
        MissingChannelValueError: It is still there, but its bundle is not.
    """
    found = Found.of(document)
    if BUNDLE in found.parent.manifest:
        try:
            found.values = await _read_bundle(call, found)
        except MissingChannelValueError:
            query = {**found.key.query(), **VISIBLE}
            if await call.io.find("checkpoints", query, KEY_FIELDS, most=1, fresh=True):
                raise
            return Parent(LAYOUT, {}, stored=False)
    await call.io.offload(found.size, _learn, call.codec, found)
    return found.parent


async def small_values(call: Call, document: Document) -> dict[str, Any]:
    """Read the values of a checkpoint that lie in its own document, or in its bundle.

    Raises:
        MissingChannelValueError: Its bundle is not there.
    """
    found = Found.of(document)
    if BUNDLE in found.parent.manifest:
        found.values = await _read_bundle(call, found)
    return await call.io.offload(found.size, _learn, call.codec, found)


async def _read_bundle(call: Call, found: Found) -> dict[ValueKey, Document]:
    bundle = {BUNDLE: found.parent.manifest[BUNDLE]}
    return await read_all_values(call, found.key, bundle)


def _learn(codec: Codec, found: Found) -> dict[str, Any]:
    unpacked = load_checkpoint(codec, found.document)
    manifest = {name: one for name, one in found.parent.manifest.items() if name == BUNDLE}
    values = load_values(codec, found.key, manifest, unpacked, found.values)
    found.learn(unpacked, values)
    return {**unpacked.checkpoint["channel_values"], **values}


async def read_writes(
    call: Call, keys: Sequence[CheckpointKey]
) -> dict[CheckpointKey, list[Document]]:
    """Read the pending writes of checkpoints."""
    return group_writes(await call.io.find("writes", query_of(keys), ALL_FIELDS))


def group_writes(documents: Iterable[Document]) -> dict[CheckpointKey, list[Document]]:
    """Pending write documents by their checkpoint."""
    writes: defaultdict[CheckpointKey, list[Document]] = defaultdict(list)
    for document in documents:
        writes[key_of(document)].append(document)
    return writes


def query_of(keys: Sequence[CheckpointKey]) -> Document:
    """The query for exactly these checkpoints, or for their pending writes."""
    namespaces: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for key in keys:
        namespaces[key[:2]].append(key.checkpoint_id)
    return any_of(
        [
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": ids[0] if len(ids) == 1 else {"$in": ids},
            }
            for (thread_id, checkpoint_ns), ids in namespaces.items()
        ]
    )


def fill_writes(
    writes: Iterable[Document], values: Mapping[ValueKey, Document]
) -> list[tuple[str, str]]:
    """Give pending writes the bytes they refer to; return those whose bytes are not there."""
    missing = []
    for document in writes:
        key = referred(document)
        if key is None:
            continue
        if key in values:
            document["value"] = values[key]["value"]
        else:
            missing.append((document["channel"], key.version))
    return missing


async def decode(call: Call, found: Found) -> CheckpointTuple:
    """Deserialize a checkpoint that was read whole."""
    read = await call.io.offload(found.size, _decode, call, found)
    if layout_of(found.document) != LAYOUT and read.parent_config:
        await _move_old_sends(call, found, read.checkpoint)
    return read


async def _move_old_sends(call: Call, found: Found, checkpoint: Checkpoint) -> None:
    """Give a checkpoint of a format before 4 the Sends that its step queued.

    Releases of LangGraph with those formats left them among the pending writes of the parent;
    later ones look for them in a channel.
    """
    if checkpoint.get("v", 1) >= _SENDS_IN_CHANNEL:
        return
    parent = found.key._replace(checkpoint_id=found.document["parent_checkpoint_id"])
    documents = await call.io.find("writes", {**parent.query(), "channel": TASKS}, ALL_FIELDS)
    if sends := [value for _, _, value in pending_writes(call.codec, documents)]:
        versions = checkpoint["channel_versions"]
        checkpoint["channel_values"][TASKS] = sends
        versions[TASKS] = max(versions.values(), default=1)


_SENDS_IN_CHANNEL = 4
"""The format of checkpoints since which LangGraph keeps queued Sends in a channel."""


def _decode(call: Call, found: Found) -> CheckpointTuple:
    document, codec = found.document, call.codec
    parent_id = document.get("parent_checkpoint_id")
    unpacked = load_checkpoint(codec, document)
    checkpoint = unpacked.checkpoint
    values = load_values(codec, found.key, found.parent.manifest, unpacked, found.values)
    found.learn(unpacked, values)
    if values:
        checkpoint["channel_values"] |= values
    return CheckpointTuple(
        config=config_of(found.key),
        checkpoint=checkpoint,
        metadata=codec.loads_metadata(document),
        parent_config=config_of(found.key._replace(checkpoint_id=parent_id)) if parent_id else None,
        pending_writes=pending_writes(codec, found.writes),
    )
