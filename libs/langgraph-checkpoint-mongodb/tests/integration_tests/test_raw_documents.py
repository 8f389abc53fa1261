"""What lies in the database is what docs/stored-layout.md says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import bson
import pytest
from bson import ObjectId
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from pymongo.database import Database

from langgraph.checkpoint.mongodb._layout.compression import DICTIONARY, decompress
from tests.face import MakeFace
from tests.support import LARGE_SIZE, Chain, checkpoint, insert_whole, thread

Data = Database[dict[str, Any]]

LAYOUT = Path(__file__).parents[4] / "docs" / "stored-layout.md"
LARGE = b"v" * LARGE_SIZE
SNAPSHOT_SINCE = "langgraph-checkpoint 4 has snapshots of delta channels; install it to test them"

BSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "string or null": (str, type(None)),
    "int": int,
    "bool": bool,
    "binary": bytes,
    "array": list,
    "document": dict,
    "date": datetime,
    "ObjectId": ObjectId,
}


class Field(NamedTuple):
    bson: str
    present: str
    meaning: str


@pytest.fixture(scope="module")
def text() -> str:
    if not LAYOUT.exists():
        pytest.skip(f"{LAYOUT.name} is not there: run the tests in a checkout of the repository")
    return LAYOUT.read_text()


def section(text: str, heading: str) -> str:
    """The text below a heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"no section {heading!r}"
    return found[1]


def fields(text: str, heading: str) -> dict[str, Field]:
    """The table of fields below a heading."""
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (\w+) \| (.*) \|$", section(text, heading), re.M)
    assert rows, f"no fields below {heading!r}"
    return {name: Field(*described) for name, *described in rows}


@pytest.fixture(scope="module")
def tables(text: str) -> dict[str, dict[str, Field]]:
    headings = {
        "whole": "Checkpoint document, whole",
        "split": "Checkpoint document, split",
        "entry": "Manifest entry",
        "value": "Channel value document",
        "write": "Pending write document",
    }
    return {name: fields(text, heading) for name, heading in headings.items()}


@pytest.fixture
def documents(make_face: MakeFace, database: Data) -> dict[str, list[dict[str, Any]]]:
    """Documents of every kind, by the table that describes them."""
    types = pytest.importorskip("langgraph.checkpoint.serde.types")
    if not hasattr(types, "_DeltaSnapshot"):
        pytest.skip(SNAPSHOT_SINCE)
    for face in (make_face(), make_face(ttl=3600)):
        name = f"ttl {face.saver.ttl}"
        chain = Chain(face, name)
        given = {"docs": bytes(2_000_000), "more": bytes(600_000), "few": 1}
        chain.put({"__start__": given}, metadata={"source": "input", "run_id": "r1"})
        face.put_writes(chain.config, [*given.items()], "input")
        chain.put(given, drop=["__start__"])
        config = chain.put({"large": LARGE, "small": {"x": 1}, "pickled": b""})
        face.put_writes(config, [("small", 1), ("few", 2), ("__error__", "e")], "task", "~1")
        face.put_writes(config, [("small", 1)], "other", "~1")
        chain.put({"delta": types._DeltaSnapshot([1])})
        chain.put({"__pregel_tasks": [Send("node", bytes(600_000)) for _ in range(4)]})
        chain.put({"list": [LARGE]})
        chain.put({"list": [LARGE, "more"]})
        counted = {"counters_since_delta_snapshot": {"log": (1, 1)}}
        chain.put({}, touch=["log"], metadata=counted)
        chain.put({"few": 2})  # by a graph that does not know the delta channel
        orphan = thread(f"{name} orphan", checkpoint_id="removed")
        face.put(orphan, checkpoint({"large": LARGE}, {"large": 1}), {"step": 1}, {"large": 1})
        stored = checkpoint({"large": LARGE}, {"large": 1})
        face.put(thread(f"{name} integers"), stored, {"source": "input", "step": 0}, {"large": 1})
        old = insert_whole(
            database,
            thread(f"{name} old"),
            checkpoint({"a": 1}, {"a": 1}),
            {"source": "input", "step": -1},
        )
        step = {"source": "loop", "step": 0, "run_id": "r1"}
        old = face.put(
            old, checkpoint({"a": 2}, {"a": 2, "log": 1}), {**step, **counted}, {"a": 2, "log": 1}
        )
        face.put(old, checkpoint({"a": 3}, {"a": 3, "log": 1}), step, {"a": 3})
    checkpoints = [*database["checkpoints"].find({})]
    split = [one for one in checkpoints if "layout" in one]
    return {
        "whole": [one for one in checkpoints if "layout" not in one],
        "split": split,
        "entry": [entry for one in split for entry in one["channels"]],
        "value": [*database["checkpoint_channel_values"].find({})],
        "write": [*database["checkpoint_writes"].find({})],
    }


def test_every_field_is_described_and_of_its_type(
    documents: Mapping[str, list[dict[str, Any]]], tables: Mapping[str, Mapping[str, Field]]
) -> None:
    for kind, found in documents.items():
        assert found
        for document in found:
            document.pop("_id", None)
            unknown = document.keys() - tables[kind].keys()
            assert not unknown, f"{kind}: {unknown} not described"
            for name, value in document.items():
                expected = BSON_TYPES[tables[kind][name].bson]
                assert isinstance(value, expected), f"{kind}: {name} is {value!r}"
                assert expected is not int or type(value) is not bool


def test_every_described_field_is_there(
    documents: Mapping[str, list[dict[str, Any]]], tables: Mapping[str, Mapping[str, Field]]
) -> None:
    for kind, found in documents.items():
        for name, field in tables[kind].items():
            having = [document for document in found if name in document]
            match field.present:
                case "always":
                    assert len(having) == len(found), f"{kind}: {name} is missing"
                case "optional":
                    assert having, f"{kind}: {name} never seen"
                    assert len(having) < len(found), f"{kind}: {name} is always there"
                case "passing":
                    assert not having, f"{kind}: {name} stays"
                case other:
                    pytest.fail(f"{kind}: {name} is present {other!r}")


def test_a_stamp_is_there_only_with_a_ttl(
    documents: Mapping[str, list[dict[str, Any]]],
) -> None:
    for kind in ("split", "value", "write"):
        for document in documents[kind]:
            stamped = document["thread_id"].startswith("ttl 3600")
            assert ("created_at" in document) == stamped, kind


def test_a_manifest_names_exactly_the_documents_of_its_values(
    documents: Mapping[str, list[dict[str, Any]]],
) -> None:
    stored = [
        (one["thread_id"], one["checkpoint_ns"], one["channel"], one["version"], one.get("part"))
        for one in documents["value"]
    ]
    assert len(stored) == len({*stored})
    named = {
        (one["thread_id"], one["checkpoint_ns"], *key)
        for one in documents["split"]
        for entry in one["channels"]
        for key in named_keys(entry)
    }
    assert named == {*stored}


def named_keys(entry: Mapping[str, Any]) -> Iterable[tuple[str, str, int | None]]:
    if "stored_channel" in entry:
        return [(entry["stored_channel"], entry["version"], entry["stored_part"])]
    if "parts" in entry:
        return [(entry["channel"], entry["version"], part) for part in range(entry["parts"])]
    return [(entry["channel"], entry["version"], None)]


def test_integer_versions_are_keyed_by_their_checkpoint(
    documents: Mapping[str, list[dict[str, Any]]],
) -> None:
    (found, *_) = [one for one in documents["split"] if "integers" in one["thread_id"]]
    (entry,) = found["channels"]
    assert entry["version"] == f"1@{found['checkpoint_id']}"
    assert entry["channel_version"] == "1"


def test_metadata_is_native_in_its_keys_and_typed_in_its_leaves(
    make_face: MakeFace, database: Data
) -> None:
    Chain(make_face()).put({}, metadata={"user": {"id": 7, "tags": ["x"]}})
    (document,) = database["checkpoints"].find({})
    typed = JsonPlusSerializer().dumps_typed
    assert document["metadata"] == {
        "source": [*typed("loop")],
        "step": [*typed(0)],
        "user": {"id": [*typed(7)], "tags": [*typed(["x"])]},
    }


def test_special_writes_have_the_described_places(
    make_face: MakeFace, database: Data, tables: Mapping[str, Mapping[str, Field]]
) -> None:
    face = make_face()
    config = Chain(face).put({})
    described = re.findall(r"`(__\w+__)` (-\d)", tables["write"]["idx"].meaning)
    assert len(described) == 4
    face.put_writes(config, [(channel, "x") for channel, _ in described], "task")
    stored = {one["channel"]: one["idx"] for one in database["checkpoint_writes"].find({})}
    assert stored == {channel: int(place) for channel, place in described}


def number(text: str, pattern: str) -> int:
    """The number that the text says somewhere."""
    found = re.search(pattern.replace(" ", r"\s+"), text)
    assert found, pattern
    return int(found[1].replace(",", ""))


def test_a_value_is_inline_up_to_the_described_size(
    make_face: MakeFace, database: Data, text: str
) -> None:
    most = number(text, r"its serialized form has at most ([\d,]+) bytes")
    chain = Chain(make_face())
    chain.put({"fits": bytes(most - 3), "over": bytes(most + 1)})
    (document,) = database["checkpoints"].find({})
    assert [entry["channel"] for entry in document["channels"]] == ["over"]


def test_inline_values_together_stay_in_the_described_size(
    make_face: MakeFace, database: Data, text: str
) -> None:
    most = number(text, r"inline values of the checkpoint have at most ([\d,]+) together")
    count = most // 2003
    chain = Chain(make_face())
    chain.put({f"c{place:03}": bytes(2000) for place in range(count)})
    assert database["checkpoint_channel_values"].count_documents({}) == 0
    chain.put({"more": bytes(2000)})
    (document,) = database["checkpoint_channel_values"].find({})
    assert (document["channel"], document["version"]) == ("__bundle__", "")
    assert len(decompress(document["value"])) > 2000 * count


def test_the_packed_checkpoint_is_as_described(make_face: MakeFace, database: Data) -> None:
    chain = Chain(make_face())
    chain.put({"a": 1, "b": LARGE})
    seen = {"node": dict(chain.versions), "__input__": {}}
    chain.put({"a": 2, "c": "three"}, versions_seen=seen, updated_channels=["a", "c"])
    document = database["checkpoints"].find_one({}, sort=[("checkpoint_id", -1)])
    assert document is not None
    assert document["type"] == "split:msgpack"
    names, versions, current, seen_places, updated, inline, rest = JsonPlusSerializer().loads_typed(
        ("msgpack", document["checkpoint"])
    )

    def version(place: int) -> str:
        counter, digits = versions[place]
        return f"{counter:032d}.{digits:016d}"

    def pairs(places: Any) -> dict[str, str]:
        return {names[name]: version(place) for name, place in zip(*places, strict=True)}

    assert pairs(current) == chain.versions
    assert {node: pairs(places) for node, places in seen_places.items()} == seen
    assert [names[place] for place in updated] == ["a", "c"]
    assert {names[name]: value for name, value in zip(*inline, strict=True)} == {
        "a": 2,
        "c": "three",
    }
    assert {"v", "ts"} <= rest.keys()
    assert "id" not in rest


@pytest.mark.parametrize("ttl", [None, 3600])
def test_the_indexes_are_the_described_ones(
    make_face: MakeFace, database: Data, text: str, ttl: int | None
) -> None:
    make_face(ttl=ttl).setup()
    described: dict[str, list[tuple[Any, ...]]] = {}
    name = ""
    rows = re.findall(r"^\|(.*?)\|( `.*?)\|(.*?)\|$", section(text, "Indexes"), re.M)
    for collection, keys, rest in rows:
        name = collection.strip(" `") or name
        pairs = re.findall(r"`([\w.]+)` (-?1)", keys)
        facts = ("unique" in rest, "partial" in rest, "expireAfterSeconds" in rest)
        index = (tuple((field, int(way)) for field, way in pairs), *facts)
        for one in [*described] if name.startswith("each") else [name]:
            if ttl is not None or not name.startswith("each"):
                described.setdefault(one, []).append(index)
    assert {one: sorted(found) for one, found in described.items()} == {
        one: sorted(indexes_of(database, one)) for one in database.list_collection_names()
    }


def indexes_of(database: Data, collection: str) -> list[tuple[Any, ...]]:
    return [
        (
            tuple(index["key"].items()),
            bool(index.get("unique")),
            "partialFilterExpression" in index,
            "expireAfterSeconds" in index,
        )
        for index in database[collection].list_indexes()
        if index["name"] != "_id_"
    ]


def test_a_value_is_the_serializers_own_form(make_face: MakeFace, database: Data) -> None:
    Chain(make_face()).put({"bytes": LARGE, "list": [LARGE]})
    stored = {one["channel"]: one for one in database["checkpoint_channel_values"].find({})}
    for name, value in (("bytes", LARGE), ("list", [LARGE])):
        type_, data = JsonPlusSerializer().dumps_typed(value)
        assert (stored[name]["type"], stored[name]["value"]) == (type_, data)


def test_an_id_tells_when_its_document_was_written(make_face: MakeFace, database: Data) -> None:
    Chain(make_face()).put({"a": LARGE})
    for name in ("checkpoints", "checkpoint_channel_values"):
        (document,) = database[name].find({})
        assert isinstance(document["_id"], bson.ObjectId)


def test_the_dictionary_is_as_described(text: str) -> None:
    (described,) = re.findall(r"^DICTIONARY = \((.*?)^\)$", text, re.M | re.S)
    assert ast.literal_eval(f"({described})") == DICTIONARY
