"""The history of delta channels: a walk along parents, in a handful of commands.

A `DeltaChannel` is stored as a snapshot now and then; its value at a checkpoint is
rebuilt from the nearest ancestor that holds one and the writes since. The base class
reads one ancestor after the other. Here the ancestors' keys come in pages, then the
writes of all of them at once, then the seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    KEY_FIELDS,
    WALK_FIELDS,
    delta_channels,
    entries_of,
    parent_id_of,
)
from langgraph.checkpoint.mongodb._layout.found import fill_writes, load_value, load_values
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, checkpoint_queries
from langgraph.checkpoint.mongodb._layout.layouts import layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.packing import Unpacked
from langgraph.checkpoint.mongodb._layout.states import VISIBLE
from langgraph.checkpoint.mongodb._layout.values import values_by_channel
from langgraph.checkpoint.mongodb._layout.writes import counting, load_writes, referred
from langgraph.checkpoint.mongodb._operations.arguments import thread_config
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import (
    check_found,
    read_all_values,
    read_values,
)
from langgraph.checkpoint.mongodb.errors import MissingChannelValueError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

__all__ = ["AncestorPages", "Walk", "get_delta_channel_history"]

# Named one by one, which takes a server less time than to leave two out.
_WRITE_FIELDS: Document = {
    "_id": 0,
    "checkpoint_id": 1,
    "task_id": 1,
    "task_path": 1,
    "idx": 1,
    "channel": 1,
    "type": 1,
    "value": 1,
    "stored": 1,
}

# A channel's last snapshot is seldom more than its `snapshot_frequency` (100) away.
_FIRST_PAGE = 128
_NEXT_PAGE = 1024

# Beside the steps since a snapshot: the checkpoint that holds it, and some that forks left there.
_BESIDE_STEPS = 32

# Each fetch of checkpoint documents is so many times as large as the one before.
_GROWTH = 4


async def get_delta_channel_history(
    context: Context, config: RunnableConfig, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Read what delta channels are rebuilt from; see `MongoDBSaver.get_delta_channel_history`."""
    thread_id, checkpoint_ns, checkpoint_id = thread_config(config)
    if not channels:
        return {}
    pages = AncestorPages(context, {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns})
    walk = Walk(context, pages, channels)
    key = CheckpointKey(thread_id, checkpoint_ns, checkpoint_id or "")
    known = context.memory.info(key)
    target = await pages.start(checkpoint_id, known.steps_for(channels) if known else None)
    if target is None:
        if known:
            raise _removed(key, channels)
        return {channel: {"writes": []} for channel in channels}
    # A caller of this method does not walk along parents itself.
    context.memory.met(key._replace(checkpoint_id=parent_id_of(target) or ""))
    await walk.follow(target)
    await walk.check_unbroken()
    await walk.read_referenced_seeds()
    writes = await _writes(context, walk.path, channels, pages)
    if walk.path and not await context.io.find(
        "checkpoints", CheckpointKey.of(target).query(), KEY_FIELDS, limit=1, primary=True
    ):
        # Checkpoints are deleted first: what was read while it was there is complete.
        raise _removed(CheckpointKey.of(target), channels)
    return {channel: await walk.entry(channel, writes) for channel in channels}


def _removed(key: CheckpointKey, channels: Sequence[str]) -> MissingChannelValueError:
    """What to raise for a checkpoint that was removed while it was read."""
    return MissingChannelValueError(
        *key, [(channel, "") for channel in channels], "removed while read"
    )


class AncestorPages:
    """The checkpoints of a namespace, as far as a walk has come, newest first by pages.

    Args:
        context: What the call works with.
        namespace: The query for thread and namespace.
        read: Those of its checkpoints that were read already.

    Attributes:
        known: All that were read, by id.
    """

    def __init__(
        self, context: Context, namespace: Document, read: Iterable[Document] = ()
    ) -> None:
        self._context, self._namespace = context, namespace
        self.known: dict[str, Document] = {one["checkpoint_id"]: one for one in read}
        self._oldest: str | None = None
        self._fetched: dict[str, Document] = {}
        self._fetching = 1

    async def start(self, checkpoint_id: str | None, steps: int | None) -> Document | None:
        """The checkpoint that a walk starts from; for None the newest that readers see.

        Args:
            checkpoint_id: Its id.
            steps: How far the walk probably comes; None when that is not known.
        """
        if checkpoint_id is None:
            newest = await self._page(VISIBLE, 1)
            if not newest:
                return None
            checkpoint_id = newest[0]["checkpoint_id"]
        most = _FIRST_PAGE if steps is None else min(max(steps, 0) + _BESIDE_STEPS, _NEXT_PAGE)
        page = await self._page({"checkpoint_id": {"$lte": checkpoint_id}}, most)
        return page[0] if page and page[0]["checkpoint_id"] == checkpoint_id else None

    def is_mostly(self, path: Sequence[CheckpointKey]) -> bool:
        """Whether half of what lies between the ends of a path, as far as known, is on it."""
        newest, oldest = path[0].checkpoint_id, path[-1].checkpoint_id
        between = sum(oldest <= checkpoint_id <= newest for checkpoint_id in self.known)
        return between <= 2 * len(path)

    async def get(self, checkpoint_id: str) -> Document | None:
        """One checkpoint; None when it is not stored."""
        while checkpoint_id not in self.known:
            if self._oldest is None or checkpoint_id >= self._oldest:
                # Ids grow along a chain; one that does not is looked up by itself.
                await self._page({"checkpoint_id": checkpoint_id}, 1)
                return self.known.get(checkpoint_id)
            # After a page that a few forks made too short, a long one is not called for.
            most = _FIRST_PAGE if len(self.known) < _FIRST_PAGE else _NEXT_PAGE
            page = await self._page({"checkpoint_id": {"$lt": self._oldest}}, most)
            if not page:
                self._oldest = None
                return None
        return self.known[checkpoint_id]

    async def _page(self, bound: Document, most: int) -> list[Document]:
        page = await self._context.io.find(
            "checkpoints",
            {**self._namespace, **bound},
            WALK_FIELDS,
            sort=[("checkpoint_id", -1)],
            limit=most,
            primary=True,
        )
        for document in page:
            document.update(self._namespace)
            self.known[document["checkpoint_id"]] = document
        if page and most > 1:
            self._oldest = page[-1]["checkpoint_id"]
        return page

    async def values(
        self, document: Document, channels: Sequence[str], unpacked: Unpacked | None
    ) -> Mapping[str, Any]:
        """Those values of channels that lie in this document, or end in it.

        Args:
            document: The checkpoint, without state.
            channels: The channels looked for.
            unpacked: What its own document holds; None when it is gone.

        Returns:
            Values by channel, perhaps of others too; none when the checkpoint is gone.
        """
        if unpacked is None:
            return {}
        inline = values_by_channel(unpacked.checkpoint)
        cut = {
            entry.channel: entry
            for entry in entries_of(document, (BUNDLE, *channels), in_pieces=True)
        }
        if not cut:
            return inline
        key, size = CheckpointKey.of(document), sum(entry.size for entry in cut.values())
        stored = await read_all_values(self._context, key, cut)
        read = await self._context.io.offload(
            size, load_values, self._context.codec, key, cut, unpacked, stored
        )
        return {**inline, **read}

    async def unpacked(self, document: Document) -> Unpacked | None:
        """A checkpoint with the channel values of its own document; None when it is gone."""
        checkpoint_id = document["checkpoint_id"]
        if checkpoint_id not in self._fetched:
            await self._fetch(document)
        found = self._fetched.pop(checkpoint_id, None)
        if found is None:
            return None
        size = len(found["checkpoint"])
        return await self._context.io.offload(
            size, layout_of(found).read, self._context.codec, found
        )

    async def _fetch(self, document: Document) -> None:
        """Fetch the document of a checkpoint, and those of the next few ancestors.

        More each time: the value is mostly near, but a channel that nothing tells of is
        looked for up to the root.
        """
        most = self._fetching * layout_of(document).first_fetch
        self._fetching *= _GROWTH
        ids: list[str] = []
        ancestor: Document | None = document
        while ancestor is not None and len(ids) < most and ancestor["checkpoint_id"] not in ids:
            ids.append(ancestor["checkpoint_id"])
            ancestor = self.known.get(parent_id_of(ancestor) or "")
        fetched = await self._context.io.find(
            "checkpoints",
            {**self._namespace, "checkpoint_id": {"$in": ids}},
            ALL_FIELDS,
            sort=[("checkpoint_id", -1)],
            limit=len(ids),
            primary=True,
        )
        self._fetched = {one["checkpoint_id"]: one for one in fetched}


class Walk:
    """The walk from a checkpoint along its parents, until every channel has its seed.

    Args:
        context: What the call works with.
        pages: The checkpoints of the namespace.
        channels: The channels looked for.

    Attributes:
        path: The ancestors visited, nearest first.
    """

    def __init__(self, context: Context, pages: AncestorPages, channels: Sequence[str]) -> None:
        self._context, self._pages = context, pages
        self.path: list[CheckpointKey] = []
        self._remaining = list(dict.fromkeys(channels))
        self._ends: dict[str, int] = {}
        self._oldest: Document = {}
        self._referenced: dict[str, tuple[CheckpointKey, ManifestEntry]] = {}
        self._seeds: dict[str, Any] = {}

    async def follow(self, target: Document) -> None:
        """Visit ancestors until every channel has its seed, or the root is reached."""
        self._oldest = target
        seen = {target["checkpoint_id"]}
        while self._remaining:
            parent_id = parent_id_of(self._oldest)
            if not parent_id or parent_id in seen:
                return
            seen.add(parent_id)
            # `get` would find it as well, but a coroutine for each ancestor takes its time.
            document = self._pages.known.get(parent_id) or await self._pages.get(parent_id)
            if document is None:
                return
            self._oldest = document
            if unsettled := self._visit(document):
                await self._look_inside(document, unsettled)

    async def check_unbroken(self) -> None:
        """Make sure that no part of a channel's history was removed.

        Raises:
            MissingChannelValueError: The oldest checkpoint that was found has a version of a
                channel, so it was written before, but the parent it names is gone.
        """
        if not self._remaining or not parent_id_of(self._oldest):
            return
        unpacked = await self._pages.unpacked(self._oldest)
        versions = unpacked.checkpoint.get("channel_versions") if unpacked else None
        lost = [channel for channel in self._remaining if channel in (versions or {})]
        if lost:
            before = f"before checkpoint {self._oldest['checkpoint_id']}"
            raise MissingChannelValueError(
                *CheckpointKey.of(self._oldest),
                [(channel, before) for channel in lost],
                "history cut",
            )

    def _visit(self, document: Document) -> list[str]:
        """Take the seeds that a manifest refers to; return the channels that may be inline."""
        layout_of(document)  # Refuses one of the future.
        key = CheckpointKey.of(document)
        self.path.append(key)
        # What is in pieces ends in the checkpoint's own document.
        for entry in list(entries_of(document, self._remaining, in_pieces=False)):
            self._referenced[entry.channel] = (key, entry)
            self._end(entry.channel)
        # What is rebuilt from further up is not stored here.
        rebuilt = delta_channels(document)
        return [channel for channel in self._remaining if channel not in rebuilt]

    async def _look_inside(self, document: Document, channels: Sequence[str]) -> None:
        unpacked = await self._pages.unpacked(document)
        values = await self._pages.values(document, channels, unpacked)
        for channel in channels:
            if channel in values:
                self._seeds[channel] = values[channel]
                self._end(channel)

    def _end(self, channel: str) -> None:
        self._remaining.remove(channel)
        self._ends[channel] = len(self.path)

    async def read_referenced_seeds(self) -> None:
        """Read the seeds that are documents of their own."""
        wanted = {one for key, entry in self._referenced.values() for one in entry.keys(key)}
        stored = await read_values(self._context, wanted)
        if lost := wanted - stored.keys():
            stored |= await read_values(self._context, lost, primary=True)
        for channel, (key, entry) in self._referenced.items():
            check_found(key, {channel: entry}, stored)
            self._seeds[channel] = await self._context.io.offload(
                entry.size, load_value, self._context.codec, entry, key, stored
            )

    async def entry(
        self, channel: str, writes: Mapping[str, list[Document]]
    ) -> DeltaChannelHistory:
        """What was found for one channel, its writes oldest first."""
        documents: list[Document] = []
        for key in reversed(self.path[: self._ends.get(channel, len(self.path))]):
            documents += [one for one in writes[key.checkpoint_id] if one["channel"] == channel]
        size = sum(len(document["value"]) for document in documents)
        loaded = await self._context.io.offload(size, load_writes, self._context.codec, documents)
        history: DeltaChannelHistory = {"writes": loaded}
        if channel in self._seeds:
            history["seed"] = self._seeds[channel]
        return history


async def _writes(
    context: Context, path: Sequence[CheckpointKey], channels: Sequence[str], pages: AncestorPages
) -> Mapping[str, list[Document]]:
    """The writes of these channels at all ancestors, by checkpoint id, in order."""
    writes: dict[str, list[Document]] = {key.checkpoint_id: [] for key in path}
    for query in _writes_queries(path, pages):
        query["channel"] = {"$in": list(dict.fromkeys(channels))}
        read = await context.io.find("writes", query, _WRITE_FIELDS, primary=True)
        found = [document for document in read if document["checkpoint_id"] in writes]
        referring = [document for document in found if "stored" in document]
        for document in referring:
            document.update(path[0].namespace())
        values = await read_values(context, filter(None, map(referred, referring)), primary=True)
        if missing := fill_writes(referring, values):
            raise MissingChannelValueError(*path[0], missing)
        for document in found:
            writes[document["checkpoint_id"]].append(document)
    return {
        checkpoint_id: counting(of_one, filtered=True) for checkpoint_id, of_one in writes.items()
    }


def _writes_queries(path: Sequence[CheckpointKey], pages: AncestorPages) -> list[Document]:
    """Queries for the writes at a path, maybe for some beside it."""
    ids = [key.checkpoint_id for key in path]
    if len(ids) > 1 and ids == sorted(ids, reverse=True) and pages.is_mostly(path):
        # One stretch of the index is faster than a lookup for each.
        return [{**path[0].namespace(), "checkpoint_id": {"$gte": ids[-1], "$lte": ids[0]}}]
    return checkpoint_queries(path)
