"""What identifies checkpoints, channel values and pending writes, and every query by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

__all__ = [
    "VALUE_KEY",
    "WRITE_KEY",
    "CheckpointKey",
    "Document",
    "ValueKey",
    "any_of",
    "checkpoint_queries",
    "checkpoint_query",
    "config_of",
    "value_queries",
]

Document = dict[str, Any]

VALUE_KEY = ("thread_id", "checkpoint_ns", "channel", "version", "part")
"""The fields of the unique index of channel values."""

WRITE_KEY = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
"""The fields of the unique index of pending writes, as the older releases made it."""

_KEYS_PER_QUERY = 10_000
"""One query asks for at most so many documents by their keys."""

_BRANCHES_PER_QUERY = 1000
"""And has at most so many branches: a server looks each of them up by itself."""


class CheckpointKey(NamedTuple):
    """What identifies a checkpoint: the fields of its unique index."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CheckpointKey:
        """The key of a checkpoint, or of the one that a pending write belongs to."""
        return cls(document["thread_id"], document["checkpoint_ns"], document["checkpoint_id"])

    def namespace(self) -> Document:
        """The query for the checkpoint's thread and namespace."""
        return {"thread_id": self.thread_id, "checkpoint_ns": self.checkpoint_ns}

    def query(self) -> Document:
        """The query for exactly this checkpoint."""
        return self._asdict()


def config_of(key: CheckpointKey) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": key._asdict()}


class ValueKey(NamedTuple):
    """What identifies a channel value document: the fields of its unique index."""

    thread_id: str
    checkpoint_ns: str
    channel: str
    version: str
    part: int | None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ValueKey:
        """The key of a stored document."""
        # Only `part`, which may be None, can be absent.
        return cls(*(document.get(name) for name in VALUE_KEY))  # type: ignore[arg-type]

    def query(self) -> Document:
        """The query for exactly this document."""
        return self._asdict()


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


def checkpoint_query(keys: Sequence[CheckpointKey]) -> Document:
    """The query for exactly these checkpoints, a page of them, or for their pending writes."""
    return any_of(
        [
            {
                "thread_id": thread_id,
                "checkpoint_ns": checkpoint_ns,
                "checkpoint_id": _one_of(ids),
            }
            for (thread_id, checkpoint_ns), ids in _by_namespace(keys).items()
        ]
    )


def checkpoint_queries(keys: Iterable[CheckpointKey]) -> list[Document]:
    """Queries for checkpoints, however many, or for their pending writes; one a namespace."""
    return [
        {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": {"$in": ids[at : at + _KEYS_PER_QUERY]},
        }
        for (thread_id, checkpoint_ns), ids in _by_namespace(sorted(keys)).items()
        for at in range(0, len(ids), _KEYS_PER_QUERY)
    ]


def _by_namespace(keys: Iterable[CheckpointKey]) -> Mapping[tuple[str, str], list[str]]:
    namespaces: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for key in keys:
        namespaces[key.thread_id, key.checkpoint_ns].append(key.checkpoint_id)
    return namespaces


def value_queries(keys: Iterable[ValueKey], most: int = _BRANCHES_PER_QUERY) -> list[Document]:
    """Queries for exactly the channel value documents with these keys, none for no keys.

    Args:
        keys: The keys.
        most: How many branches one query may have.
    """
    ordered = sorted(set(keys), key=_value_order)
    branches: list[list[Document]] = []
    for at in range(0, len(ordered), _KEYS_PER_QUERY):
        namespaces: defaultdict[tuple[str, str], list[ValueKey]] = defaultdict(list)
        for key in ordered[at : at + _KEYS_PER_QUERY]:
            namespaces[key[:2]].append(key)
        branches.append(
            [
                {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns, **clause}
                for (thread_id, checkpoint_ns), wanted in namespaces.items()
                for clause in _clauses(wanted)
            ]
        )
    return [any_of(some[at : at + most]) for some in branches for at in range(0, len(some), most)]


def _value_order(key: ValueKey) -> tuple[Any, ...]:
    return (*key[:4], key.part is not None, key.part or 0)


def _clauses(keys: Iterable[ValueKey]) -> list[Document]:
    """Exactly these documents of one namespace, in their order, grouped by what groups best.

    Pieces lie under the version of the document without `part` that they follow: those that
    others wrote are not asked for, and not deleted, with it.
    """
    parts: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for key in keys:
        parts[key.channel, key.version].append(key.part)
    by_channel: defaultdict[str, list[Any]] = defaultdict(list)
    by_version: defaultdict[str, list[Any]] = defaultdict(list)
    for (channel, version), numbers in parts.items():
        if numbers == [None]:
            by_channel[channel].append(version)
            by_version[version].append(channel)
    if len(by_channel) <= len(by_version):
        undivided = [{"channel": one, "version": _one_of(many)} for one, many in by_channel.items()]
    else:
        undivided = [{"channel": _one_of(many), "version": one} for one, many in by_version.items()]
    return [{**clause, "part": None} for clause in undivided] + [
        {"channel": channel, "version": version, "part": _one_of(numbers)}
        for (channel, version), numbers in parts.items()
        if numbers != [None]
    ]


def _one_of(values: list[Any]) -> object:
    return values[0] if len(values) == 1 else {"$in": values}
