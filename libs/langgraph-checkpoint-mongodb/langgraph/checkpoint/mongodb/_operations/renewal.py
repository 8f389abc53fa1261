"""Renewing the stamps of what is still relied on, so that no thread in use expires.

While a subgraph, or one node, asks a person several times, the checkpoint that called it is not
written again. Neither are its values, the pending writes of other tasks of its step, nor the
checkpoints of other subgraphs that wait. All of these are as old as the step. A put of something
that relies on them renews their stamps, at most some 64 times in a TTL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from langgraph.checkpoint.mongodb._database.port import Role, Update
from langgraph.checkpoint.mongodb._layout.checkpoint import Life
from langgraph.checkpoint.mongodb._layout.keys import (
    CheckpointKey,
    Document,
    ValueKey,
    checkpoint_queries,
    value_queries,
)
from langgraph.checkpoint.mongodb._layout.ttl import is_due, value_stamp
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from langgraph.checkpoint.mongodb._operations.context import Context

__all__ = ["renew", "renew_for_writes", "restamp"]


async def renew_for_writes(context: Context, key: CheckpointKey) -> None:
    """Renew what pending writes rely on: their checkpoint, and those that called it.

    A checkpoint that this saver neither wrote nor read is not known here: it is just being
    put, or resumed elsewhere.
    """
    life = context.memory.life(key)
    if life is not None:
        await renew(context, [key, *life.callers])


async def renew(context: Context, keys: Iterable[CheckpointKey]) -> None:
    """Renew the stamps of checkpoints of one thread that are due, and of all that they need.

    Args:
        context: What the call works with. Without a TTL, the stamps are taken away.
        keys: The checkpoints.
    """
    due: set[CheckpointKey] = set()
    for key in keys:
        if is_due(await _created_at(context, key), context.ttl, await context.io.now()):
            due.add(key)
    if not due:
        return
    at = await context.io.now()
    (thread_id,) = {key.thread_id for key in due}
    ancestry = await Ancestry.read(context, thread_id)
    needed = ancestry.with_called(due & ancestry.keys())
    needed |= await ancestry.ancestors_of(needed)
    queries: list[tuple[Role, list[Document]]] = [
        # No value may expire before a checkpoint that refers to it.
        ("values", value_queries(ancestry.referenced_values(needed))),
        ("writes", checkpoint_queries(needed)),
        ("checkpoints", checkpoint_queries(needed)),
    ]
    for role, of_role in queries:
        for query in of_role:
            stamped = {**query, "created_at": {"$exists": True}}
            await context.io.update_many(role, stamped, _update(context, role, at))
    for key in due:
        known = context.memory.life(key)
        life = Life(None if context.ttl is None else at, known.callers if known else ())
        context.memory.note_life(key, life)


def _update(context: Context, role: Role, at: datetime) -> Document:
    if context.ttl is None:
        return {"$unset": {"created_at": ""}}
    return {"$set": {"created_at": value_stamp(context.ttl, at) if role == "values" else at}}


async def _created_at(context: Context, key: CheckpointKey) -> datetime | None:
    """The stamp of a checkpoint, from memory or by a small query."""
    life = context.memory.life(key)
    # Without a TTL no command is spent on stamps.
    if life is None and context.ttl is not None:
        fields: Document = {"_id": 0, "created_at": 1}
        found = await context.io.find("checkpoints", key.query(), fields, limit=1, primary=True)
        life = Life.of(found[0]) if found else Life(None)
        context.memory.note_life(key, life)
    return None if life is None else life.created_at


async def restamp(context: Context, keys: Sequence[ValueKey], stamp: datetime | None) -> None:
    """Renew the TTL stamps of value documents, or take them away.

    A checkpoint that never expires refers to a value without a stamp, so it gets none.

    Args:
        context: What the call works with.
        keys: The documents' unique keys.
        stamp: The new stamp, None for no expiry.
    """
    if stamp is None:
        updates = [Update(key.query(), {"$unset": {"created_at": ""}}) for key in keys]
    else:
        updates = [
            Update(
                {**key.query(), "created_at": {"$exists": True}}, {"$set": {"created_at": stamp}}
            )
            for key in keys
        ]
    if updates:
        await context.io.update("values", updates)
