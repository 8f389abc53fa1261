"""Renewing the stamps of what is still relied on, so that no thread in use expires.

While a subgraph, or one node, asks a person several times, the checkpoint that called it is
not written again. Nor are the values that it names, what other tasks of its step have
written, and the checkpoints of subgraphs that wait beside. All of that is as old as the
step; whoever puts something that relies on it renews it, some 64 times in a TTL at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from langgraph.checkpoint.mongodb._database.port import Call, Role
from langgraph.checkpoint.mongodb._layout.documents import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.ttl import is_due, value_stamp
from langgraph.checkpoint.mongodb._operations.ancestry import Graph, key_queries
from langgraph.checkpoint.mongodb._operations.arguments import value_queries
from langgraph.checkpoint.mongodb._operations.memory import Life

__all__ = ["renew", "renew_for_writes"]


async def renew_for_writes(call: Call, key: CheckpointKey) -> None:
    """Renew what pending writes rely on: their checkpoint, and those that called it.

    One that this saver neither wrote nor read is just being put, or nobody resumes it here.
    """
    life = call.io.memory.life(key)
    if life is not None:
        await renew(call, [key, *life.callers])


async def renew(call: Call, keys: Iterable[CheckpointKey]) -> None:
    """Renew the stamps of checkpoints of one thread that are due, and of all that they need.

    Args:
        call: What the call works with. Without a TTL, the stamps are taken away.
        keys: The checkpoints.
    """
    due: set[CheckpointKey] = set()
    for key in keys:
        if is_due(await _created_at(call, key), call.ttl, await call.io.now()):
            due.add(key)
    if not due:
        return
    at = await call.io.now()
    (thread_id,) = {key.thread_id for key in due}
    graph = await Graph.read(call, thread_id)
    needed = graph.with_called(due & graph.keys())
    needed |= await graph.ancestors_of(needed)
    queries: list[tuple[Role, list[Document]]] = [
        # No value may expire before a checkpoint that names it.
        ("values", value_queries(graph.named_values(needed))),
        ("writes", key_queries(needed)),
        ("checkpoints", key_queries(needed)),
    ]
    for role, of_role in queries:
        for query in of_role:
            stamped = {**query, "created_at": {"$exists": True}}
            await call.io.update_many(role, stamped, _update(call, role, at))
    for key in due:
        known = call.io.memory.life(key)
        life = Life(None if call.ttl is None else at, known.callers if known else ())
        call.io.memory.note_life(key, life)


def _update(call: Call, role: Role, at: datetime) -> Document:
    if call.ttl is None:
        return {"$unset": {"created_at": ""}}
    return {"$set": {"created_at": value_stamp(call.ttl, at) if role == "values" else at}}


async def _created_at(call: Call, key: CheckpointKey) -> datetime | None:
    """The stamp of a checkpoint, from memory or by a small query."""
    life = call.io.memory.life(key)
    # Who never used a TTL is not to ask for stamps.
    if life is None and call.ttl is not None:
        fields: Document = {"_id": 0, "created_at": 1}
        found = await call.io.find("checkpoints", key.query(), fields, most=1, fresh=True)
        life = Life.of(found[0]) if found else Life(None)
        call.io.memory.note_life(key, life)
    return None if life is None else life.created_at
