"""Fetching the values and pending writes of checkpoints: all of them, or an error.

A value that is not found is looked for once more on the primary, by the checkpoint as it is
then: a secondary may lag, and the checkpoint may have been removed in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    KEY_FIELDS,
    CheckpointInfo,
    stored_value_keys,
)
from langgraph.checkpoint.mongodb._layout.found import Found, group_writes
from langgraph.checkpoint.mongodb._layout.keys import (
    CheckpointKey,
    Document,
    ValueKey,
    checkpoint_query,
    value_queries,
)
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.states import PROVEN, VISIBLE
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb.errors import MissingChannelValueError

__all__ = [
    "check_found",
    "complete",
    "fill",
    "learn",
    "read_all_values",
    "read_values",
    "read_writes",
    "small_values",
]


async def complete(
    context: Context,
    found: Sequence[Found],
    known: Mapping[ValueKey, Document] | None = None,
    writes: Mapping[CheckpointKey, list[Document]] | None = None,
    *,
    check: bool = True,
) -> list[Found]:
    """Read values and writes of checkpoints; leave out those that were removed meanwhile.

    Args:
        context: What the call works with.
        found: The checkpoints.
        known: Value documents that were read already.
        writes: The pending writes, if they were read already.
        check: Whether to `fill` each as well.

    Raises:
        MissingChannelValueError: A checkpoint that is still there lacks a value.
    """
    known = known or {}
    wanted = {key for one in found for key in one.value_keys()}
    reading = read_values(context, wanted - known.keys())
    if writes is not None:
        values = await reading
    else:
        of_all = read_writes(context, [one.key for one in found])
        values, writes = await context.io.together(reading, of_all)
    values |= {key: known[key] for key in wanted & known.keys()}
    for one in found:
        one.values = values
        one.writes = writes.get(one.key, [])
    if not check:
        return list(found)
    return [filled for one in found if (filled := await fill(context, one))]


async def fill(context: Context, found: Found) -> Found | None:
    """Make sure that everything of a checkpoint was read; None when it was removed meanwhile.

    Raises:
        MissingChannelValueError: It is still there, but lacks a value.
    """
    return await _look_again(context, found) if found.fill() else found


async def _look_again(context: Context, found: Found) -> Found | None:
    """Read a checkpoint that lacked a value once more, from the primary.

    It may have been retained meanwhile: then it is as complete as before.
    """
    query = {**found.key.query(), **PROVEN}
    documents = await context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
    if not documents:
        return None
    again = Found.of(documents[0])
    again.values = await read_values(context, again.value_keys(), primary=True)
    again.writes = found.writes
    if missing := again.fill():
        raise MissingChannelValueError(*again.key, missing)
    return again


async def read_values(
    context: Context, keys: Iterable[ValueKey], *, primary: bool = False
) -> dict[ValueKey, Document]:
    """Read value documents, each once."""
    return {
        ValueKey.of(document): document
        for query in value_queries(keys)
        for document in await context.io.find("values", query, ALL_FIELDS, primary=primary)
    }


async def read_all_values(
    context: Context, key: CheckpointKey, manifest: Mapping[str, ManifestEntry]
) -> dict[ValueKey, Document]:
    """Read the documents of a checkpoint's values, from the primary, those not found there.

    Raises:
        MissingChannelValueError: One is not there.
    """
    wanted = set(stored_value_keys(key, manifest))
    stored = await read_values(context, wanted)
    if lost := wanted - stored.keys():
        stored |= await read_values(context, lost, primary=True)
    check_found(key, manifest, stored)
    return stored


def check_found(
    key: CheckpointKey,
    manifest: Mapping[str, ManifestEntry],
    stored: Mapping[ValueKey, Document],
) -> None:
    """Make sure that all documents of a checkpoint's values were found.

    Raises:
        MissingChannelValueError: One was not.
    """
    missing = [
        (entry.channel, entry.holds)
        for entry in manifest.values()
        if not all(one in stored for one in entry.keys(key))
    ]
    if missing:
        raise MissingChannelValueError(*key, missing)


async def learn(context: Context, document: Document) -> CheckpointInfo:
    """What a checkpoint's document tells a put that follows it, how values are cut included.

    Raises:
        MissingChannelValueError: It is still there, but its bundle is not.
    """
    found = Found.of(document)
    if BUNDLE in found.info.manifest:
        try:
            found.values = await _read_bundle(context, found)
        except MissingChannelValueError:
            query = {**found.key.query(), **VISIBLE}
            if await context.io.find("checkpoints", query, KEY_FIELDS, limit=1, primary=True):
                raise
            return CheckpointInfo.absent(SPLIT)
    await context.io.offload(found.size, found.read_small, context.codec)
    return found.info


async def small_values(context: Context, document: Document) -> dict[str, Any]:
    """Read the values of a checkpoint that lie in its own document, or in its bundle.

    Raises:
        MissingChannelValueError: Its bundle is not there.
    """
    found = Found.of(document)
    if BUNDLE in found.info.manifest:
        found.values = await _read_bundle(context, found)
    return await context.io.offload(found.size, found.read_small, context.codec)


async def _read_bundle(context: Context, found: Found) -> dict[ValueKey, Document]:
    bundle = {BUNDLE: found.info.manifest[BUNDLE]}
    return await read_all_values(context, found.key, bundle)


async def read_writes(
    context: Context, keys: Sequence[CheckpointKey]
) -> dict[CheckpointKey, list[Document]]:
    """Read the pending writes of checkpoints."""
    return group_writes(await context.io.find("writes", checkpoint_query(keys), ALL_FIELDS))
