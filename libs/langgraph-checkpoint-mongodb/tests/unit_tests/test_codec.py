from __future__ import annotations

import json
import tracemalloc
from collections import UserDict, deque
from types import SimpleNamespace
from typing import Any

import bson
import numpy as np
import pytest
from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._layout.codec import (
    Codec,
    document_size,
    estimate_size,
    native_size,
)
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.values import payload_size, value_documents
from langgraph.checkpoint.mongodb._layout.writes import write_documents
from tests.unit_tests.strategies import CODEC, names, texts, values

MB = 1024 * 1024


def as_stored(document: dict[str, Any]) -> int:
    return len(bson.encode({"_id": ObjectId(), **document}))


# ------------------------------------------------------------------ serializing


@given(values)
def test_values_come_back(value: Any) -> None:
    assert CODEC.loads(CODEC.dumps(value)) == value


@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), None, "x"])
def test_serialized_data_is_always_bytes(value: Any) -> None:
    assert type(CODEC.dumps(value)[1]) is bytes


def test_a_serializer_may_answer_any_bytes_like_object() -> None:
    class Views(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            type_, data = super().dumps_typed(obj)
            return type_, memoryview(data)  # type: ignore[return-value]

    assert Codec(Views()).dumps("x") == CODEC.dumps("x")


@pytest.mark.parametrize(
    ("value", "native"),
    [(None, True), (b"x", True), ([1], True), (bytearray(b"x"), False), (1j, False)],
)
def test_a_value_is_native_if_it_comes_out_of_a_container_as_it_went_in(
    value: Any, native: bool
) -> None:
    codec = Codec(JsonPlusSerializer(pickle_fallback=True))
    assert codec.is_native(codec.dumps(value)) == native


@pytest.mark.parametrize("value", [{"a": 1}, bytearray(b"x")])
def test_encryption_does_not_hide_which_values_are_native(value: Any) -> None:
    encrypted = Codec(EncryptedSerializer.from_pycryptodome_aes(key=b"0" * 16))
    assert encrypted.is_native(encrypted.dumps(value)) == CODEC.is_native(CODEC.dumps(value))


@pytest.mark.parametrize("value", [[1], "x", {"a": None}])
def test_every_value_is_native_to_a_serializer_of_one_form(value: Any) -> None:
    class Json:
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return "json", json.dumps(obj).encode()

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return json.loads(data[1])

    codec = Codec(Json())
    assert codec.is_native(codec.dumps(value))


@given(st.none() | st.booleans() | st.integers() | st.floats() | texts | st.text("é€😀"))
def test_a_scalars_bound_is_never_below_its_size(value: Any) -> None:
    bound = native_size(value)
    assert bound is None or len(CODEC.dumps(value)[1]) <= bound


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, b"x", [], (), np.float64(1.0)])
def test_only_plain_scalars_have_a_bound(value: Any) -> None:
    assert native_size(value) is None


# ------------------------------------------------------------------ sizes of documents


@given(st.dictionaries(names.filter(lambda name: "\0" not in name), texts), st.binary())
def test_a_documents_size_is_that_of_its_bson_in_the_server(
    document: dict[str, Any], data: bytes
) -> None:
    document.pop("_id", None)
    stored = {**document, "value": data}
    assert document_size({**stored, "value": b""}, data) == as_stored(stored)


@given(names, values, st.booleans(), st.none() | st.integers(1, 3))
def test_the_size_of_a_value_document_is_exact(
    channel: str, value: Any, ttl: bool, parts: int | None
) -> None:
    entry = ManifestEntry(channel, "v", 1, parts=parts)
    typed = [CODEC.dumps(value)] * (parts or 1)
    key = CheckpointKey("t", "", "c")
    for document in value_documents(key, entry, typed, wall_time() if ttl else None):
        assert payload_size(document) == as_stored(document)


@given(names, values, st.booleans(), texts)
def test_the_size_of_a_write_document_is_exact(
    channel: str, value: Any, ttl: bool, path: str
) -> None:
    key = CheckpointKey("t", "", "c")
    stamp = wall_time() if ttl else None
    (document,) = write_documents(CODEC, key, [(channel, value)], "task", path, stamp)
    assert payload_size(document) == as_stored(document)


def test_measuring_a_large_value_does_not_copy_it() -> None:
    entry = ManifestEntry("a", "v", 1)
    (document,) = value_documents(
        CheckpointKey("t", "", "c"), entry, [("bytes", bytes(8 * MB))], None
    )
    tracemalloc.start()
    try:
        payload_size(document)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MB


# ------------------------------------------------------------------ estimates


class Counted(UserDict[str, Any]):
    """A mapping that counts the values that are looked at."""

    looked_at = 0

    def __getitem__(self, key: str) -> Any:
        self.looked_at += 1
        return super().__getitem__(key)


@pytest.mark.parametrize(
    "value",
    [
        "x" * MB,
        b"x" * MB,
        bytearray(MB),
        memoryview(bytes(MB)),
        np.zeros(MB, dtype=np.uint8),
        ["x" * MB],
        ("x" * MB,),
        {"x" * MB},
        {"a": {"b": ["x" * MB]}},
        deque(["x" * MB]),
        SimpleNamespace(text="x" * MB),
        ["x" * 600] * 2000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_large_value_is_seen_to_be_large(value: Any) -> None:
    assert estimate_size(value, enough=MB // 2) >= MB // 2


@pytest.mark.parametrize("value", [None, 5, "x", [1, 2], {"a": "b"}, SimpleNamespace(a=1), object])
def test_a_small_value_is_seen_to_be_small(value: Any) -> None:
    assert estimate_size(value, enough=MB) < 64 * 1024


@given(values)
def test_a_small_value_is_not_taken_for_a_large_one(value: Any) -> None:
    # A scalar counts as 8 bytes; msgpack may need one. The first items stand for the others.
    assert estimate_size(value, enough=MB) <= 64 * len(CODEC.dumps(value)[1]) + 8


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, deque, dict.fromkeys])
def test_a_value_of_many_items_is_called_large_without_looking_at_them(kind: Any) -> None:
    many = kind(range(100_000))
    tracemalloc.start()
    try:
        assert estimate_size(many, enough=MB // 2) >= MB // 2
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024


def test_a_bounded_number_of_items_is_looked_at() -> None:
    many = [Counted({"x": 1}) for _ in range(500)]
    nested = [many, many, many, many]
    estimate_size(nested, enough=MB)
    assert sum(one.looked_at for one in many) < 100


def test_messages_of_a_long_chat_are_taken_for_each_other() -> None:
    chat = [HumanMessage("x" * 1000) for _ in range(1000)]
    assert MB // 2 < estimate_size(chat, enough=100 * MB) < 4 * MB


def test_an_object_that_contains_itself_is_estimated() -> None:
    loop: list[Any] = []
    loop.append(loop)
    owner = SimpleNamespace()
    owner.self = {"owner": owner}
    assert estimate_size(loop, owner, enough=MB) < MB


def test_all_values_given_are_counted() -> None:
    assert estimate_size("x" * 600, "y" * 600, enough=1000) >= 1000
