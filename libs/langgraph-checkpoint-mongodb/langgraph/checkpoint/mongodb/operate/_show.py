"""show: one thread, its checkpoints with forks, their sizes, and how its bytes grew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.serialized import packed_again
from langgraph.checkpoint.mongodb._layout.states import RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._layout.whole import read_whole
from langgraph.checkpoint.mongodb._layout.writes import counting
from langgraph.checkpoint.mongodb._operations.arguments import checked
from langgraph.checkpoint.mongodb.operate._store import DOCUMENT_BYTES, Store, made_at
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["CheckpointNode", "ThreadTree", "show"]

_INTERRUPT = "__interrupt__"
_UNREADABLE = "unreadable"

# Points of the curve of bytes; a plot has no more columns.
_POINTS = 500


@dataclass(slots=True)
class CheckpointNode:
    """One checkpoint.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        parent_id: The checkpoint it follows; None for a first one.
        step: The step, as its metadata has it.
        source: Where it came from: `input`, `loop`, `update`, `fork`.
        at: When it was stored.
        layout: `whole` or `split`.
        bytes: Bytes of its own document.
        channels: Serialized bytes of its values by channel: of a split one of those outside of
            its document, of a whole one of all.
        writes: Its pending writes that count.
        writes_bytes: Bytes of their documents.
        interrupts: How many of its tasks wait for an answer.
        hidden: Why readers do not see it: `retained`, `unproven`, `unreadable` (`verify` says
            more), or empty.
        values: Its channel values, only if they were asked for.
        questions: What the interrupts ask, only if values were asked for.
    """

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    step: Any
    source: Any
    at: datetime | None
    layout: str
    bytes: int
    channels: dict[str, int]
    writes: int = 0
    writes_bytes: int = 0
    interrupts: int = 0
    hidden: str = ""
    values: dict[str, Any] | None = None
    questions: list[Any] | None = None


@dataclass(slots=True)
class ThreadTree:
    """A thread.

    Attributes:
        thread_id: The thread.
        checkpoints: Its checkpoints, by namespace, oldest first.
        bytes: Bytes of all its documents, by collection's role.
        growth: When it had how many bytes: of what is there still, oldest first.
    """

    thread_id: str
    checkpoints: list[CheckpointNode] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)
    growth: list[tuple[datetime, int]] = field(default_factory=list)


def show(saver: MongoDBSaver, thread_id: str, *, values: bool = False) -> ThreadTree | None:
    """Describe a thread.

    Args:
        saver: The saver.
        thread_id: The thread.
        values: Whether to read the newest checkpoints' values, and what interrupts ask.

    Returns:
        The thread; None when it has no checkpoints.

    Raises:
        ValueError: The identifier is not a string.
    """
    store = Store(saver)
    tree = ThreadTree(checked(thread_id, "thread_id"))
    written: Counter[datetime] = Counter()
    nodes: dict[CheckpointKey, CheckpointNode] = {}
    for document in _checkpoints(store, thread_id):
        nodes[CheckpointKey.of(document)] = _node(store.context.codec, document)
        _add(tree, "checkpoints", document, written)
    if not nodes:
        return None
    for key, writes in _writes(store, tree, written):
        if key in nodes:
            _add_writes(nodes[key], writes)
    for document in store.stream("values", {"size": DOCUMENT_BYTES}, thread_id):
        _add(tree, "values", document, written)
    tree.checkpoints = [nodes[key] for key in sorted(nodes)]
    followed = {(node.checkpoint_ns, node.parent_id) for node in tree.checkpoints}
    for node in tree.checkpoints:
        if (node.checkpoint_ns, node.checkpoint_id) in followed:
            node.interrupts = 0  # What was asked there has been answered.
    tree.growth = _curve(written)
    if values:
        _add_values(saver, tree)
    return tree


def _checkpoints(store: Store, thread_id: str) -> Iterator[Document]:
    fields: Document = {
        **dict.fromkeys((*CheckpointKey._fields, "parent_checkpoint_id", "layout", "type"), 1),
        **dict.fromkeys((RETAINED, UNPROVEN, "channels.channel", "channels.size"), 1),
        **dict.fromkeys(("metadata.step", "metadata.source"), 1),
        "size": DOCUMENT_BYTES,
        # The state of a whole one: it alone tells its channels.
        "checkpoint": {"$cond": [{"$eq": ["$layout", SPLIT.number]}, "$$REMOVE", "$checkpoint"]},
    }
    return store.stream("checkpoints", fields, thread_id)


def _node(codec: Codec, document: Document) -> CheckpointNode:
    hidden = next((mark for mark in (RETAINED, UNPROVEN) if document.get(mark)), "")
    try:
        channels = _channels(codec, document)
        step, source = (codec.loads_metadata_item(document, name) for name in ("step", "source"))
    except Exception:
        # Whatever the serializer raises for bytes that are not its own: `verify` says more.
        channels, step, source, hidden = {}, None, None, _UNREADABLE
    return CheckpointNode(
        document["checkpoint_ns"],
        document["checkpoint_id"],
        document.get("parent_checkpoint_id"),
        step,
        source,
        made_at(document),
        "split" if document.get("layout") == SPLIT.number else "whole",
        document["size"],
        channels,
        hidden=hidden,
    )


def _channels(codec: Codec, document: Document) -> dict[str, int]:
    if document.get("layout") == SPLIT.number:
        return {one["channel"]: one["size"] for one in document.get("channels", ())}
    values = read_whole(codec, document).checkpoint.get("channel_values") or {}
    return {name: _packed_size(codec, value) for name, value in values.items()}


def _packed_size(codec: Codec, value: Any) -> int:
    if not codec.may_be_cut():
        return len(codec.dumps(value)[1])
    return len(packed_again(value))


def _add(tree: ThreadTree, role: str, document: Document, written: Counter[datetime]) -> None:
    tree.bytes[role] = tree.bytes.get(role, 0) + document["size"]
    at = made_at(document)
    if at is not None:
        written[at] += document["size"]


def _writes(
    store: Store, tree: ThreadTree, written: Counter[datetime]
) -> Iterator[tuple[CheckpointKey, list[Document]]]:
    names = (*CheckpointKey._fields, "task_id", "task_path", "idx", "channel", "attempt", "count")
    fields: Document = {**dict.fromkeys(names, 1), "size": DOCUMENT_BYTES}
    of_checkpoint: list[Document] = []
    for document in store.stream("writes", fields, tree.thread_id):
        _add(tree, "writes", document, written)
        if of_checkpoint and CheckpointKey.of(of_checkpoint[0]) != CheckpointKey.of(document):
            yield CheckpointKey.of(of_checkpoint[0]), of_checkpoint
            of_checkpoint = []
        of_checkpoint.append(document)
    if of_checkpoint:
        yield CheckpointKey.of(of_checkpoint[0]), of_checkpoint


def _add_writes(node: CheckpointNode, writes: list[Document]) -> None:
    counted = counting(writes)
    node.writes, node.writes_bytes = len(counted), sum(one["size"] for one in counted)
    channels: defaultdict[str, set[str]] = defaultdict(set)
    for one in counted:
        channels[one["task_id"]].add(one["channel"])
    node.interrupts = sum(_INTERRUPT in of_task for of_task in channels.values())


def _curve(written: Counter[datetime]) -> list[tuple[datetime, int]]:
    """The sum of bytes over time, in a bounded number of points."""
    total, curve = 0, []
    for at in sorted(written):
        total += written[at]
        curve.append((at, total))
    every = -(-len(curve) // _POINTS) or 1
    return [*curve[:-1][::every], *curve[-1:]]


def _add_values(saver: MongoDBSaver, tree: ThreadTree) -> None:
    newest = {node.checkpoint_ns: node for node in tree.checkpoints if not node.hidden}
    for node in newest.values():
        key = CheckpointKey(tree.thread_id, node.checkpoint_ns, node.checkpoint_id)
        found = saver.get_tuple({"configurable": key._asdict()})
        if found is None:
            continue
        node.values = found.checkpoint["channel_values"]
        writes = found.pending_writes or []
        node.questions = [value for _, channel, value in writes if channel == _INTERRUPT]
