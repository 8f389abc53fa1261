from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb import MongoDBSaver, UnknownLayoutError
from langgraph.checkpoint.mongodb._database.port import run
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, checkpoint_queries, config_of
from langgraph.checkpoint.mongodb._layout.states import DOOMED, UNPROVEN
from langgraph.checkpoint.mongodb._operations.ancestry import Ancestry
from tests.hypothesis_profile import examples
from tests.support import checkpoint, needs_delta_channels, thread
from tests.unit_tests.threads import Node, build, mongomock_saver, rebuilt, shapes


def read(saver: MongoDBSaver) -> Ancestry:
    return run(Ancestry.read(saver._context(), "t"))


def needed(saver: MongoDBSaver, kept: set[CheckpointKey]) -> set[CheckpointKey]:
    graph = read(saver)
    visible = graph.with_called(kept)
    return visible | run(graph.ancestors_of(visible))


def state(saver: MongoDBSaver, key: CheckpointKey) -> Any:
    """All that LangGraph reads of a checkpoint, delta channels included."""
    config = config_of(key)
    history = saver.get_delta_channel_history(config=config, channels=rebuilt(saver, key))
    return saver.get_tuple(config), history


def remove_all_but(saver: MongoDBSaver, kept: set[CheckpointKey]) -> None:
    graph = read(saver)
    gone = graph.keys() - kept
    for value in graph.referenced_values(gone) - graph.referenced_values(kept):
        saver.channel_values_collection.delete_many(value.query())
    for key in gone:
        saver.checkpoint_collection.delete_many(key.query())
        saver.writes_collection.delete_many(key.query())


def chain(*actions: tuple[str, str]) -> list[Node]:
    return [Node(place - 1 if place else None, both) for place, both in enumerate(actions)]


some_of = st.sets(st.integers(0, 8))


def chosen(keys: list[CheckpointKey], places: set[int]) -> set[CheckpointKey]:
    return {keys[place] for place in places if place < len(keys)}


# ------------------------------------------------------------------ laws


@needs_delta_channels
@settings(max_examples=examples(40))
@given(shapes(), some_of, st.sampled_from([1, 2]))
def test_what_is_needed_suffices_to_read_what_is_kept_as_before(
    nodes: list[Node], places: set[int], layout: int
) -> None:
    saver = mongomock_saver()
    kept = chosen(build(saver, nodes, layout=layout), places)
    before = {key: state(saver, key) for key in kept}
    remove_all_but(saver, needed(saver, kept))
    assert {key: state(saver, key) for key in kept} == before


@needs_delta_channels
@settings(max_examples=examples(40))
@given(shapes(), some_of, some_of)
def test_what_two_sets_need_is_what_each_of_them_needs(
    nodes: list[Node], some: set[int], others: set[int]
) -> None:
    saver = mongomock_saver()
    keys = build(saver, nodes)
    one, other = chosen(keys, some), chosen(keys, others)
    together = needed(saver, one | other)
    assert one | other <= together <= set(keys)
    assert together == needed(saver, one) | needed(saver, other)


@needs_delta_channels
@settings(max_examples=examples(40))
@given(shapes(), some_of)
def test_nothing_that_is_not_an_ancestor_is_needed(nodes: list[Node], places: set[int]) -> None:
    saver = mongomock_saver()
    keys = build(saver, nodes)
    ancestors: set[CheckpointKey] = set()
    for place in places:
        at: int | None = place if place < len(nodes) else None
        while at is not None:
            ancestors.add(keys[at])
            at = nodes[at].parent
    assert needed(saver, chosen(keys, places)) <= ancestors


# ------------------------------------------------------------------ cases


def test_without_delta_channels_only_what_is_kept_is_needed() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(*[("plain", "plain")] * 5))
    assert needed(saver, {keys[4]}) == {keys[4]}


@needs_delta_channels
def test_ancestors_are_needed_back_to_the_last_snapshot_of_each_channel() -> None:
    saver = mongomock_saver()
    actions = [
        ("snapshot", "idle"),
        ("write", "snapshot"),
        ("snapshot", "write"),
        ("write", "write"),
        ("write", "write"),
    ]
    keys = build(saver, chain(*actions))
    assert needed(saver, {keys[4]}) == set(keys[1:])


@needs_delta_channels
def test_a_checkpoint_that_holds_its_snapshots_needs_no_ancestor() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("write", "write"), ("write", "write"), ("snapshot", "snapshot")))
    assert needed(saver, {keys[2]}) == {keys[2]}


def test_a_delta_channel_that_was_never_written_needs_no_ancestor() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(*[("plain", "idle")] * 4))
    assert needed(saver, {keys[3]}) == {keys[3]}


def test_the_newest_checkpoint_of_a_subgraph_called_from_a_kept_one_is_needed() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("plain", "plain"), ("plain", "plain")))
    calls = {"child:1": keys[0], "child:2": keys[1]}
    for checkpoint_ns, caller in calls.items():
        config = thread("t", checkpoint_ns)
        for checkpoint_id in ("1", "2"):
            made = checkpoint({}, {}, id=checkpoint_id)
            metadata: Any = {"parents": {"": caller.checkpoint_id}}
            config = saver.put(config, made, metadata, {})
    newest = CheckpointKey("t", "child:2", "2")
    assert needed(saver, {keys[1]}) == {keys[1], newest}
    # What a crash left is not what an interrupt resumes.
    saver.checkpoint_collection.update_one(newest.query(), {"$set": {UNPROVEN: True}})
    assert needed(saver, {keys[1]}) == {keys[1], newest._replace(checkpoint_id="1")}


def test_the_newest_are_counted_in_each_namespace() -> None:
    saver = mongomock_saver()
    for checkpoint_ns in ("", "child:1"):
        for checkpoint_id in ("1", "3", "2"):
            made = checkpoint({}, {}, id=checkpoint_id)
            saver.put(thread("t", checkpoint_ns), made, {}, {})
    assert read(saver).to_keep(2) == {
        CheckpointKey("t", checkpoint_ns, checkpoint_id)
        for checkpoint_ns in ("", "child:1")
        for checkpoint_id in ("2", "3")
    }


@needs_delta_channels
def test_a_value_that_checkpoints_share_is_named_once() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("idle", "idle"), ("idle", "idle")))
    (value,) = read(saver).referenced_values(keys)
    assert value.channel == "log"


def test_other_threads_are_not_in_the_graph() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("plain", "plain")))
    saver.put(thread("other"), checkpoint({}, {}), {}, {})
    assert read(saver).keys() == set(keys)


# ------------------------------------------------------------------ queries for keys

keys_of_one_thread = st.sets(
    st.builds(CheckpointKey, st.just("t"), st.sampled_from(["", "a", "b"]), st.text("123"))
)


@given(keys_of_one_thread)
def test_queries_for_keys_name_exactly_these(keys: set[CheckpointKey]) -> None:
    named = {
        CheckpointKey(query["thread_id"], query["checkpoint_ns"], one)
        for query in checkpoint_queries(keys)
        for one in query["checkpoint_id"]["$in"]
    }
    assert named == keys


def test_queries_for_keys_are_of_bounded_size_and_name_each_key_once() -> None:
    keys = [CheckpointKey("t", ns, str(n)) for ns in ("", "a") for n in range(25_000)]
    queries = checkpoint_queries(keys)
    named = [(q["checkpoint_ns"], one) for q in queries for one in q["checkpoint_id"]["$in"]]
    assert max(len(query["checkpoint_id"]["$in"]) for query in queries) <= 10_000
    assert sorted(named) == sorted(key[1:] for key in keys)


def test_no_keys_take_no_query() -> None:
    assert checkpoint_queries([]) == []


def test_a_thread_that_a_newer_release_writes_to_is_not_touched() -> None:
    saver = mongomock_saver()
    saver.put(thread("t"), checkpoint({"a": 1}, {"a": 1}), {"step": 0}, {"a": 1})
    saver.put(thread("t"), checkpoint({"a": 2}, {"a": 2}), {"step": 1}, {"a": 2})
    saver.checkpoint_collection.update_one({}, {"$set": {"layout": 3}})
    with pytest.raises(UnknownLayoutError):
        saver.prune(["t"])
    assert not saver.checkpoint_collection.find_one({DOOMED: {"$exists": True}})
