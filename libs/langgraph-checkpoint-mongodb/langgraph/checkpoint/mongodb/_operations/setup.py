"""setup: making the indexes that are missing, and setting the TTL.

What exists is never dropped, and an index counts by its keys and properties, not by its
name: other releases and the JavaScript saver name theirs differently.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pymongo.errors import OperationFailure
from pymongo.operations import IndexModel

from langgraph.checkpoint.mongodb._database.port import Port, Role
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES, TTL_KEYS, Index
from langgraph.checkpoint.mongodb._layout.keys import Document

__all__ = ["setup"]

logger = logging.getLogger(__name__)

_UNAUTHORIZED = 13


async def setup(io: Port, ttl: int | None) -> None:
    """Make the missing indexes of all collections, and set the TTL.

    Args:
        io: The port.
        ttl: Seconds that documents live; None leaves a TTL index as it is, and what
            has a stamp still expires by it.

    Raises:
        pymongo.errors.OperationFailure: The server refuses an index that the savers
            cannot do without; a note says which and what to do.
    """
    for role, indexes in INDEXES.items():
        existing = list((await _indexes(io, role)).values())
        missing = [index for index in indexes if not any(index.is_met_by(one) for one in existing)]
        if missing:
            await _create(io, role, missing)
        if ttl is not None:
            await _set_ttl(io, role, ttl)


async def _create(io: Port, role: Role, missing: Sequence[Index]) -> None:
    try:
        await io.create_indexes(
            role, [IndexModel(list(index.keys), **index.options()) for index in missing]
        )
    except OperationFailure as error:
        if len(missing) == 1:
            await _do_without(io, role, missing[0], error)
            return
        # Some servers build one index at a time, and one refusal must not keep the
        # others from being made.
        for index in missing:
            await _create(io, role, [index])


async def _do_without(io: Port, role: Role, index: Index, error: OperationFailure) -> None:
    """Decide what it means that the server refused an index."""
    existing = (await io.indexes(role)).items()
    if any(index.is_met_by(one) for _, one in existing):
        return  # Another process was faster.
    where, keys = io.name(role), dict(index.keys)
    if not index.unique:
        logger.warning("%s has no index on %s (%s): calls that use it scan.", where, keys, error)
        return
    in_the_way = [name for name, one in existing if tuple(one["key"]) == index.keys]
    if in_the_way:
        logger.warning(
            "%s has no unique index on %s: the server refuses it beside the existing index "
            "%r, which is not unique (the JavaScript saver makes such a one). What is written "
            "again, or by two processes at once, may be stored twice. To repair, drop that "
            "index and construct the saver again.",
            where,
            keys,
            in_the_way[0],
        )
        return
    error.add_note(
        f"{where} needs a unique index on {keys}. If another index is being built, try again "
        "when it is done; if documents share a key, remove the duplicates; if this user may "
        "not create indexes, have it created beforehand and pass create_indexes=False."
    )
    raise error


async def _set_ttl(io: Port, role: Role, ttl: int) -> None:
    existing = await _ttl_index(io, role)
    if existing is None:
        try:
            await io.create_indexes(role, [IndexModel(list(TTL_KEYS), expireAfterSeconds=ttl)])
            return
        except OperationFailure:
            # Another process may have made it meanwhile, with a TTL of its own.
            existing = await _ttl_index(io, role)
            if existing is None:
                raise
    name, seconds = existing
    if seconds == ttl:
        return
    try:
        await io.expire_after(role, name, ttl)
    except NotImplementedError:  # mongomock has no collMod.
        await _replace_ttl(io, role, name, ttl)
    except OperationFailure as error:
        if error.code != _UNAUTHORIZED:
            raise
        await _replace_ttl_without_right(io, role, name, ttl, error)


async def _replace_ttl(io: Port, role: Role, name: str, ttl: int) -> None:
    await io.drop_index(role, name)
    await io.create_indexes(role, [IndexModel(list(TTL_KEYS), expireAfterSeconds=ttl)])


async def _replace_ttl_without_right(
    io: Port, role: Role, name: str, ttl: int, error: OperationFailure
) -> None:
    """Drop the index and create it: the built-in role readWrite may do that, but not collMod."""
    try:
        await _replace_ttl(io, role, name, ttl)
    except OperationFailure as other:
        found = await _ttl_index(io, role)
        if found is not None and found[1] == ttl:
            return  # Another process was faster.
        index = f"{dict(TTL_KEYS)}, {{expireAfterSeconds: {ttl}}}"
        if other.code == _UNAUTHORIZED and found is not None:
            logger.warning(
                "%s: the TTL stays at %s seconds: this user may neither change the index %r "
                "(%s) nor drop it (%s). Let another user run collMod, or drop it and create %s.",
                io.name(role),
                found[1],
                name,
                _words(error),
                _words(other),
                index,
            )
            return
        other.add_note(
            f"The TTL index of {io.name(role)} was to be made anew, since collMod was refused "
            f"({error}). Create it: {index}."
        )
        raise


def _words(error: OperationFailure) -> str:
    """What the server says, without the rest of its answer."""
    return str((error.details or {}).get("errmsg", error))


async def _indexes(io: Port, role: Role) -> dict[str, Document]:
    try:
        return await io.indexes(role)
    except OperationFailure as error:
        error.add_note(
            f"To see which indexes {io.name(role)} has, this user needs the right to listIndexes. "
            "Have the indexes made beforehand, and pass create_indexes=False."
        )
        raise


async def _ttl_index(io: Port, role: Role) -> tuple[str, int | None] | None:
    """Name and TTL of the index on the stamps, None when there is none."""
    for name, index in (await _indexes(io, role)).items():
        if tuple(index["key"]) == TTL_KEYS:
            return name, index.get("expireAfterSeconds")
    return None
