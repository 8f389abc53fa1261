"""What serialized bytes hold is told without making it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.serialized import classes_in, opaque, packed_again
from langgraph.checkpoint.mongodb._layout.whole import as_strings, strings_of
from tests.support import checkpoint
from tests.unit_tests.strategies import values

UNKNOWN = ormsgpack.packb(
    {"order": ormsgpack.Ext(5, ormsgpack.packb(("an.application", "Order", {"n": 1}, "x")))}
)


def stored(value: Any) -> bytes:
    return JsonPlusSerializer().dumps_typed(value)[1]


@given(values)
def test_values_are_what_they_are(value: Any) -> None:
    data = stored([value])
    assert packed_again(opaque(data)) == data
    assert not classes_in(data)


def test_classes_are_counted_in_one_another() -> None:
    at = datetime.now(UTC)
    value = {"sends": [Send("a", {"at": at}), Send("b", {at})], "set": {1}}
    assert packed_again(opaque(stored(value))) == stored(value)
    found = classes_in(stored(value))
    assert found["langgraph.types", "Send"] == found["datetime", "datetime"] == 2
    assert found["builtins", "set"] == 2
    assert classes_in(UNKNOWN) == {("an.application", "Order"): 1}


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_cannot_be_imported_is_missed(encrypted: bool) -> None:
    serde: Any = JsonPlusSerializer()
    type_, data = "msgpack", UNKNOWN
    if encrypted:
        serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
        cipher, data = serde.cipher.encrypt(UNKNOWN)
        type_ = f"msgpack+{cipher}"
    codec = Codec(serde)
    loaded = codec.loads((type_, data))
    assert codec.lost_in_loading((type_, data), loaded) == ["an.application.Order"]


def test_nothing_is_missed_of_what_comes_out_in_another_order() -> None:
    codec = Codec(JsonPlusSerializer())
    value = {"set": {"a", "b"}, "at": datetime.now(UTC)}
    typed = codec.dumps(value)
    again = dict(reversed(value.items()))
    assert codec.lost_in_loading(typed, again) == []
    assert codec.lost_in_loading(typed, {"set": ["a", "b"], "at": None}) != []


def test_a_fingerprint_tells_values_apart_and_not_their_encryption() -> None:
    codec = Codec(EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef"))
    assert codec.dumps([1]) != codec.dumps([1])
    assert codec.fingerprint([1]) == codec.fingerprint([1])
    prints = {codec.fingerprint(value) for value in ([1], [2], "1", b"1", None)}
    assert len(prints) == 5


def test_versions_become_texts_by_the_line_of_descent() -> None:
    whole = checkpoint({"a": 1}, {"a": 3, "b": 1}, versions_seen={"node": {"a": 1, "b": 3}})
    document = {"thread_id": "t", "checkpoint_id": "one", "checkpoint": b"bytes"}
    first = as_strings(document, whole, {})
    texts = strings_of(first)
    assert texts.keys() == {1, 3}
    assert first["versions_seen"]["node"] == {"a": texts[1], "b": texts[3]}
    assert as_strings(document, whole, {}) == first
    assert strings_of(as_strings(document, whole, {1: texts[1]}))[1] == texts[1]
    for other in ({"checkpoint_id": "two"}, {"checkpoint": b"others"}):
        assert (
            strings_of(as_strings({**document, **other}, whole, {}))
            .items()
            .isdisjoint(texts.items())
        )
