from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from mongomock.filtering import filter_applies

from langgraph.checkpoint.mongodb import MissingChannelValueError, UnknownLayoutError
from langgraph.checkpoint.mongodb._database.port import Role, run
from langgraph.checkpoint.mongodb._layout.found import Found
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, checkpoint_query
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.packing import pack_checkpoint
from langgraph.checkpoint.mongodb._layout.states import RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._layout.values import value_documents
from langgraph.checkpoint.mongodb._layout.whole import whole_fields
from langgraph.checkpoint.mongodb._layout.writes import refer, write_documents
from langgraph.checkpoint.mongodb._operations import listing as _listing
from langgraph.checkpoint.mongodb._operations.arguments import list_query
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.listing import Listing
from langgraph.checkpoint.mongodb._operations.reading import get_tuple
from tests.support import Chain, checkpoint, thread
from tests.unit_tests.scripted import ScriptedPort
from tests.unit_tests.strategies import CODEC
from tests.unit_tests.threads import mongomock_saver

KEY = CheckpointKey("t", "", "2")
ENTRY = ManifestEntry("docs", "v", 5)
EXACTLY = thread("t", checkpoint_id="2")


def document(*entries: ManifestEntry, key: CheckpointKey = KEY, **fields: Any) -> Document:
    """A split checkpoint document with `small` inline and these entries."""
    made = checkpoint({}, {"small": "1"}, id=key.checkpoint_id)
    type_, data = pack_checkpoint(CODEC, made, {"small": 1})
    return {
        **key.query(),
        "parent_checkpoint_id": None,
        "layout": 2,
        "type": type_,
        "checkpoint": data,
        "channels": [entry.to_document() for entry in entries],
        "metadata": {},
        **fields,
    }


def value(entry: ManifestEntry = ENTRY, stored: Any = "docs") -> Document:
    (made,) = value_documents(KEY, entry, [CODEC.dumps(stored)], None)
    return made


def read(port: ScriptedPort, config: RunnableConfig = EXACTLY) -> CheckpointTuple | None:
    return run(get_tuple(Context(port, port.memory, CODEC, None), config))


def values_of(found: CheckpointTuple | None) -> dict[str, Any]:
    assert found is not None
    return found.checkpoint["channel_values"]


# ------------------------------------------------------------------ one checkpoint


def test_a_checkpoint_whose_values_are_inline_takes_one_read() -> None:
    port = ScriptedPort(("find_joined", (document(), [])))
    assert values_of(read(port)) == {"small": 1}
    assert port.methods == ["checkpoints.find_joined"]


def test_one_with_values_of_their_own_takes_two_reads() -> None:
    port = ScriptedPort(("find_joined", (document(ENTRY), [])), ("find", [value()]))
    assert values_of(read(port)) == {"small": 1, "docs": "docs"}
    assert port.methods == ["checkpoints.find_joined", "values.find"]


def test_exactly_the_values_that_it_names_are_read() -> None:
    port = ScriptedPort(("find_joined", (document(ENTRY), [])), ("find", [value()]))
    assert values_of(read(port)) == {"small": 1, "docs": "docs"}
    named = {"channel": "docs", "version": "v", "part": None}
    assert port.asked[1].given == {"thread_id": "t", "checkpoint_ns": "", **named}


def test_a_checkpoint_of_the_whole_layout_reads_no_values() -> None:
    made = checkpoint({"a": 1}, {"a": 1}, id="2")
    whole = {**KEY.query(), "metadata": {}, **whole_fields(CODEC, made)}
    port = ScriptedPort(("find_joined", (whole, [])))
    assert values_of(read(port)) == {"a": 1}
    assert port.methods == ["checkpoints.find_joined"]


def test_a_layout_of_the_future_is_refused() -> None:
    with pytest.raises(UnknownLayoutError):
        read(ScriptedPort(("find_joined", (document(layout=3), []))))


def test_what_was_read_spares_the_next_put_a_read() -> None:
    port = ScriptedPort(("find_joined", (document(ENTRY), [])), ("find", [value()]))
    read(port)
    known = port.memory.info(KEY)
    assert known is not None
    assert known.manifest == {"docs": ENTRY}


@pytest.mark.parametrize("config", [thread("t"), thread("t", checkpoint_id="2")])
def test_what_is_not_proven_is_not_read_and_what_is_only_retained_by_its_id_alone(
    config: RunnableConfig,
) -> None:
    port = ScriptedPort(("find_joined", None))
    assert read(port, config) is None
    hidden = {name for name, value in port.asked[0].given.items() if value is None}
    by_id = "checkpoint_id" in config["configurable"]
    assert hidden == ({UNPROVEN} if by_id else {UNPROVEN, RETAINED})


def test_an_empty_thread_is_known_to_be_new() -> None:
    port = ScriptedPort(("find_joined", None))
    assert read(port, thread("t")) is None
    assert port.memory.layout("t") == SPLIT


def test_a_subgraphs_checkpoint_is_not_taken_for_the_roots() -> None:
    child = document(key=CheckpointKey("t", "child:1", "9"))
    port = ScriptedPort(("find_joined", (child, [])))
    assert read(port, thread("t")) is None


# ------------------------------------------------------------------ values that are missing


def test_a_missing_value_is_looked_for_once_more_on_the_primary() -> None:
    port = ScriptedPort(
        ("find_joined", (document(ENTRY), [])),
        ("find", []),
        ("find", [document(ENTRY)]),
        ("find", [value()]),
    )
    assert values_of(read(port))["docs"] == "docs"
    assert [one.options["primary"] for one in port.asked[-2:]] == [True, True]


def test_a_checkpoint_without_a_value_of_its_own_is_an_error_that_names_it() -> None:
    port = ScriptedPort(
        ("find_joined", (document(ENTRY), [])),
        ("find", []),
        ("find", [document(ENTRY)]),
        ("find", []),
    )
    with pytest.raises(MissingChannelValueError) as failed:
        read(port)
    assert failed.value.missing == [("docs", "v")]
    assert failed.value.checkpoint_id == "2"


def test_a_value_of_which_one_part_is_missing_is_missing() -> None:
    entry = ManifestEntry("__start__", "v", 5, parts=2)
    parts = value_documents(KEY, entry, [CODEC.dumps(1), CODEC.dumps(2)], None)
    port = ScriptedPort(
        ("find_joined", (document(entry), [])),
        ("find", parts[:1]),
        ("find", [document(entry)]),
        ("find", parts[:1]),
    )
    with pytest.raises(MissingChannelValueError):
        read(port)


def test_a_checkpoint_that_was_removed_meanwhile_was_never_there() -> None:
    port = ScriptedPort(("find_joined", (document(ENTRY), [])), ("find", []), ("find", []))
    assert read(port) is None


@pytest.mark.parametrize("id_", ["1", "3"])
def test_when_the_newest_was_removed_meanwhile_the_newest_then_is_read(id_: str) -> None:
    then = document(key=CheckpointKey("t", "", id_))
    port = ScriptedPort(
        ("find_joined", (document(ENTRY), [])),
        ("find", []),
        ("find", []),
        ("find_joined", (then, [])),
    )
    found = read(port, thread("t"))
    assert found is not None
    assert found.checkpoint["id"] == id_
    assert [one.options["primary"] for one in port.asked] == [False, False, True, True]


def test_a_prune_after_a_newer_checkpoint_does_not_hide_the_thread_from_a_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = mongomock_saver()

    chain = Chain(saver)
    chain.put({"docs": "1" * 100_000}, id="1")
    find = saver._port.find

    async def find_after_a_step(role: Role, *args: Any, **options: Any) -> list[Document]:
        if role == "values":
            monkeypatch.undo()
            chain.put({"docs": "2" * 100_000}, id="2")
            saver.prune(["t"])
        return await find(role, *args, **options)

    monkeypatch.setattr(saver._port, "find", find_after_a_step)
    assert values_of(saver.get_tuple(thread("t"))) == {"docs": "2" * 100_000}


# ------------------------------------------------------------------ pending writes


def test_a_write_that_names_the_inputs_bytes_has_its_value() -> None:
    (write,) = write_documents(CODEC, KEY, [("docs", "docs")], "task", "", None)
    refer(write, ENTRY)
    port = ScriptedPort(("find_joined", (document(ENTRY), [write])), ("find", [value()]))
    found = read(port)
    assert found is not None
    assert found.pending_writes == [("task", "docs", "docs")]


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "not joined"])
def test_writes_are_the_same_whether_they_came_with_the_checkpoint_or_not(joined: bool) -> None:
    writes = write_documents(CODEC, KEY, [("docs", "d"), ("more", 2)], "task", "", None)
    script: list[tuple[str, Any]] = [("find_joined", (document(), writes))]
    if not joined:
        script = [("find_joined", (document(), None)), ("find", writes)]
    found = read(ScriptedPort(*script))
    assert found is not None
    assert found.pending_writes == [("task", "docs", "d"), ("task", "more", 2)]


def test_writes_that_did_not_come_with_the_checkpoint_are_read_beside_its_values() -> None:
    port = ScriptedPort(("find_joined", (document(ENTRY), None)), ("find", [value()]), ("find", []))
    assert values_of(read(port)) == {"small": 1, "docs": "docs"}
    assert port.methods == ["checkpoints.find_joined", "values.find", "writes.find"]
    assert port.asked[-1].given == KEY.query()


# ------------------------------------------------------------------ queries for checkpoints


@given(
    st.sets(
        st.builds(CheckpointKey, st.sampled_from("ab"), st.sampled_from(["", "c"]), st.text("12")),
        min_size=1,
    ),
    st.data(),
)
def test_a_query_for_checkpoints_selects_exactly_those(
    keys: set[CheckpointKey], data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.sampled_from(sorted(keys)), min_size=1, unique=True))
    query: Any = checkpoint_query(wanted)
    found = {key for key in keys if filter_applies(query, key.query())}  # type: ignore[no-untyped-call]
    assert found == set(wanted)


# ------------------------------------------------------------------ pages


def listing(port: ScriptedPort, most: int | None = None) -> Listing:
    return Listing(
        Context(port, port.memory, CODEC, None), list_query(thread("t"), None, None), most
    )


def ids(rows: list[Found]) -> list[str]:
    return [row.key.checkpoint_id for row in rows]


def test_a_page_reads_a_shared_value_once() -> None:
    documents = [document(ENTRY, key=CheckpointKey("t", "", one)) for one in ("3", "2", "1")]
    port = ScriptedPort(("find", documents), ("find_within", []), ("find", [value()]))
    assert ids(run(listing(port).page())) == ["3", "2", "1"]
    assert len(port.asked) == 3


def test_a_value_of_the_page_before_is_not_read_again() -> None:
    later = [document(ENTRY, key=CheckpointKey("t", "", "1"))]
    port = ScriptedPort(
        ("find", [document(ENTRY)]),
        ("find_within", []),
        ("find", [value()]),
        ("find", later),
        ("find_within", []),
    )
    going = listing(port)
    run(going.page())
    (row,) = run(going.page())
    assert row.fill() == []
    assert port.methods[3:] == ["checkpoints.find", "writes.find_within"]


def test_a_page_reads_no_more_checkpoints_than_are_wanted() -> None:
    port = ScriptedPort(("find", [document()]), ("find_within", []))
    run(listing(port, most=1).page())
    assert port.asked[0].options["limit"] == 1


def test_a_page_holds_a_bounded_amount_of_values() -> None:
    each = _listing._PAGE_VALUE_BYTES // 2 + 1
    documents, stored = [], []
    for checkpoint_id in ("3", "2", "1"):
        entry = ManifestEntry("docs", checkpoint_id, each)
        documents.append(document(entry, key=CheckpointKey("t", "", checkpoint_id)))
        stored.append(value(entry))
    port = ScriptedPort(("find", documents), ("find_within", []), ("find", stored[:1]))
    going = listing(port)
    assert ids(run(going.page())) == ["3"]
    port.play_on(("find", []))
    assert run(going.page()) == []
    assert port.asked[-1].given["checkpoint_id"] == {"$lt": "3"}


def test_a_page_holds_a_bounded_amount_of_pending_writes() -> None:
    keys = [CheckpointKey("t", "", one) for one in ("3", "2", "1")]
    written = [{**keys[0].query(), "idx": 0}, {**keys[1].query(), "idx": 0}]
    for one in written:
        one |= {"task_id": "1", "channel": "x", "type": "bytes", "value": b""}
    documents = [document(key=key) for key in keys]
    port = ScriptedPort(("find", documents), ("find_within", (written, False)))
    assert ids(run(listing(port).page())) == ["3"]
    # Those of the first alone are too large: they are read all the same.
    port = ScriptedPort(
        ("find", documents), ("find_within", (written[:1], False)), ("find", written[:1])
    )
    assert ids(run(listing(port).page())) == ["3"]
    assert port.asked[-1].given == keys[0].query()


def test_a_page_is_never_empty_however_large_a_checkpoint_is() -> None:
    entry = ManifestEntry("docs", "v", 10 * _listing._PAGE_VALUE_BYTES)
    port = ScriptedPort(("find", [document(entry)]), ("find_within", []), ("find", [value(entry)]))
    assert len(run(listing(port).page())) == 1


def test_the_size_to_be_read_is_known_before() -> None:
    found = Found.of(document(ENTRY))
    assert found.size() == len(found.document["checkpoint"]) + ENTRY.size


def test_a_listing_ends_with_an_empty_page() -> None:
    going = listing(ScriptedPort(("find", [])))
    run(going.page())
    assert going.ended
