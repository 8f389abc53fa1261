from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import WRITES_IDX_MAP

from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, ValueKey
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, WHOLE, layout_of
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.values import value_documents, value_version
from langgraph.checkpoint.mongodb._layout.writes import (
    pending_writes,
    refer,
    referred,
    write_documents,
)
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError
from tests.unit_tests.strategies import CODEC, names, texts, unique_versions, values, versions

KEY = CheckpointKey("t", "ns", "c")
STAMP = datetime(2026, 1, 2, tzinfo=UTC)


# ------------------------------------------------------------------ layouts


def test_a_document_without_a_layout_is_whole() -> None:
    assert layout_of({"checkpoint_id": "c"}) == WHOLE


def test_a_split_document_says_so() -> None:
    assert layout_of({"layout": 2}) == SPLIT


@pytest.mark.parametrize("layout", [0, 3, "2", None])
def test_an_unknown_layout_is_refused_by_name(layout: object) -> None:
    document = {"layout": layout, "thread_id": "t9", "checkpoint_id": "c9"}
    with pytest.raises(UnknownLayoutError, match=r"'c9' of thread 't9'.*Upgrade") as failed:
        layout_of(document)
    assert failed.value.layout == layout


# ------------------------------------------------------------------ versions of values


@given(unique_versions, names)
def test_a_unique_version_is_the_key_itself(version: str, checkpoint_id: str) -> None:
    assert value_version(version, checkpoint_id) == version


def test_versions_as_the_other_python_savers_make_them_are_unique() -> None:
    version = f"{3:032}.{0.123456789:016}"
    assert value_version(version, "c") == version


@pytest.mark.parametrize("version", [1, 2.5, "7", "", None, f"{1:031d}.5", f"{1:032d}", "x.y"])
def test_any_other_version_is_made_unique_by_its_checkpoint(version: object) -> None:
    assert value_version(version, "c1") != value_version(version, "c2")


@given(versions, names)
def test_a_key_of_its_own_names_the_checkpoint(version: object, checkpoint_id: str) -> None:
    assert value_version(version, checkpoint_id, private=True).endswith(f"@{checkpoint_id}")


# ------------------------------------------------------------------ manifest entries

entries = st.builds(
    ManifestEntry,
    channel=names,
    version=names,
    size=st.integers(0, 2**40),
    channel_version=st.none() | texts,
    parts=st.none() | st.integers(1, 100),
    snapshot=st.booleans(),
    stored_channel=st.none() | names,
    stored_part=st.none() | st.integers(0, 100),
)


@given(entries)
def test_a_manifest_entry_comes_back(entry: ManifestEntry) -> None:
    assert ManifestEntry.from_document(entry.to_document()) == entry


def test_facts_that_a_later_release_adds_to_an_entry_are_ignored() -> None:
    document = {"channel": "a", "version": "v", "size": 5, "compressed": True}
    assert ManifestEntry.from_document(document) == ManifestEntry("a", "v", 5)


def test_a_plain_manifest_entry_stores_three_facts() -> None:
    document = ManifestEntry("a", "v", 5).to_document()
    assert document == {"channel": "a", "version": "v", "size": 5}


def test_an_entry_holds_the_channel_version_that_its_key_stands_for() -> None:
    assert ManifestEntry("a", "v", 5).holds == "v"
    assert ManifestEntry("a", "7@c", 5, channel_version="7").holds == "7"
    assert ManifestEntry("a", "@c", 5, channel_version="").holds == ""


# ------------------------------------------------------------------ channel value documents


def test_a_value_document_has_its_key_type_and_bytes() -> None:
    entry = ManifestEntry("a", "v", 1)
    (document,) = value_documents(KEY, entry, [("msgpack", b"5")], None)
    assert document == {
        "thread_id": "t",
        "checkpoint_ns": "ns",
        "channel": "a",
        "version": "v",
        "type": "msgpack",
        "value": b"5",
    }


def test_value_documents_are_stamped_only_with_a_ttl() -> None:
    entry = ManifestEntry("a", "v", 1)
    (document,) = value_documents(KEY, entry, [("msgpack", b"5")], STAMP)
    assert document["created_at"] == STAMP


@pytest.mark.parametrize("parts", [None, 1, 3])
def test_an_entry_finds_the_documents_it_was_written_as(parts: int | None) -> None:
    entry = ManifestEntry("a", "v", 1, parts=parts)
    documents = value_documents(KEY, entry, [("msgpack", b"x")] * (parts or 1), STAMP)
    assert [ValueKey.of(document) for document in documents] == entry.keys(KEY)


def test_an_item_of_the_input_is_found_where_the_input_was_stored() -> None:
    entry = ManifestEntry("a", "v", 1, stored_channel="__start__", stored_part=2)
    assert entry.keys(KEY) == [ValueKey("t", "ns", "__start__", "v", 2)]


def test_the_key_of_a_value_without_parts_finds_none_of_its_pieces() -> None:
    query = {"thread_id": "t", "checkpoint_ns": "ns", "channel": "a", "version": "v"}
    assert ValueKey("t", "ns", "a", "v", None).query() == {**query, "part": None}
    assert ValueKey("t", "ns", "a", "v", 0).query() == {**query, "part": 0}


# ------------------------------------------------------------------ pending writes


def written(*tasks: tuple[str, str, list[tuple[str, Any]]]) -> list[dict[str, Any]]:
    return [
        document
        for path, task, writes in tasks
        for document in write_documents(CODEC, KEY, writes, task, path, None)
    ]


@given(st.lists(st.tuples(names, values), max_size=5), names, texts)
def test_pending_writes_come_back_in_the_order_of_the_task(
    writes: list[tuple[str, Any]], task: str, path: str
) -> None:
    writes = [(channel, value) for channel, value in writes if channel not in WRITES_IDX_MAP]
    got = pending_writes(CODEC, reversed(written((path, task, writes))))
    assert got == [(task, channel, value) for channel, value in writes]


def test_pending_writes_are_ordered_by_path_then_task_then_place() -> None:
    documents = written(
        ("~b", "1", [("x", 1), ("y", 2)]), ("~a", "2", [("x", 3)]), ("~a", "1", [("x", 4)])
    )
    assert [value for _, _, value in pending_writes(CODEC, documents)] == [4, 3, 1, 2]


def test_writes_without_a_path_come_first() -> None:
    documents = written(("~a", "1", [("x", 1)]), ("", "2", [("x", 2)]))
    del documents[1]["task_path"]
    assert [value for _, _, value in pending_writes(CODEC, documents)] == [2, 1]


def test_a_special_channel_has_a_place_of_its_own() -> None:
    documents = written(("", "1", [("x", 1), ("__error__", "e"), ("__interrupt__", "i")]))
    assert [document["idx"] for document in documents] == [0, -1, -3]


def test_write_documents_are_stamped_only_with_a_ttl() -> None:
    (stamped,) = write_documents(CODEC, KEY, [("x", 1)], "1", "", STAMP)
    (plain,) = write_documents(CODEC, KEY, [("x", 1)], "1", "", None)
    assert (stamped["created_at"], "created_at" in plain) == (STAMP, False)


@pytest.mark.parametrize("part", [None, 3])
def test_a_write_that_names_stored_bytes_finds_them(part: int | None) -> None:
    entry = ManifestEntry("__start__", "v", 1, stored_part=part)
    (document,) = write_documents(CODEC, KEY, [("x", 1)], "1", "", None)
    refer(document, entry)
    assert document["value"] == b""
    assert [referred(document)] == entry.keys(KEY)


def test_a_write_in_a_copied_thread_finds_the_copied_bytes() -> None:
    entry = ManifestEntry("__start__", "v", 1, stored_part=3)
    (document,) = write_documents(CODEC, KEY, [("x", 1)], "1", "", None)
    refer(document, entry)
    found = referred({**document, "thread_id": "copy"})
    assert found is not None
    assert (found.thread_id, found.part) == ("copy", 3)


def test_a_write_that_holds_its_value_names_nothing() -> None:
    (document,) = write_documents(CODEC, KEY, [("x", 1)], "1", "", None)
    assert referred(document) is None
