"""A thread's checkpoints as a graph: who builds on whom, and what must stay for it.

Used by what removes or copies checkpoints. Only keys, parents and manifests are read,
no state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from bson import ObjectId

from langgraph.checkpoint.mongodb._codec import native_metadata
from langgraph.checkpoint.mongodb._commit import CLAIMED, RETAINED, UNPROVEN, long_ago
from langgraph.checkpoint.mongodb._compat import COUNTERS
from langgraph.checkpoint.mongodb._documents import (
    LAYOUT,
    CheckpointKey,
    Document,
    ManifestEntry,
    ValueKey,
    delta_channels,
    layout_of,
)
from langgraph.checkpoint.mongodb._history import CHAIN_FIELDS, Chain, Walk
from langgraph.checkpoint.mongodb._memory import Parent
from langgraph.checkpoint.mongodb._port import Call
from langgraph.checkpoint.mongodb._queries import KEY_FIELDS
from langgraph.checkpoint.mongodb._reading import key_of

__all__ = ["Graph", "by_namespace", "key_queries"]

_FIELDS: Document = {
    **KEY_FIELDS,
    **CHAIN_FIELDS,
    "_id": 1,
    RETAINED: 1,
    UNPROVEN: 1,
    CLAIMED: 1,
    "metadata.parents": 1,
}

_IDS_PER_QUERY = 1000


class Graph:
    """The checkpoints of one thread as they were when it was read.

    Args:
        call: What the call works with.
        thread_id: The thread.
        documents: Its checkpoint documents, without state.
        long_ago: What is not older may still be under way; an attribute, too.
    """

    def __init__(
        self, call: Call, thread_id: str, documents: Iterable[Document], long_ago: ObjectId
    ) -> None:
        self._call, self.thread_id, self.long_ago = call, thread_id, long_ago
        self._documents = {key_of(document): document for document in documents}
        self._chains: dict[str, Chain] = {}
        self._callers: dict[CheckpointKey, CheckpointKey | None] = {}

    @classmethod
    async def read(cls, call: Call, thread_id: str) -> Graph:
        """Read the graph of a thread from the primary.

        Raises:
            UnknownLayoutError: A newer release wrote to it; nothing has been marked yet.
        """
        query = {"thread_id": thread_id}
        before = await long_ago(call)
        documents = await call.io.find("checkpoints", query, _FIELDS, fresh=True)
        for document in documents:
            layout_of(document)
        return cls(call, thread_id, documents, before)

    def without(self, keys: Collection[CheckpointKey]) -> Graph:
        """The thread when these checkpoints are gone."""
        left = [document for key, document in self._documents.items() if key not in keys]
        return Graph(self._call, self.thread_id, left, self.long_ago)

    def keys(self) -> set[CheckpointKey]:
        """All checkpoints."""
        return set(self._documents)

    def whole(self) -> set[CheckpointKey]:
        """Checkpoints in the whole layout."""
        return {key for key, document in self._documents.items() if layout_of(document) != LAYOUT}

    def retained(self) -> set[CheckpointKey]:
        """Checkpoints that were removed but for what others are rebuilt from."""
        return {key for key, document in self._documents.items() if document.get(RETAINED)}

    def unproven(self) -> set[CheckpointKey]:
        """Checkpoints that are just being put, or were when a crash came."""
        return {key for key, document in self._documents.items() if document.get(UNPROVEN)}

    def under_way(self) -> set[CheckpointKey]:
        """Checkpoints that are just being put, not those that a crash left unproven."""
        return self.unproven() & self.younger_than(self.long_ago)

    def younger_than(self, bound: ObjectId) -> set[CheckpointKey]:
        """Checkpoints that were stored since."""
        ids = {key: document.get("_id") for key, document in self._documents.items()}
        return {key for key, id_ in ids.items() if isinstance(id_, ObjectId) and id_ >= bound}

    def to_keep(self, count: int) -> set[CheckpointKey]:
        """The newest checkpoints of each namespace that readers see, as a prune keeps them.

        A namespace of one call of a subgraph counts only as long as the checkpoint that called
        it is kept: nothing else leads there, finished or not. Stateful subgraphs have one
        namespace for all calls.
        """
        namespaces = by_namespace(self.keys() - self.retained() - self.unproven())
        kept = {
            CheckpointKey(self.thread_id, checkpoint_ns, checkpoint_id)
            for checkpoint_ns, ids in namespaces.items()
            if not self._is_left_to_caller(CheckpointKey(self.thread_id, checkpoint_ns, max(ids)))
            for checkpoint_id in sorted(ids, reverse=True)[:count]
        }
        return self.with_called(kept)

    def _is_left_to_caller(self, key: CheckpointKey) -> bool:
        """Whether a checkpoint is of a call that is only reached from where it was called."""
        caller = self.caller_of(key)
        if caller is None or not _is_of_one_call(key):
            return False
        if caller in self._documents and caller not in self.unproven():
            return True
        # It may yet be on its way: LangGraph stores checkpoints while their tasks run.
        id_ = self._documents[key].get("_id")
        return isinstance(id_, ObjectId) and id_ < self.long_ago

    def caller_of(self, key: CheckpointKey) -> CheckpointKey | None:
        """The checkpoint that called the graph of another, if that one says so."""
        if key not in self._callers:
            parents = native_metadata(self._documents[key], "parents")
            # It names all on the way down; the longest is the last of them.
            above = max(parents.keys() - {key.checkpoint_ns}, key=len, default=None)
            caller = None
            if above is not None:
                type_, data = parents[above]
                checkpoint_id = self._call.codec.loads((type_, data))
                caller = CheckpointKey(self.thread_id, above, checkpoint_id)
            self._callers[key] = caller
        return self._callers[key]

    def with_calls(self, chosen: Collection[CheckpointKey]) -> set[CheckpointKey]:
        """Checkpoints, and all those of the subgraphs' calls that they, and these, made."""
        found = set(chosen)
        for key in sorted(self.keys(), key=_depth):
            if _is_of_one_call(key) and self.caller_of(key) in found:
                found.add(key)
        return found

    def named_values(self, keys: Iterable[CheckpointKey]) -> set[ValueKey]:
        """The value documents that checkpoints name, or are about to name."""
        return {
            named
            for key in keys
            for entry in (*self._manifest(key).values(), *self._claimed(key))
            for named in entry.keys(key)
        }

    def _claimed(self, key: CheckpointKey) -> list[ManifestEntry]:
        return [ManifestEntry.from_document(one) for one in self._documents[key].get(CLAIMED, ())]

    def _manifest(self, key: CheckpointKey) -> Mapping[str, ManifestEntry]:
        return Parent.of(self._documents[key]).manifest

    def with_called(self, kept: Collection[CheckpointKey]) -> set[CheckpointKey]:
        """Kept checkpoints, and those of subgraphs that were called from them, and so on.

        The newest of each: a pending interrupt resumes there.
        """
        found = set(kept)
        newest: dict[tuple[str, CheckpointKey], CheckpointKey] = {}
        for key in self.keys() - self.unproven():
            if caller := self.caller_of(key):
                newest[key.checkpoint_ns, caller] = max(
                    newest.get((key.checkpoint_ns, caller), key), key
                )
        for (_, caller), key in sorted(newest.items(), key=lambda one: _depth(one[1])):
            if caller in found:
                found.add(key)
        return found

    async def ancestors_of(self, kept: Collection[CheckpointKey]) -> set[CheckpointKey]:
        """The ancestors from which delta channels are rebuilt, back to their last snapshots."""
        ancestors: set[CheckpointKey] = set()
        deltas = self._delta_channels()
        for key in kept:
            channels = deltas.get(key.checkpoint_ns, set()) - set(self._manifest(key))
            if channels:
                ancestors |= await self._rebuilt_from(key, channels)
        return ancestors

    def _delta_channels(self) -> dict[str, set[str]]:
        """The delta channels of each namespace, as counters and snapshots tell them."""
        channels: defaultdict[str, set[str]] = defaultdict(set)
        for key, document in self._documents.items():
            of_namespace = channels[key.checkpoint_ns]
            of_namespace.update(delta_channels(document))
            of_namespace.update(
                entry.channel for entry in self._manifest(key).values() if entry.snapshot
            )
        return channels

    async def _rebuilt_from(self, key: CheckpointKey, channels: set[str]) -> set[CheckpointKey]:
        document = self._documents[key]
        counters = native_metadata(document, COUNTERS)
        # A channel that was never written is counted, too, without an update.
        counted = {
            channel
            for channel, (type_, data) in counters.items()
            if self._call.codec.loads((type_, data))[0]
        }
        chain = self._chain(key)
        if not channels <= counted:
            # Its value is inline, or was never written, or not since the snapshot.
            unpacked = await chain.unpacked(document)
            values = await chain.values(document, sorted(channels), unpacked)
            versions = unpacked.checkpoint.get("channel_versions") if unpacked else None
            versions = versions or {}
            channels = {
                channel
                for channel in channels
                if channel in counted or (channel in versions and channel not in values)
            }
        walk = Walk(self._call, chain, sorted(channels))
        await walk.follow(document)
        return {ancestor for ancestor in walk.path if ancestor in self._documents}

    def _chain(self, key: CheckpointKey) -> Chain:
        """The checkpoints of a namespace, to walk along."""
        if key.checkpoint_ns not in self._chains:
            of_namespace = [
                document
                for other, document in self._documents.items()
                if other.checkpoint_ns == key.checkpoint_ns
            ]
            self._chains[key.checkpoint_ns] = Chain(self._call, key.namespace(), of_namespace)
        return self._chains[key.checkpoint_ns]


def _is_of_one_call(key: CheckpointKey) -> bool:
    """Whether a namespace names a task: that of a stateful subgraph names its nodes alone."""
    return ":" in key.checkpoint_ns


def _depth(key: CheckpointKey) -> int:
    """What orders namespaces: one below another is longer."""
    return len(key.checkpoint_ns)


def by_namespace(keys: Iterable[CheckpointKey]) -> dict[str, list[str]]:
    """The ids of checkpoints of one thread, by namespace."""
    namespaces: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        namespaces[key.checkpoint_ns].append(key.checkpoint_id)
    return namespaces


def key_queries(keys: Iterable[CheckpointKey]) -> list[Document]:
    """Queries for checkpoints of one thread, or for their writes, of bounded size."""
    keys = sorted(keys)
    thread_id = keys[0].thread_id if keys else ""
    return [
        {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": {"$in": ids[at : at + _IDS_PER_QUERY]},
        }
        for checkpoint_ns, ids in by_namespace(keys).items()
        for at in range(0, len(ids), _IDS_PER_QUERY)
    ]
