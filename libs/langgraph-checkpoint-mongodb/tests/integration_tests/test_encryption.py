"""With an encrypting serializer nothing of the state is stored in clear."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Send
from pymongo.database import Database

from tests.face import Face, MakeFace
from tests.support import MB, Chain, checkpoint, contents, insert_whole, thread, values_of

Data = Database[dict[str, Any]]

SECRET = "s3cret"  # noqa: S105
VALUES: dict[str, Any] = {
    "inline": SECRET,
    "nested": {"deep": [SECRET, {SECRET: 1}]},
    "bytes": SECRET.encode(),
    "large": SECRET * 1000,
    "set": {SECRET},
    "__start__": dict.fromkeys("abc", SECRET * (MB // 6)),
    "__pregel_tasks": [Send("node", SECRET * (MB // 6)) for _ in range(3)],
}


@pytest.fixture
def serde() -> EncryptedSerializer:
    return EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")


@pytest.fixture
def encrypted(make_face: MakeFace, serde: EncryptedSerializer) -> Face:
    return make_face(serde=serde)


def in_clear(database: Data) -> list[str]:
    """Collections in which the secret can be read."""
    return [
        name
        for name, found in contents(database).items()
        if any(SECRET.encode() in bson.encode(document) for document in found)
    ]


def use(face: Face) -> Chain:
    """Store the secret wherever a state has room for one."""
    chain = Chain(face)
    chain.put(VALUES, metadata={"note": SECRET, "user": {"name": SECRET, "all": [SECRET]}})
    writes = [("a", SECRET), ("large", SECRET * 1000), ("__error__", SECRET), ("none", None)]
    face.put_writes(chain.config, writes, "task")
    chain.put({"few": SECRET})
    return chain


def test_without_encryption_the_secret_would_be_found(face: Face, database: Data) -> None:
    use(face)
    assert in_clear(database) == [
        "checkpoint_channel_values",
        "checkpoint_writes",
        "checkpoints",
    ]


def test_nothing_is_stored_in_clear(encrypted: Face, database: Data) -> None:
    use(encrypted)
    assert in_clear(database) == []


def test_everything_is_read_back(encrypted: Face) -> None:
    chain = use(encrypted)
    assert values_of(encrypted, chain.config) == chain.values
    first = encrypted.list(thread())[-1]
    metadata: Any = first.metadata
    assert metadata["note"] == SECRET
    assert metadata["user"] == {"name": SECRET, "all": [SECRET]}
    written = {channel: value for _, channel, value in first.pending_writes or []}
    assert written == {
        "a": SECRET,
        "large": SECRET * 1000,
        "__error__": SECRET,
        "none": None,
    }


@pytest.mark.parametrize("size", [6_000, 20_000, 70_000, 300_000])
def test_nothing_is_stored_in_clear_whatever_its_size(
    encrypted: Face, database: Data, size: int
) -> None:
    """Whether it lies inline, in a document, in pieces or in parts; and when it changes."""
    many = SECRET * (size // len(SECRET))
    items = [f"{SECRET} {number}" for number in range(size // 12)]
    states: list[dict[str, Any]] = [
        {"__start__": {"a": many}, "list": items, "dict": {"a": items}, "text": many},
        {"__start__": {"a": items}, "list": [*items, *items[:900]], "dict": {"a": items, "b": 1}},
        {"__pregel_tasks": [Send("node", many)], "list": items[:-1], "text": items},
        {"__pregel_tasks": [Send("node", item) for item in items], "dict": items, "n": 1},
        {"n": 2},
    ]
    chain = Chain(encrypted)
    read = []
    for state in states:
        read.append((chain.put(state), dict(chain.values)))
    assert in_clear(database) == []
    stored = database["checkpoint_channel_values"].find({})
    assert {one["type"].partition("+")[2] for one in stored} == {"aes"}
    for config, values in read:
        assert values_of(encrypted.fresh(), config) == values


def test_an_old_thread_goes_on_encrypted(encrypted: Face, database: Data) -> None:
    stored = checkpoint({"a": 1}, {"a": 1})
    old = insert_whole(database, thread(), stored, {"source": "input", "step": -1})
    step = {"source": "loop", "step": 0, "note": SECRET}
    values = {"a": SECRET, "large": SECRET * 1000}
    config = encrypted.put(old, checkpoint(values, {"a": 2, "large": 1}), step, {"a": 2})
    assert in_clear(database) == []
    assert values_of(encrypted, config) == values
    assert values_of(encrypted, old) == {"a": 1}


def test_a_copy_is_not_in_clear_either(encrypted: Face, database: Data) -> None:
    chain = use(encrypted)
    encrypted.copy_thread("t", "copy")
    assert in_clear(database) == []
    assert values_of(encrypted, thread("copy")) == chain.values


def test_another_key_reads_nothing(encrypted: Face, make_face: MakeFace) -> None:
    use(encrypted)
    other = make_face(serde=EncryptedSerializer.from_pycryptodome_aes(key=b"f" * 16))
    with pytest.raises(ValueError, match="MAC"):
        other.get_tuple(thread())


def test_threads_from_before_the_encryption_are_still_read(
    face: Face, encrypted: Face, database: Data
) -> None:
    chain = Chain(face)
    chain.put({"large": SECRET * 1000, "few": 1})
    chain.face = encrypted
    config = chain.put({"few": 2})
    assert values_of(encrypted, config) == chain.values
