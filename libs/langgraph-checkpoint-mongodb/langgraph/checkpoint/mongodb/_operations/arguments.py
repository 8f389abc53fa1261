"""From configs, filters and manifests to queries, sorts and projections. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, get_checkpoint_id

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.compat import COUNTERS
from langgraph.checkpoint.mongodb._layout.documents import (
    UNCOUNTED,
    CheckpointKey,
    Document,
    ValueKey,
)

__all__ = [
    "ALL_FIELDS",
    "KEY_FIELDS",
    "NEWEST_FIRST",
    "NEWEST_OF_ROOT_FIRST",
    "PARENT_FIELDS",
    "ListQuery",
    "Resume",
    "any_of",
    "callers_of",
    "checked",
    "config_of",
    "list_query",
    "matches",
    "prefilter",
    "put_key",
    "thread_config",
    "value_queries",
    "writes_key",
]

Sort = list[tuple[str, int]]

NEWEST_FIRST: Sort = [("checkpoint_id", -1)]
NEWEST_OF_ROOT_FIRST: Sort = [("checkpoint_ns", 1), ("checkpoint_id", -1)]
"""For a query on a thread: the root namespace sorts before all others."""

# No projection, so `_id` comes, too: to leave it out, the server would copy each document.
ALL_FIELDS: Document = {}
KEY_FIELDS: Document = {"_id": 0, "thread_id": 1, "checkpoint_ns": 1, "checkpoint_id": 1}
PARENT_FIELDS: Document = {
    **KEY_FIELDS,
    "layout": 1,
    "channels": 1,
    "created_at": 1,
    "rekeyed": 1,
    UNCOUNTED: 1,
    f"metadata.{COUNTERS}": 1,
}


def checked(value: Any, name: str) -> str:
    """Make sure that an identifier is text before it enters a query.

    Anything else, `{"$ne": ""}` say, would be read as an operator and reach other threads.

    Raises:
        ValueError: It is not a string.
    """
    if not isinstance(value, str):
        raise ValueError(f"Invalid {name}: expected a string, got {type(value).__name__}.")
    return value


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    configurable: Mapping[str, Any] = config.get("configurable") or {}
    return configurable


def thread_config(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint (None for the newest) that a config names.

    Raises:
        ValueError: One of them is not a string, or there is no thread.
    """
    configurable = _configurable(config)
    thread_id = checked(configurable.get("thread_id"), "thread_id")
    checkpoint_ns = checked(configurable.get("checkpoint_ns", ""), "checkpoint_ns")
    checkpoint_id = configurable.get("checkpoint_id")
    if checkpoint_id is not None:
        checked(checkpoint_id, "checkpoint_id")
    return thread_id, checkpoint_ns, checkpoint_id or None


def put_key(config: RunnableConfig, checkpoint: Checkpoint) -> tuple[CheckpointKey, str | None]:
    """The key of a checkpoint to be stored, and its parent's id."""
    thread_id, checkpoint_ns, parent_id = thread_config(config)
    checkpoint_id = checked(checkpoint["id"], "checkpoint id")
    return CheckpointKey(thread_id, checkpoint_ns, checkpoint_id), parent_id


def writes_key(config: RunnableConfig, task_id: str, task_path: str) -> CheckpointKey:
    """The key of the checkpoint that pending writes belong to."""
    thread_id, checkpoint_ns, checkpoint_id = thread_config(config)
    checked(task_id, "task_id")
    checked(task_path, "task_path")
    return CheckpointKey(thread_id, checkpoint_ns, checked(checkpoint_id, "checkpoint_id"))


def callers_of(key: CheckpointKey, parents: object) -> list[CheckpointKey]:
    """The checkpoints that called the graph of another, by its metadata's `parents`."""
    if not isinstance(parents, Mapping):
        return []
    return [
        CheckpointKey(key.thread_id, checkpoint_ns, checkpoint_id)
        for checkpoint_ns, checkpoint_id in parents.items()
        if isinstance(checkpoint_id, str) and checkpoint_ns != key.checkpoint_ns
    ]


def config_of(key: CheckpointKey) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": key._asdict()}


class Resume(NamedTuple):
    """Where a listing goes on: after this checkpoint."""

    checkpoint_id: str
    thread_id: str
    checkpoint_ns: str


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a listing asks for.

    Attributes:
        query: The query for the first page.
        sort: Newest first; equal ids (a copied thread has them) by thread and namespace.
        metadata: What the metadata must equal, by key.
    """

    query: Document
    sort: Sort
    metadata: Mapping[str, Any]

    def page(self, resume: Resume | None) -> Document:
        """The query for the page that follows a checkpoint."""
        if resume is None:
            return self.query
        position = resume._asdict()
        branches: list[Document] = []
        same: Document = {}
        for name, direction in self.sort:
            operator = "$lt" if direction < 0 else "$gt"
            branches.append({**same, name: {operator: position[name]}})
            same[name] = position[name]
        if not branches:
            # One checkpoint was asked for by its whole key, and it has been read.
            return {**self.query, "checkpoint_id": {"$in": []}}
        # What a branch says of a field narrows what the query said of it.
        return any_of([{**self.query, **branch} for branch in branches])


def list_query(
    config: RunnableConfig | None,
    metadata: Mapping[str, Any] | None,
    before: RunnableConfig | None,
) -> ListQuery:
    """Turn the arguments of `list` into a query.

    Raises:
        ValueError: An identifier is not a string, or a filter key is an operator.
    """
    configurable = _configurable(config) if config is not None else {}
    query: Document = {}
    for name in ("thread_id", "checkpoint_ns"):
        if name in configurable:
            query[name] = checked(configurable[name], name)
    if (checkpoint_id := configurable.get("checkpoint_id")) not in (None, ""):
        query["checkpoint_id"] = checked(checkpoint_id, "checkpoint_id")
    if before is not None and (before_id := get_checkpoint_id(before)):
        bound = checked(before_id, "before checkpoint_id")
        exact = query.get("checkpoint_id")
        if exact is None:
            query["checkpoint_id"] = {"$lt": bound}
        elif exact >= bound:
            query["checkpoint_id"] = {"$in": []}
    order: Sort = [("checkpoint_id", -1), ("thread_id", 1), ("checkpoint_ns", 1)]
    sort = [(name, way) for name, way in order if not isinstance(query.get(name), str)]
    metadata = metadata or {}
    _check_filter(metadata)
    return ListQuery(query, sort, metadata)


def _check_filter(metadata: Mapping[Any, Any], *, nested: bool = False) -> None:
    for key, value in metadata.items():
        text = isinstance(key, str)
        if (text and key.startswith("$")) or not (text or nested):
            raise ValueError(f"Invalid filter key {key!r}: MongoDB operator keys are not allowed.")
        if isinstance(value, Mapping):
            _check_filter(value, nested=True)


def matches(codec: Codec, stored: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether stored metadata equals what a filter asks for, value by value."""
    return all(codec.loads_metadata_item(stored, key) == value for key, value in wanted.items())


def prefilter(codec: Codec, wanted: Mapping[str, Any]) -> Document:
    """A query that the server can decide and that passes every match.

    Only text, and only where both sides are plain msgpack, has one serialized form;
    everything else passes and is compared by value afterwards.
    """
    query: list[Document] = []
    for key, value in wanted.items():
        if type(value) is not str or not key or "." in key or "\0" in key:
            continue
        type_, data = codec.dumps(value)
        if type_ == "msgpack":
            path = f"metadata.{key}"
            query.append({"$or": [{f"{path}.0": {"$ne": type_}}, {f"{path}.1": data}]})
    return {"$and": query} if query else {}


def any_of(queries: Sequence[Document]) -> Document:
    """One query for the documents of any of several, what they share said once."""
    if len(queries) == 1:
        return queries[0]
    first = queries[0]
    shared = {
        name: value
        for name, value in first.items()
        if all(name in query and query[name] == value for query in queries)
    }
    branches = [
        {name: value for name, value in query.items() if name not in shared} for query in queries
    ]
    return {**shared, "$or": branches}


def value_queries(keys: Iterable[ValueKey], most: int = 1000) -> list[Document]:
    """Queries for exactly the value documents with these keys.

    Args:
        keys: The keys.
        most: Branches that one query may have.

    Returns:
        The queries, none for no keys.
    """
    namespaces: defaultdict[tuple[str, str], set[ValueKey]] = defaultdict(set)
    for key in keys:
        namespaces[key[:2]].add(key)
    branches: list[Document] = []
    for (thread_id, checkpoint_ns), wanted in namespaces.items():
        namespace = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
        branches += [{**namespace, **clause} for clause in _clauses(wanted)]
    return [any_of(branches[at : at + most]) for at in range(0, len(branches), most)]


def _clauses(keys: Iterable[ValueKey]) -> list[Document]:
    """Exactly these documents of one namespace, grouped by what groups best.

    Pieces lie under the version of the document without `part` that they follow: those that
    others wrote are not asked for, and not deleted, with it.
    """
    parts: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for key in sorted(keys, key=lambda key: (*key[:4], key.part is not None, key.part or 0)):
        parts[key.channel, key.version].append(key.part)
    by_channel: defaultdict[str, list[Any]] = defaultdict(list)
    by_version: defaultdict[str, list[Any]] = defaultdict(list)
    for (channel, version), numbers in parts.items():
        if numbers == [None]:
            by_channel[channel].append(version)
            by_version[version].append(channel)
    if len(by_channel) <= len(by_version):
        whole = [{"channel": one, "version": _one_of(many)} for one, many in by_channel.items()]
    else:
        whole = [{"channel": _one_of(many), "version": one} for one, many in by_version.items()]
    return [{**clause, "part": None} for clause in whole] + [
        {"channel": channel, "version": version, "part": _one_of(numbers)}
        for (channel, version), numbers in parts.items()
        if numbers != [None]
    ]


def _one_of(values: list[Any]) -> object:
    return values[0] if len(values) == 1 else {"$in": values}
