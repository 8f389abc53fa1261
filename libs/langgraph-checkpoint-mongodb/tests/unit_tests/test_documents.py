from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._documents import (
    LAYOUT,
    CheckpointKey,
    ManifestEntry,
    ValueKey,
    layout_of,
    pack_checkpoint,
    pending_writes,
    unpack_checkpoint,
    value_documents,
    value_version,
    write_documents,
)
from langgraph.checkpoint.mongodb.errors import UnknownLayoutError
from tests.support import checkpoint
from tests.unit_tests.strategies import CODEC, names, texts, unique_versions, values, versions

KEY = CheckpointKey("t", "ns", "c")
STAMP = datetime(2026, 1, 2, tzinfo=UTC)


def stored(packed: tuple[str, bytes], checkpoint_id: str) -> dict[str, Any]:
    return {"type": packed[0], "checkpoint": packed[1], "checkpoint_id": checkpoint_id}


def repacked(given: Checkpoint, **inline: Any) -> Checkpoint:
    packed = pack_checkpoint(CODEC, given, inline.get("native", {}), inline.get("typed", {}))
    return unpack_checkpoint(CODEC, stored(packed, given["id"]))


# ------------------------------------------------------------------ layouts


def test_a_document_without_a_layout_is_whole() -> None:
    assert layout_of({"checkpoint_id": "c"}) == 1


def test_a_split_document_says_so() -> None:
    assert layout_of({"layout": LAYOUT}) == 2


@pytest.mark.parametrize("layout", [0, 3, "2", None])
def test_an_unknown_layout_is_refused_by_name(layout: object) -> None:
    document = {"layout": layout, "thread_id": "t9", "checkpoint_id": "c9"}
    with pytest.raises(UnknownLayoutError, match=r"'c9' of thread 't9'.*Upgrade") as failed:
        layout_of(document)
    assert failed.value.layout == layout


# ------------------------------------------------------------------ checkpoints


@given(
    st.dictionaries(names, versions, max_size=6),
    st.dictionaries(texts, st.dictionaries(names, versions, max_size=4), max_size=4),
)
@example({"a": 1, "b": 1.0, "c": "1"}, {"n": {"a": True}})
def test_every_version_comes_back_in_value_and_type(
    channel_versions: dict[str, Any], seen: dict[str, Any]
) -> None:
    given_ = checkpoint({}, channel_versions, versions_seen=seen)
    got = repacked(given_)
    assert repr(got["channel_versions"]) == repr(channel_versions)
    assert repr(got["versions_seen"]) == repr(seen)


@given(st.dictionaries(names, values, max_size=4))
def test_inline_values_come_back(inline: dict[str, Any]) -> None:
    got = repacked(checkpoint({}, {}), native=inline)
    assert got["channel_values"] == inline


@given(st.dictionaries(names, st.binary(max_size=30).map(bytearray), max_size=4))
def test_inline_values_of_a_type_of_their_own_keep_it(inline: dict[str, bytearray]) -> None:
    typed = {channel: CODEC.dumps(value) for channel, value in inline.items()}
    got = repacked(checkpoint({}, {}), typed=typed)["channel_values"]
    assert got == inline
    assert all(type(value) is bytearray for value in got.values())


def test_every_other_field_of_the_checkpoint_comes_back() -> None:
    given_ = checkpoint({}, {"a": "1"}, updated_channels=["a"], pending_sends=[], future={"x": 1})
    assert repacked(given_) == given_


def test_fields_that_a_checkpoint_lacks_are_not_made_up() -> None:
    bare: Any = {"id": "c", "v": 1, "channel_values": {}}
    assert repacked(bare) == bare


def test_channel_values_beside_the_inline_ones_are_left_out() -> None:
    given_ = checkpoint({"large": "x" * 5000, "small": 1}, {"large": "1", "small": "1"})
    assert repacked(given_, native={"small": 1})["channel_values"] == {"small": 1}


def test_packing_changes_nothing_of_the_checkpoint_it_is_given() -> None:
    given_ = checkpoint({"a": 1}, {"a": "1"}, versions_seen={"n": {"a": "1"}})
    before = repr(given_)
    pack_checkpoint(CODEC, given_, {"a": 1}, {})
    assert repr(given_) == before


def test_a_version_named_many_times_is_stored_once() -> None:
    version = f"{7:032d}.{'8' * 16}"
    channels = [f"c{n}" for n in range(10)]
    seen = {f"n{n}": dict.fromkeys(channels, version) for n in range(10)}
    given_ = checkpoint({}, dict.fromkeys(channels, version), versions_seen=seen)
    _, data = pack_checkpoint(CODEC, given_, {}, {})
    assert data.count(version.encode()) == 1


def test_releases_that_do_not_know_the_layout_refuse_the_type() -> None:
    type_, data = pack_checkpoint(CODEC, checkpoint({}, {}), {}, {})
    with pytest.raises(NotImplementedError, match="Unknown serialization type"):
        JsonPlusSerializer(pickle_fallback=True).loads_typed((type_, data))


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
    assert value_version(version, checkpoint_id, own=True).endswith(f"@{checkpoint_id}")


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


def test_the_key_of_a_value_without_parts_does_not_ask_for_one() -> None:
    query = {"thread_id": "t", "checkpoint_ns": "ns", "channel": "a", "version": "v"}
    assert ValueKey("t", "ns", "a", "v", None).query() == query
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
