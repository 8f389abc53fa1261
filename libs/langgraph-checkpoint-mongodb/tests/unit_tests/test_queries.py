from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from mongomock.filtering import filter_applies

from langgraph.checkpoint.mongodb._layout.filters import matches, prefilter
from langgraph.checkpoint.mongodb._layout.keys import (
    CheckpointKey,
    ValueKey,
    any_of,
    config_of,
    value_queries,
)
from langgraph.checkpoint.mongodb._operations.arguments import (
    ListQuery,
    Resume,
    checked,
    list_query,
    put_key,
    thread_config,
    writes_key,
)
from tests.support import checkpoint, thread
from tests.unit_tests.strategies import CODEC, names, texts, values

Documents = list[dict[str, Any]]
applies: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = filter_applies

# Few of each, so that documents share them and queries meet.
few = st.sampled_from("abc")
ids = st.sampled_from(["1", "2", "3"])


def selected(query: dict[str, Any], documents: Documents) -> Documents:
    return [document for document in documents if applies(query, document)]


# ------------------------------------------------------------------ identifiers

NOT_TEXT: list[Any] = [{"$ne": ""}, {"$gt": ""}, ["t"], 5, b"t", True]


@pytest.mark.parametrize("value", [*NOT_TEXT, None])
def test_an_identifier_that_is_not_text_is_refused_by_name_and_type(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(ValueError, match=rf"Invalid run_id: expected a string, got {kind}\."):
        checked(value, "run_id")


@pytest.mark.parametrize("name", ["thread_id", "checkpoint_ns"])
def test_a_listing_of_no_thread_in_particular_is_not_one_of_all(name: str) -> None:
    with pytest.raises(ValueError, match=f"Invalid {name}: expected a string, got NoneType"):
        list_query({"configurable": {"thread_id": "t", name: None}}, None, None)


@pytest.mark.parametrize("value", NOT_TEXT)
@pytest.mark.parametrize("name", ["thread_id", "checkpoint_ns", "checkpoint_id"])
def test_no_operator_enters_a_query_by_the_config(name: str, value: Any) -> None:
    config = thread(**{"checkpoint_id": "c", name: value})
    with pytest.raises(ValueError, match=f"Invalid {name}"):
        thread_config(config)
    with pytest.raises(ValueError, match=f"Invalid {name}"):
        list_query(config, None, None)


@pytest.mark.parametrize("value", NOT_TEXT)
@pytest.mark.parametrize("name", ["task_id", "task_path"])
def test_no_operator_enters_a_query_by_a_task(name: str, value: Any) -> None:
    task = {"task_id": "1", "task_path": "", name: value}
    with pytest.raises(ValueError, match=f"Invalid {name}"):
        writes_key(thread(checkpoint_id="c"), **task)


@pytest.mark.parametrize("value", NOT_TEXT)
def test_no_operator_enters_a_query_by_a_checkpoint(value: Any) -> None:
    with pytest.raises(ValueError, match="Invalid checkpoint id"):
        put_key(thread(), checkpoint({}, {}, id=value))


@pytest.mark.parametrize("value", NOT_TEXT)
def test_no_operator_enters_a_query_by_before(value: Any) -> None:
    with pytest.raises(ValueError, match="Invalid before checkpoint_id"):
        list_query(None, None, thread(checkpoint_id=value))


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": None}])
def test_a_config_without_a_thread_is_refused(config: Any) -> None:
    with pytest.raises(ValueError, match="Invalid thread_id: expected a string, got NoneType"):
        thread_config(config)


def test_writes_need_a_checkpoint_to_belong_to() -> None:
    with pytest.raises(ValueError, match="Invalid checkpoint_id"):
        writes_key(thread(), "1", "")


@given(texts, texts, names)
def test_any_text_is_an_identifier(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> None:
    key = CheckpointKey(thread_id, checkpoint_ns, checkpoint_id)
    assert thread_config(config_of(key)) == key


def test_the_namespace_is_the_graphs_own_unless_named() -> None:
    assert thread_config({"configurable": {"thread_id": "t"}}) == ("t", "", None)


def test_an_empty_checkpoint_id_means_the_newest() -> None:
    assert thread_config(thread("t", checkpoint_id=""))[2] is None


def test_the_config_of_a_put_names_the_parent() -> None:
    key, parent_id = put_key(thread("t", "n", checkpoint_id="1"), checkpoint({}, {}, id="2"))
    assert (key, parent_id) == (CheckpointKey("t", "n", "2"), "1")


# ------------------------------------------------------------------ unions

conditions = st.dictionaries(few, ids | st.builds(lambda some: {"$in": some}, st.lists(ids)))
documents_of_few = st.lists(st.dictionaries(few, ids, max_size=3), max_size=6)


@given(st.lists(conditions, min_size=1, max_size=4), documents_of_few)
def test_any_of_selects_the_union(queries: list[dict[str, Any]], documents: Documents) -> None:
    union = [one for one in documents if any(applies(query, one) for query in queries)]
    assert selected(any_of(queries), documents) == union


def test_what_queries_share_is_said_once_where_an_index_can_use_it() -> None:
    query = any_of([{"thread_id": "t", "channel": "a"}, {"thread_id": "t", "channel": "b"}])
    assert query == {"thread_id": "t", "$or": [{"channel": "a"}, {"channel": "b"}]}


# ------------------------------------------------------------------ channel values


def stored(key: ValueKey) -> dict[str, Any]:
    return {name: value for name, value in key._asdict().items() if value is not None}


# Pieces lie under the version of the value that they make grow.
numbers_of_parts = st.none() | st.none() | st.integers(0, 3)
value_keys = st.sets(st.builds(ValueKey, few, few, few, ids, numbers_of_parts), max_size=12)


@given(value_keys, value_keys, st.integers(1, 5))
def test_exactly_the_named_values_are_read(
    wanted: set[ValueKey], others: set[ValueKey], most: int
) -> None:
    documents = [stored(key) for key in wanted | others]
    found = [
        ValueKey.of(document)
        for query in value_queries(wanted, most)
        for document in selected(query, documents)
    ]
    assert sorted(found, key=str) == sorted(wanted, key=str)


@given(value_keys, st.integers(1, 5))
def test_a_query_for_values_has_a_bounded_number_of_branches(
    wanted: set[ValueKey], most: int
) -> None:
    assert all(len(query.get("$or", [1])) <= most for query in value_queries(wanted, most))


@given(value_keys)
def test_every_branch_of_a_query_for_values_names_its_thread(wanted: set[ValueKey]) -> None:
    for query in value_queries(wanted):
        for branch in query.get("$or", [{}]):
            assert isinstance({**query, **branch}["thread_id"], str)


def test_no_values_take_no_query() -> None:
    assert value_queries([]) == []


def test_a_checkpoints_values_are_grouped_by_their_step() -> None:
    (query,) = value_queries([ValueKey("t", "", f"c{n}", "1", None) for n in range(100)])
    assert "$or" not in query


def test_one_channels_values_are_grouped_by_the_channel() -> None:
    (query,) = value_queries([ValueKey("t", "", "a", str(n), None) for n in range(100)])
    assert "$or" not in query


# ------------------------------------------------------------------ listings

checkpoint_keys = st.lists(st.builds(CheckpointKey, few, few, ids), unique=True, max_size=20)


def ordered(documents: Documents, wanted: ListQuery) -> Documents:
    for name, direction in reversed(wanted.sort):
        documents = sorted(documents, key=lambda one: one[name], reverse=direction < 0)
    return documents


def in_pages(wanted: ListQuery, documents: Documents, size: int) -> Documents:
    """A listing as it is read: a page at a time, each from where the last one ended."""
    rows: Documents = []
    resume: Resume | None = None
    while page := ordered(selected(wanted.page(resume), documents), wanted)[:size]:
        rows += page
        last = page[-1]
        resume = Resume(last["checkpoint_id"], last["thread_id"], last["checkpoint_ns"])
        assert len(rows) <= len(documents)
    return rows


def named(config: dict[str, str]) -> RunnableConfig:
    return {"configurable": config}


@given(
    checkpoint_keys,
    st.fixed_dictionaries({}, optional={"thread_id": few, "checkpoint_ns": few}),
    st.none() | ids,
    st.none() | ids,
    st.integers(1, 4),
)
@example([CheckpointKey("a", "a", "1")], {"thread_id": "a", "checkpoint_ns": "a"}, "1", None, 1)
@example([CheckpointKey("a", "a", "1"), CheckpointKey("b", "a", "1")], {}, "1", "2", 1)
def test_the_pages_of_a_listing_are_the_whole_listing_in_order(
    keys: list[CheckpointKey],
    config: dict[str, str],
    exact: str | None,
    before: str | None,
    size: int,
) -> None:
    if exact is not None:
        config = {**config, "checkpoint_id": exact}
    documents = [key._asdict() for key in keys]
    wanted = list_query(
        named(config), None, None if before is None else named({"checkpoint_id": before})
    )
    expected = [
        document
        for document in documents
        if all(document[name] == value for name, value in config.items())
        and (before is None or document["checkpoint_id"] < before)
    ]
    expected.sort(key=lambda one: (one["thread_id"], one["checkpoint_ns"]))
    expected.sort(key=lambda one: one["checkpoint_id"], reverse=True)
    assert in_pages(wanted, documents, size) == expected


def test_a_listing_of_everything_asks_for_everything() -> None:
    assert list_query(None, None, None).query == {}


def test_the_root_namespace_can_be_listed_alone() -> None:
    assert list_query(thread("t", ""), None, None).query["checkpoint_ns"] == ""


# ------------------------------------------------------------------ filters


@pytest.mark.parametrize("key", ["$where", "$or", 5, None])
def test_an_operator_as_a_filter_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="MongoDB operator keys are not allowed"):
        list_query(None, {key: 1}, None)


def test_an_operator_inside_a_filter_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Invalid filter key '\$ne'"):
        list_query(None, {"user": {"name": {"$ne": ""}}}, None)


filters = st.dictionaries(few | st.sampled_from(["", "a.b"]), st.sampled_from(["x", "y"]) | values)


@given(filters, filters)
def test_a_filter_passes_exactly_the_metadata_that_has_its_values(
    metadata: dict[str, Any], wanted: dict[str, Any]
) -> None:
    expected = all(metadata.get(key) == value for key, value in wanted.items())
    assert matches(CODEC, {"metadata": CODEC.dumps_metadata(metadata)}, wanted) == expected


@given(filters, filters)
@example({"a": "x"}, {"a": "x"})
@example({"a": "x"}, {"a": "y"})
@example({"a": {"b": "x"}}, {"a": {"b": "x"}})
def test_what_the_server_sorts_out_beforehand_would_not_have_passed(
    metadata: dict[str, Any], wanted: dict[str, Any]
) -> None:
    stored_ = {"metadata": CODEC.dumps_metadata(metadata)}
    if not applies(prefilter(CODEC, wanted), stored_):
        assert not matches(CODEC, stored_, wanted)


def test_the_server_sorts_out_text_that_differs() -> None:
    query = prefilter(CODEC, {"source": "loop"})
    documents = [{"metadata": CODEC.dumps_metadata({"source": one})} for one in ("loop", "input")]
    assert selected(query, documents) == documents[:1]


def test_metadata_whose_keys_bson_cannot_hold_is_filtered_like_any() -> None:
    metadata = CODEC.dumps_metadata({"a\0b": 1, "source": "loop"})
    assert matches(CODEC, {"metadata": metadata}, {"source": "loop"})
    assert not matches(CODEC, {"metadata": metadata}, {"source": "input"})
    assert applies(prefilter(CODEC, {"source": "loop"}), {"metadata": metadata})
