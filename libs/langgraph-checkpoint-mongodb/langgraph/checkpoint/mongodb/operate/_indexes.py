"""indexes: which the savers rely on, which of them are there, and how to make the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.mongodb._database.port import Role, run
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES, TTL_KEYS
from langgraph.checkpoint.mongodb.operate._store import Store
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = ["IndexState", "indexes"]


@dataclass(frozen=True, slots=True)
class IndexState:
    """An index that the savers rely on, or another one that is there.

    Attributes:
        collection: The collection.
        keys: Fields and directions.
        state: `present`, `missing`, `not unique` (one is there that does not serve), or `other`.
        needed_for: `correctness`, `speed`, `expiry`, or empty for another one.
        name: The index's name, empty if it is missing.
        bytes: Its bytes.
        command: What makes it in `mongosh`, empty unless it is missing or does not serve.
    """

    collection: str
    keys: dict[str, Any]
    state: str
    needed_for: str
    name: str = ""
    bytes: int = 0
    command: str = ""


def indexes(saver: MongoDBSaver) -> list[IndexState]:
    """Compare the indexes that are there with those that the savers rely on.

    Args:
        saver: The saver; with a `ttl` the indexes on stamps are among those it relies on.

    Returns:
        The indexes, those relied on first, collection by collection.
    """
    store = Store(saver)
    return [state for role in INDEXES for state in _of_collection(store, role)]


def _of_collection(store: Store, role: Role) -> list[IndexState]:
    existing = run(store.context.io.indexes(role))
    sizes = store.statistics(role).get("indexSizes", {})
    collection = store.collection(role).name
    found, used = [], {"_id_"}
    for index in INDEXES[role]:
        name = next((name for name, one in existing.items() if index.is_met_by(one)), "")
        alike = [name for name, one in existing.items() if tuple(one["key"]) == index.keys]
        state = "present" if name else "not unique" if alike else "missing"
        used |= {name, *alike}
        options: dict[str, Any] = {"unique": True} if index.unique else {}
        if index.partial is not None:
            options["partialFilterExpression"] = index.partial
        command = "" if name else _command(collection, dict(index.keys), options)
        if alike and not name:
            command = f"{_of(collection)}.dropIndex({json.dumps(alike[0])}); {command}"
        found.append(
            IndexState(
                collection,
                dict(index.keys),
                state,
                "correctness" if index.unique else "speed",
                name or (alike[0] if alike else ""),
                sizes.get(name, 0),
                command,
            )
        )
    found += _on_stamps(store, collection, existing, sizes)
    for name, one in existing.items():
        if name not in used and tuple(one["key"]) != TTL_KEYS:
            keys = dict(one["key"])
            found.append(IndexState(collection, keys, "other", "", name, sizes.get(name, 0)))
    return found


def _on_stamps(
    store: Store, collection: str, existing: dict[str, Any], sizes: dict[str, int]
) -> list[IndexState]:
    ttl, keys = store.saver.ttl, dict(TTL_KEYS)
    there = [name for name, one in existing.items() if tuple(one["key"]) == TTL_KEYS]
    if there:
        size = sizes.get(there[0], 0)
        return [IndexState(collection, keys, "present", "expiry", there[0], size)]
    if ttl is None:
        return []
    command = _command(collection, keys, {"expireAfterSeconds": ttl})
    return [IndexState(collection, keys, "missing", "expiry", command=command)]


def _command(collection: str, keys: dict[str, Any], options: dict[str, Any]) -> str:
    arguments = ", ".join(json.dumps(one) for one in (keys, options) if one)
    return f"{_of(collection)}.createIndex({arguments})"


def _of(collection: str) -> str:
    return f"db.getCollection({json.dumps(collection)})"
