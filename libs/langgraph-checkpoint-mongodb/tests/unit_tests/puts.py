"""Puts over a scripted port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._database.port import Updated, run
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.packing import pack_checkpoint
from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.put import put
from tests.support import checkpoint, thread
from tests.unit_tests.scripted import Asked, ScriptedPort
from tests.unit_tests.strategies import CODEC

MB = 1024 * 1024

LARGE = "x" * 2 * INLINE_VALUE_BYTES

V1, V2 = f"{1:032d}.{1:016d}", f"{2:032d}.{2:016d}"

PARENT = CheckpointKey("t", "", "1")

KEY = CheckpointKey("t", "", "2")

ENTRY = ManifestEntry("large", V1, len(LARGE) + 3)

INSERTED, UPDATED = Updated(1), Updated(0)


def parent_document() -> Document:
    """The document of the parent as it is stored."""
    type_, data = pack_checkpoint(CODEC, checkpoint({}, {"large": V1}), {})
    fields = {"layout": 2, "channels": [ENTRY.to_document()], "type": type_, "checkpoint": data}
    return {**PARENT.query(), **fields}


def put_second(
    port: ScriptedPort,
    values: Mapping[str, Any],
    versions: Mapping[str, Any],
    *,
    new: Mapping[str, Any] | None = None,
    metadata: Any = None,
    ttl: int | None = None,
) -> Any:
    """Put checkpoint 2 after checkpoint 1; `new` is every channel unless given."""
    made = checkpoint(values, versions, id="2")
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), ttl)
    new_versions: Any = versions if new is None else new
    metadata = metadata or {"step": 1}
    config = thread("t", checkpoint_id="1")
    return run(put(call, config, made, metadata, new_versions))


def knowing(
    *script: tuple[str, Any], parent: CheckpointInfo | None = None, **options: Any
) -> ScriptedPort:
    """A port whose memory knows the parent, which holds `large` at version 1."""
    port = ScriptedPort(*script, **options)
    port.memory.remember(PARENT, parent or CheckpointInfo(SPLIT, {"large": ENTRY}))
    return port


def committed(port: ScriptedPort) -> Document:
    """The fields, beside its key, that the last commit wrote."""
    (*_, one) = [
        document for one in port.asked if one.role == "checkpoints" for document in written(one)
    ]
    return {name: value for name, value in one.items() if name not in CheckpointKey._fields}


def written(asked: Asked) -> list[Document]:
    if asked.method == "insert":
        return list(asked.given)
    if asked.method != "update":
        return []
    return [one.update["$set"] for one in asked.given if "$set" in one.update]


def inserted(port: ScriptedPort) -> list[Document]:
    """The value documents and the pending writes that were inserted."""
    return [
        document
        for one in port.asked
        if one.method == "insert" and one.role != "checkpoints"
        for document in one.given
    ]


def taken(*script: tuple[str, Any]) -> ScriptedPort:
    """A port whose server has the value of `large` at version 2 already."""
    stored = {"thread_id": "t", "checkpoint_ns": "", "channel": "large", "version": V2}
    return knowing(("insert", [0]), *script, ("find", [stored]), ("update", UPDATED))
