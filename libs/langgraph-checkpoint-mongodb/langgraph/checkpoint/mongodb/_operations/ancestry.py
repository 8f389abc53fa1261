"""The ancestry of a thread's checkpoints: who builds on whom, and what must stay for it.

For operations that remove or copy checkpoints. Only keys, parents and manifests are read, no
state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from bson import ObjectId

from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ANCESTRY_FIELDS,
    claimed_of,
    delta_channels,
    manifest_of,
    stored_value_keys,
)
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, ValueKey
from langgraph.checkpoint.mongodb._layout.layouts import WHOLE, layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.metadata import native_metadata
from langgraph.checkpoint.mongodb._layout.states import RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._operations.commit import long_ago
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.history import AncestorPages, Walk

__all__ = ["Ancestry"]


class Ancestry:
    """The checkpoints of one thread as they were when it was read.

    Args:
        context: What the call works with.
        thread_id: The thread.
        documents: Its checkpoint documents, without state.
        long_ago: What is not older may still be under way; an attribute, too.
    """

    def __init__(
        self, context: Context, thread_id: str, documents: Iterable[Document], long_ago: ObjectId
    ) -> None:
        self._context, self.thread_id, self.long_ago = context, thread_id, long_ago
        self._documents = {CheckpointKey.of(document): document for document in documents}
        self._pages: dict[str, AncestorPages] = {}
        self._callers: dict[CheckpointKey, CheckpointKey | None] = {}

    @classmethod
    async def read(cls, context: Context, thread_id: str) -> Ancestry:
        """Read the ancestry of a thread from the primary.

        Raises:
            UnknownLayoutError: A newer release wrote to it; nothing has been marked yet.
        """
        query = {"thread_id": thread_id}
        before = await long_ago(context)
        documents = await context.io.find("checkpoints", query, ANCESTRY_FIELDS, primary=True)
        for document in documents:
            layout_of(document)
        return cls(context, thread_id, documents, before)

    def without(self, keys: Collection[CheckpointKey]) -> Ancestry:
        """The thread when these checkpoints are gone."""
        left = [document for key, document in self._documents.items() if key not in keys]
        return Ancestry(self._context, self.thread_id, left, self.long_ago)

    def keys(self) -> set[CheckpointKey]:
        """All checkpoints."""
        return set(self._documents)

    def whole(self) -> set[CheckpointKey]:
        """Checkpoints in the whole layout."""
        return {key for key, document in self._documents.items() if layout_of(document) == WHOLE}

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
        namespaces = _by_namespace(self.keys() - self.retained() - self.unproven())
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
        """The checkpoint that called the graph of another, if its metadata tells."""
        if key not in self._callers:
            parents = native_metadata(self._documents[key], "parents")
            # It names all on the way down; the longest is the last of them.
            above = max(parents.keys() - {key.checkpoint_ns}, key=len, default=None)
            caller = None
            if above is not None:
                type_, data = parents[above]
                checkpoint_id = self._context.codec.loads((type_, data))
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

    def referenced_values(self, keys: Iterable[CheckpointKey]) -> set[ValueKey]:
        """The value documents that checkpoints refer to, or are about to refer to."""
        return {
            value
            for key in keys
            for manifest in (self._manifest(key), claimed_of(self._documents[key]))
            for value in stored_value_keys(key, manifest)
        }

    def _manifest(self, key: CheckpointKey) -> Mapping[str, ManifestEntry]:
        return manifest_of(self._documents[key])

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
            if self._context.codec.loads((type_, data))[0]
        }
        pages = self._pages_of(key)
        if not channels <= counted:
            # Its value is inline, or was never written, or not since the snapshot.
            unpacked = await pages.unpacked(document)
            values = await pages.values(document, sorted(channels), unpacked)
            versions = unpacked.checkpoint.get("channel_versions") if unpacked else None
            versions = versions or {}
            channels = {
                channel
                for channel in channels
                if channel in counted or (channel in versions and channel not in values)
            }
        walk = Walk(self._context, pages, sorted(channels))
        await walk.follow(document)
        return {ancestor for ancestor in walk.path if ancestor in self._documents}

    def _pages_of(self, key: CheckpointKey) -> AncestorPages:
        """The checkpoints of a namespace, to walk along."""
        if key.checkpoint_ns not in self._pages:
            of_namespace = [
                document
                for other, document in self._documents.items()
                if other.checkpoint_ns == key.checkpoint_ns
            ]
            self._pages[key.checkpoint_ns] = AncestorPages(
                self._context, key.namespace(), of_namespace
            )
        return self._pages[key.checkpoint_ns]


def _is_of_one_call(key: CheckpointKey) -> bool:
    """Whether a namespace has a task's id in it; that of a stateful subgraph has none."""
    return ":" in key.checkpoint_ns


def _depth(key: CheckpointKey) -> int:
    """What orders namespaces: one below another is longer."""
    return len(key.checkpoint_ns)


def _by_namespace(keys: Iterable[CheckpointKey]) -> dict[str, list[str]]:
    """The ids of checkpoints of one thread, by namespace."""
    namespaces: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        namespaces[key.checkpoint_ns].append(key.checkpoint_id)
    return namespaces
