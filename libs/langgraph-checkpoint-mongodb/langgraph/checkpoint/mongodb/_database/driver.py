"""How the driver is called and its answers are read, where sync and async are the same."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bson.codec_options import CodecOptions
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, EncryptionError, ExecutionTimeout, OperationFailure
from pymongo.results import BulkWriteResult

from langgraph.checkpoint.mongodb._database.port import Document, Join, Role, Update, Updated

__all__ = [
    "CANNOT_JOIN",
    "UNASKED_BYTES",
    "USUAL_LIMIT",
    "WAIT_S",
    "as_operations",
    "done",
    "duplicates",
    "find_arguments",
    "join_pipeline",
    "joins_after",
    "stopped",
    "ttl_command",
    "unjoin",
    "with_plain_codec",
]

logger = logging.getLogger(__name__)

UNASKED_BYTES = 1024 * 1024
"""Below this the server's own limit needs no asking: none is known to be smaller."""

USUAL_LIMIT = 16 * 1024 * 1024
"""The limit of clients that imitate a server: they have no `hello` to ask."""

WAIT_S = 10.0
"""How long a call waits for another one of this process."""

_DUPLICATE_KEY = 11000

# How a server refuses the insert of a required update, if not for a taken key.
_BAD_ID = 53

CANNOT_JOIN = (OperationFailure, EncryptionError)
"""What a server, or a driver that encrypts fields, answers when a join is not to be had."""

# How a server says that it never joins: it cannot parse it, does not know or allow it, or not
# into a sharded collection.
_NEVER_JOINS = frozenset({9, 13, 59, 115, 303, 323, 28769, 40324})

# No field of a document has this name.
_JOINED = "writes"

# A find that is read to its end comes in as few batches as the server allows.
_BATCH = 100_000


def duplicates(unique: Sequence[str], error: BulkWriteError) -> list[int]:
    """The places of the documents whose key was taken; any other failure is raised."""
    failed = error.details.get("writeErrors", [])
    if error.details.get("writeConcernErrors") or not all(_is_taken(unique, one) for one in failed):
        raise error
    return [one["index"] for one in failed]


def _is_taken(unique: Sequence[str], failed: Mapping[str, Any]) -> bool:
    """Whether a document was refused since it is there: by our unique index, or by its id.

    Another unique index on the collection refuses documents that are not there.
    """
    pattern = failed.get("keyPattern")
    ours = pattern is None or set(pattern) in (set(unique), {"_id"})
    return failed.get("code") == _DUPLICATE_KEY and ours


def with_plain_codec(collections: Mapping[Role, Any]) -> dict[Role, Any]:
    """Collections that read plain dicts, whatever document class the client is set to."""
    plain: CodecOptions[Document] = CodecOptions(tz_aware=True)
    return {role: one.with_options(codec_options=plain) for role, one in collections.items()}


def as_operations(updates: Sequence[Update]) -> list[UpdateOne]:
    return [UpdateOne(one.filter, one.update, upsert=one.upsert) for one in updates]


def stopped(unique: Sequence[str], updates: Sequence[Update], error: BulkWriteError) -> Updated:
    """What a bulk did that stopped at a required update; any other failure is raised."""
    failed = error.details.get("writeErrors", [])
    if error.details.get("writeConcernErrors") or not all(
        updates[one["index"]].required and (one["code"] == _BAD_ID or _is_taken(unique, one))
        for one in failed
    ):
        raise error
    return Updated(error.details["nUpserted"], stopped=True)


def done(updates: Sequence[Update], bulk: BulkWriteResult) -> Updated:
    """What a bulk did that went through."""
    inserted = bulk.upserted_count
    return Updated(inserted, missed=len(updates) - inserted - bulk.matched_count)


def ttl_command(collection: str, name: str, seconds: int) -> Document:
    index = {"name": name, "expireAfterSeconds": seconds}
    return {"collMod": collection, "index": index}


def find_arguments(
    filter: Document,
    projection: Document,
    sort: Sequence[tuple[str, int]] | None,
    limit: int,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"filter": filter}
    if projection:
        arguments["projection"] = projection
    if sort:
        arguments["sort"] = list(sort)
    if limit:
        # A negative limit is a single batch: nothing is held open on the server.
        arguments["limit"] = -limit
        arguments["batch_size"] = limit
    else:
        arguments["batch_size"] = _BATCH
    return arguments


def join_pipeline(
    filter: Document, sort: Sequence[tuple[str, int]], join: Join, collection: str
) -> list[Mapping[str, Any]]:
    """The first document of a filter with those of another collection that belong to it."""
    return [
        {"$match": filter},
        {"$sort": dict(sort)},
        {"$limit": 1},
        {
            "$lookup": {
                "from": collection,
                "localField": join.on,
                "foreignField": join.on,
                "pipeline": [{"$match": join.within}],
                "as": _JOINED,
            }
        },
    ]


def unjoin(found: Sequence[Document], join: Join) -> tuple[Document, list[Document]] | None:
    """The document that a join has found, and those that belong to it."""
    if not found:
        return None
    document = found[0]
    # A collation of the first collection is that of the join, too, and another document's key
    # may be the same by it.
    key = [document[name] for name in join.key]
    joined = [one for one in document.pop(_JOINED) if [one[name] for name in join.key] == key]
    return document, joined


def joins_after(error: Exception) -> bool:
    """Whether another join is worth a try, after one that failed.

    One that failed for its size, or for what happens now and then, tells nothing of the next.

    Raises:
        ExecutionTimeout: That is what failed; two finds would not be faster.
    """
    if isinstance(error, ExecutionTimeout):
        raise error
    joins = isinstance(error, OperationFailure) and error.code not in _NEVER_JOINS
    if not joins:
        logger.debug("Reads a checkpoint and its pending writes by two finds: %s", error)
    return joins
