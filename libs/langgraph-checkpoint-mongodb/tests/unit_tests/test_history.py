from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph.checkpoint.mongodb import MissingChannelValueError, MongoDBSaver
from langgraph.checkpoint.mongodb._database.port import Role
from langgraph.checkpoint.mongodb._layout import keys, layouts
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey, Document, config_of
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, WHOLE
from langgraph.checkpoint.mongodb._layout.states import RETAINED, UNPROVEN
from langgraph.checkpoint.mongodb._operations import history as _history
from langgraph.checkpoint.mongodb._operations import reading as _reading
from tests.hypothesis_profile import examples
from tests.support import needs_delta_channels, thread
from tests.unit_tests.threads import CHANNELS, Node, build, mongomock_saver, rebuilt, shapes

default = getattr(BaseCheckpointSaver, "get_delta_channel_history", None)
pytestmark = needs_delta_channels


@pytest.fixture(scope="module", autouse=True)
def _small_pages() -> Iterator[None]:
    """Walks over a few checkpoints turn as many pages as those over thousands."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_history, "_FIRST_PAGE", 2)
        patched.setattr(_history, "_NEXT_PAGE", 3)
        patched.setattr(_history, "_BESIDE_STEPS", 1)
        patched.setattr(keys, "_KEYS_PER_QUERY", 2)
        few = replace(SPLIT, first_fetch=2)
        patched.setattr(layouts, "LAYOUTS", {1: WHOLE, 2: few})
        yield


def history(saver: MongoDBSaver, key: CheckpointKey, *channels: str) -> Any:
    asked = channels or CHANNELS
    return saver.get_delta_channel_history(config=config_of(key), channels=asked)


def by_default(saver: MongoDBSaver, key: CheckpointKey) -> Any:
    assert default is not None
    return default(saver, config=config_of(key), channels=CHANNELS)


def chain(*actions: tuple[str, str]) -> list[Node]:
    return [Node(place - 1 if place else None, both) for place, both in enumerate(actions)]


def of_branch(nodes: list[Node], key: CheckpointKey, entry: Any) -> Any:
    """A channel's history without the writes that lead from an ancestor to another branch.

    LangGraph counts those in, as they lie at the same ancestor, but nothing on this branch tells
    of them: when the ancestor is gone, nobody can know that they are.
    """
    place: int | None = int(key.checkpoint_id)
    branch = set()
    while place is not None:
        branch.add(place)
        place = nodes[place].parent
    marks = [int(task.removeprefix("task ")) for task, _, _ in entry["writes"]]
    kept = [
        write
        for mark, write in zip(marks, entry["writes"], strict=True)
        if mark // len(CHANNELS) in branch
    ]
    return {**entry, "writes": kept}


# ------------------------------------------------------------------ laws


@settings(max_examples=examples(40))
@given(shapes(), st.sampled_from([1, 2]), st.data())
def test_the_walk_finds_what_the_base_class_finds(
    nodes: list[Node], layout: int, data: st.DataObject
) -> None:
    saver = mongomock_saver()
    ids = [f"{place:04}" for place in range(len(nodes))]
    if data.draw(st.booleans(), label="ids that do not grow along a chain"):
        ids = data.draw(st.permutations(ids))
    for key in build(saver, nodes, ids, layout=layout):
        assert history(saver, key) == by_default(saver, key)


@settings(max_examples=examples(40))
@given(shapes(), st.dictionaries(st.sampled_from(CHANNELS), st.integers(-3, 12)))
def test_what_is_remembered_of_its_length_does_not_change_a_history(
    nodes: list[Node], steps: dict[str, int]
) -> None:
    saver = mongomock_saver()
    for key in build(saver, nodes):
        expected = by_default(saver, key)
        saver._memory.remember(key, CheckpointInfo(SPLIT, {}, steps=steps))
        assert history(saver, key) == expected
        assert history(saver, key, CHANNELS[0]) == {CHANNELS[0]: expected[CHANNELS[0]]}


@settings(max_examples=examples(40))
@given(shapes(), st.data())
def test_a_history_is_whole_or_an_error_says_of_which_channels_it_is_not(
    nodes: list[Node], data: st.DataObject
) -> None:
    saver = mongomock_saver()
    keys = build(saver, nodes)
    whole = {key: by_default(saver, key) for key in keys}
    gone = data.draw(st.sampled_from(keys), label="gone")
    saver.checkpoint_collection.delete_one(gone.query())
    for key in set(keys) - {gone}:
        with pytest.MonkeyPatch.context() as unchecked:
            unchecked.setattr(_reading, "_check_not_expected", lambda *_: None)
            cut = by_default(saver, key)
        asked = rebuilt(saver, key)
        expected = {channel: of_branch(nodes, key, whole[key][channel]) for channel in asked}
        left = {channel: of_branch(nodes, key, cut[channel]) for channel in asked}
        broken = {channel for channel in asked if left[channel] != expected[channel]}
        if broken:
            with pytest.raises(MissingChannelValueError) as failed:
                saver.get_delta_channel_history(config=config_of(key), channels=asked)
            assert {channel for channel, _ in failed.value.missing} == broken
        else:
            found = saver.get_delta_channel_history(config=config_of(key), channels=asked)
            assert {
                channel: of_branch(nodes, key, entry) for channel, entry in found.items()
            } == expected


@settings(max_examples=examples(40))
@given(shapes(), st.data())
def test_the_walk_of_the_base_class_is_whole_or_an_error_too(
    nodes: list[Node], data: st.DataObject
) -> None:
    assert default is not None
    saver = mongomock_saver()
    keys = build(saver, nodes)
    whole = {key: by_default(saver, key) for key in keys}
    gone = data.draw(st.sets(st.sampled_from(keys), min_size=1), label="gone")
    for key in gone:
        saver.checkpoint_collection.delete_one(key.query())
    for key in set(keys) - gone:
        asked = rebuilt(saver, key)
        try:
            found = default(saver, config=config_of(key), channels=asked)
        except MissingChannelValueError:
            continue
        for channel in asked:
            expected = of_branch(nodes, key, whole[key][channel])
            assert of_branch(nodes, key, found[channel]) == expected


# ------------------------------------------------------------------ cases


def test_a_channel_is_seeded_by_its_nearest_snapshot() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("snapshot", "idle"), ("write", "idle")))
    found = history(saver, keys[2])["log"]
    assert found["seed"] == DeltaSnapshot([2])
    assert [value for _, _, value in found["writes"]] == ["log 4"]


def test_a_snapshot_that_is_carried_over_seeds_as_well() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("idle", "idle"), ("idle", "idle")))
    assert history(saver, keys[2])["log"]["seed"] == DeltaSnapshot([0])


def test_writes_come_oldest_first_and_only_those_on_the_path() -> None:
    saver = mongomock_saver()
    trunk = chain(*[("write", "idle")] * 4)
    keys = build(saver, [*trunk, Node(1, ("write", "idle"))])
    found = history(saver, keys[4])["log"]
    # Those of the step that was forked lie at the same checkpoint, ordered by path.
    assert [value for _, _, value in found["writes"]] == ["log 2", "log 8", "log 4"]
    assert "seed" not in found


def test_writes_at_the_checkpoint_itself_are_pending_and_no_history() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("idle", "idle"), ("write", "idle")))
    saver.put_writes(config_of(keys[1]), [("log", "pending")], "task")
    assert [value for _, _, value in history(saver, keys[1])["log"]["writes"]] == ["log 2"]


def test_the_newest_checkpoint_is_meant_unless_one_is_named() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("idle", "idle"), ("write", "idle")))
    newest = saver.get_delta_channel_history(config=thread("t"), channels=["log"])
    assert newest == history(saver, keys[1], "log")


def test_of_a_thread_that_does_not_exist_there_is_no_history() -> None:
    empty = mongomock_saver().get_delta_channel_history(config=thread("t"), channels=["log"])
    assert empty == {"log": {"writes": []}}


def test_no_channels_have_no_history() -> None:
    saver = mongomock_saver()
    assert saver.get_delta_channel_history(config=thread("t"), channels=[]) == {}


def test_a_channel_asked_for_twice_is_answered_once() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("write", "idle")))
    assert history(saver, keys[1], "log", "log") == history(saver, keys[1], "log")


def test_a_seed_that_was_deleted_is_an_error_that_names_it() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("write", "idle")))
    saver.channel_values_collection.delete_many({})
    with pytest.raises(MissingChannelValueError) as failed:
        history(saver, keys[1])
    assert [channel for channel, _ in failed.value.missing] == ["log"]
    assert failed.value.checkpoint_id == keys[0].checkpoint_id
    assert failed.value.cause == "value lost"


def test_a_history_whose_beginning_was_removed_is_an_error_that_names_the_channel() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("snapshot", "idle"), ("write", "idle"), ("write", "idle")))
    saver.checkpoint_collection.delete_one(keys[0].query())
    with pytest.raises(MissingChannelValueError) as failed:
        history(saver, keys[2])
    assert [channel for channel, _ in failed.value.missing] == ["log"]
    assert failed.value.cause == "history cut"


def test_a_checkpoint_that_was_removed_since_it_was_read_is_told() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("write", "idle"), ("write", "idle")))
    assert saver.get_tuple(config_of(keys[1])) is not None
    saver.checkpoint_collection.delete_many({})
    with pytest.raises(MissingChannelValueError) as failed:
        history(saver, keys[1], "log")
    assert failed.value.checkpoint_id == keys[1].checkpoint_id
    assert failed.value.cause == "removed while read"


def test_a_thread_that_is_deleted_while_its_history_is_read_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("write", "idle"), ("write", "idle")))
    find = saver._port.find

    async def find_after_a_deletion(role: Role, *args: Any, **options: Any) -> list[Document]:
        if role == "writes":
            saver.delete_thread("t")
        return await find(role, *args, **options)

    monkeypatch.setattr(saver._port, "find", find_after_a_deletion)
    with pytest.raises(MissingChannelValueError, match="was removed while it was read"):
        history(saver, keys[1], "log")


@pytest.mark.parametrize("mark", [UNPROVEN, RETAINED])
def test_the_newest_checkpoint_is_one_that_readers_see(mark: str) -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(*[("write", "idle")] * 3))
    saver.checkpoint_collection.update_one(keys[2].query(), {"$set": {mark: True}})
    newest = saver.get_delta_channel_history(config=thread("t"), channels=["log"])
    assert newest == history(saver, keys[1], "log")


def test_of_a_channel_that_was_never_written_nothing_can_be_lost() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(*[("idle", "idle")] * 3))
    saver.checkpoint_collection.delete_one(keys[0].query())
    assert history(saver, keys[2], "notes") == {"notes": {"writes": []}}


def test_checkpoints_that_are_each_others_parents_do_not_hold_the_walk() -> None:
    saver = mongomock_saver()
    keys = build(saver, chain(("idle", "idle"), ("write", "idle")))
    loop = {"$set": {"parent_checkpoint_id": keys[1].checkpoint_id}}
    saver.checkpoint_collection.update_one(keys[0].query(), loop)
    assert [value for _, _, value in history(saver, keys[1], "log")["log"]["writes"]] == ["log 2"]
