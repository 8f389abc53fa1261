"""The two savers say the same of what they do in the same way."""

from __future__ import annotations

import inspect
import re

import pytest

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver, MongoDBSaver

METHODS = (
    "get_tuple",
    "list",
    "put",
    "put_writes",
    "delete_thread",
    "delete_for_runs",
    "copy_thread",
    "prune",
    "get_delta_channel_history",
)


def sections(of: object) -> dict[str, str]:
    """A docstring by its sections, what stands before the first under an empty name."""
    text = inspect.getdoc(of) or ""
    parts = re.split(r"^(Args|Attributes|Returns|Yields|Raises|Example):$", text, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_described_in_the_same_words(name: str) -> None:
    sync, async_ = sections(getattr(MongoDBSaver, name)), getattr(AsyncMongoDBSaver, f"a{name}")
    assert sync[""]
    in_sync = {
        key: text.replace("`aget_tuple`", "`get_tuple`") for key, text in sections(async_).items()
    }
    assert in_sync == sync


def test_arguments_and_attributes_are_described_in_the_same_words() -> None:
    sync, async_ = sections(MongoDBSaver), sections(AsyncMongoDBSaver)
    said = async_["Args"].replace("as `MongoDBSaver` does", "as older releases did")
    assert said == sync["Args"]
    assert async_["Attributes"] == sync["Attributes"]


def test_from_conn_string_is_described_in_the_same_words() -> None:
    sync, async_ = (
        sections(MongoDBSaver.from_conn_string),
        sections(AsyncMongoDBSaver.from_conn_string),
    )
    assert {**async_, "Raises": ""} == {**sync, "Raises": ""}
