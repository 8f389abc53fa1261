"""What the wrapper shows of pending writes."""

from __future__ import annotations

from typing import Any

import pytest
from chats import human
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint

from agentstate_reducer.langgraph.reading import visible
from agentstate_reducer.messages import REMOVE_ALL


def shown(stored: Any, *writes: Any) -> list[Any]:
    """Return the values of the messages' writes as they are shown, given the stored messages."""
    checkpoint: Any = empty_checkpoint()
    if stored is not None:
        checkpoint["channel_values"]["messages"] = stored
    pending: Any = [("task", "messages", write) for write in writes]
    tuple_ = CheckpointTuple({"configurable": {}}, checkpoint, {}, None, pending)
    seen = visible(tuple_, "messages", "reserved")
    return [value for _, _, value in seen.pending_writes or ()]


THERE = [HumanMessage("x", id="there")]


@pytest.mark.parametrize("form", [lambda id_: RemoveMessage(id=id_), lambda id_: removal(id_)])
def test_only_removals_of_what_is_not_there_are_left_out(form: Any) -> None:
    assert shown(THERE, [form("there"), form("gone"), THERE[0]]) == [[form("there"), THERE[0]]]
    assert shown(THERE, form("gone")) == [[]]
    assert shown(THERE, form("there")) == [form("there")]


def removal(id_: str) -> dict[str, Any]:
    return {"role": "remove", "id": id_, "content": ""}


def test_a_removal_of_what_another_write_adds_is_shown() -> None:
    new = human("new", "new")
    writes = [new], [RemoveMessage(id="new")]
    assert shown(THERE, *writes) == [*writes]


def test_a_removal_of_everything_is_shown() -> None:
    writes = [RemoveMessage(id=REMOVE_ALL), human("x", "y")]
    assert shown([], writes) == [writes]


def test_writes_of_other_shapes_are_shown() -> None:
    assert shown(THERE, "text", 3, None, [("human", "x"), 4]) == [
        "text",
        3,
        None,
        [("human", "x"), 4],
    ]
    mixed = [3, RemoveMessage(id="gone")]
    assert shown([*THERE, 3], mixed) == [[3]]


def test_nothing_is_left_out_where_the_messages_are_not_stored_as_a_list() -> None:
    removals = [RemoveMessage(id="x")]
    assert shown(None, removals) == [removals]
    assert shown(3, removals) == [removals]


def test_a_checkpoint_with_nothing_to_hide_is_the_same_object() -> None:
    for pending in (None, [], [("task", "other", 1)], [("task", "messages", [human("x")])]):
        stored: Any = CheckpointTuple({}, empty_checkpoint(), {}, None, pending)  # type: ignore[typeddict-item]
        assert visible(stored, "messages", "reserved") is stored


def test_the_outbox_is_hidden() -> None:
    pending: Any = [("task", "reserved", {}), ("task", "other", 1)]
    stored: Any = CheckpointTuple({}, empty_checkpoint(), {}, None, pending)  # type: ignore[typeddict-item]
    assert visible(stored, "messages", "reserved").pending_writes == pending[1:]
