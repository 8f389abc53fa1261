"""The arguments of a call, checked, and what they ask for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, get_checkpoint_id

from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, any_of

__all__ = [
    "NEWEST_FIRST",
    "NEWEST_OF_ROOT_FIRST",
    "ListQuery",
    "Resume",
    "callers_of",
    "checked",
    "list_query",
    "put_key",
    "thread_config",
    "writes_key",
]

Sort = list[tuple[str, int]]

NEWEST_FIRST: Sort = [("checkpoint_id", -1)]
NEWEST_OF_ROOT_FIRST: Sort = [("checkpoint_ns", 1), ("checkpoint_id", -1)]
"""For a query on a thread: the root namespace sorts before all others."""


def checked(value: Any, name: str) -> str:
    """Make sure that an identifier is text before it enters a query.

    Anything else, `{"$ne": ""}` say, would be taken for an operator and match other threads.

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


class Resume(NamedTuple):
    """The checkpoint after which a listing continues."""

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
            # One checkpoint was asked for by its complete key, and it has been read.
            return {**self.query, "checkpoint_id": {"$in": []}}
        # A branch's condition on a field replaces the query's, and is narrower.
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
