from __future__ import annotations

import inspect
from typing import Any

import bson
import pytest
from bson.errors import InvalidDocument
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo import MongoClient

from langgraph.checkpoint.mongodb.utils import (
    DRIVER_METADATA,
    _append_client_metadata,
    dumps_metadata,
    loads_metadata,
)
from tests.unit_tests.strategies import scalars, texts

SERDE = JsonPlusSerializer()

# Without a NUL, which BSON refuses.
keys = texts.filter(lambda key: "\0" not in key) | st.sampled_from(
    ["", "a.b", "$set", "$", ".", "_id", "0", "type"]
)
metadata_of = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys | st.integers(-5, 5), inner, max_size=3)
    ),
    max_leaves=12,
)


def through_bson(stored: Any) -> Any:
    return bson.decode(bson.encode({"metadata": stored}))["metadata"]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"leaf": 1}
    for _ in range(depth):
        value = {"in": value}
    return value


@given(st.dictionaries(keys, metadata_of, max_size=4))
@example({"a": {5: {"b": {"c\0": 1}}}})
@example({"a": {}, "b": [], "c": [{"d": 1}], "e": None, "": {"": 1}})
@example({"pair": ["msgpack", b"x"]})
def test_metadata_comes_back_through_bson(metadata: dict[str, Any]) -> None:
    stored = through_bson(dumps_metadata(SERDE, metadata))
    assert loads_metadata(SERDE, stored) == metadata


@pytest.mark.parametrize("depth", [1, 59, 60, 61, 98, 99, 100, 200])
def test_metadata_of_any_depth_comes_back_through_bson(depth: int) -> None:
    stored = through_bson(dumps_metadata(SERDE, nested(depth)))
    assert loads_metadata(SERDE, stored) == nested(depth)


def test_the_keys_of_metadata_are_native_and_its_leaves_are_serialized() -> None:
    stored = dumps_metadata(SERDE, {"user": {"name": "x"}, "tags": [1]})
    assert stored == {
        "user": {"name": ["msgpack", SERDE.dumps_typed("x")[1]]},
        "tags": ["msgpack", SERDE.dumps_typed([1])[1]],
    }


def test_a_key_with_a_nul_is_refused_as_it_was_in_older_releases() -> None:
    for metadata in ({"a\0b": 1}, {"outer": {"a\0b": 1}}):
        with pytest.raises(InvalidDocument):
            through_bson(dumps_metadata(SERDE, metadata))


@pytest.mark.parametrize("inner", [{5: 1}, {None: 1}, {"ok": 1, 5: 1}])
def test_a_mapping_whose_keys_bson_cannot_hold_is_a_leaf(inner: Any) -> None:
    stored = dumps_metadata(SERDE, {"outer": inner})
    assert stored["outer"][0] == "msgpack"


def test_a_key_that_utf_8_cannot_hold_is_refused_as_the_serializer_refuses_it() -> None:
    with pytest.raises(type(refusal({"\ud800": 1}))):
        dumps_metadata(SERDE, {"outer": {"\ud800": 1}})


def refusal(value: Any) -> Exception:
    try:
        SERDE.dumps_typed(value)
    except Exception as error:
        return error
    raise AssertionError("not refused")


@pytest.mark.skipif(
    not inspect.isroutine(getattr(MongoClient, "append_metadata", None)),
    reason="clients can be told since PyMongo 4.14: install that to run this test",
)
def test_a_client_is_told_once_which_library_uses_it() -> None:
    client = MongoClient[dict[str, Any]]("mongodb://192.0.2.1", connect=False)
    for _ in range(3):
        _append_client_metadata(client)
    names = client.options.pool_options.metadata["driver"]["name"]
    assert names.split("|").count("Langgraph") == 1
    client.close()
    assert DRIVER_METADATA.version


def test_a_client_that_cannot_be_told_is_left_alone() -> None:
    class Older:
        """Before PyMongo 4.14 every attribute of a client is a database."""

        def __getattr__(self, name: str) -> object:
            return object()

    _append_client_metadata(Older())
