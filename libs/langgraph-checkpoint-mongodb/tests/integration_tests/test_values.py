"""Every value comes back from a saver as it does from LangGraph's own InMemorySaver."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo.database import Database

from langgraph.checkpoint.mongodb._layout import plan as _plan
from tests.face import Face, MakeFace
from tests.hypothesis_profile import examples
from tests.integration_tests.values import MESSAGES, VALUES, described, drawn
from tests.support import LARGE_SIZE, checkpoint, contents, thread

VERSION = f"{1:032d}.{1:016d}"
CHANNELS = [
    "",
    " ",
    "a.b",
    ".",
    "$set",
    "$",
    "_id",
    "0",
    "a\0b",
    "line\nbreak",
    "日本 😀",
    "__proto__",
    "branch:to:node",
    "x" * 20_000,
]
LARGE = "x" * 10_000
numbers = itertools.count()

Saver = Face | InMemorySaver
Use = Callable[[Saver, Any], Any]
# Each example has a thread of its own, so one database serves all of them.
drawing = settings(
    max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def new_thread() -> RunnableConfig:
    return thread(f"t{next(numbers)}")


def stored(saver: Saver, config: RunnableConfig) -> CheckpointTuple:
    found = saver.get_tuple(config)
    assert found is not None
    return found


def put(saver: Saver, values: dict[str, Any], metadata: Any = None) -> RunnableConfig:
    versions: Any = dict.fromkeys(values, VERSION)
    made = checkpoint(values, versions)
    given_: Any = metadata or {}
    return saver.put(new_thread(), made, given_, versions)


def as_channel(saver: Saver, value: Any) -> Any:
    values = stored(saver, put(saver, {"channel": value})).checkpoint["channel_values"]
    return values["channel"]


def as_write(saver: Saver, value: Any) -> Any:
    config = put(saver, {"a": 1})
    saver.put_writes(config, [("a", 1), ("channel", value)], "task")
    writes = stored(saver, config).pending_writes or []
    assert [write[:2] for write in writes] == [("task", "a"), ("task", "channel")]
    return writes[1][2]


def as_metadata(saver: Saver, value: Any) -> Any:
    metadata: Any = stored(saver, put(saver, {"a": 1}, {"outer": {"key": value}})).metadata
    return metadata["outer"]["key"]


def outcome(use: Use, saver: Saver, value: Any) -> object:
    """What comes back, or the error that refuses the value."""
    try:
        return described(use(saver, value))
    except AssertionError:
        raise
    except Exception as error:
        return "refused", type(error)


def differences(face: Face, use: Use, values: dict[str, Any]) -> dict[str, Any]:
    memory = InMemorySaver()
    outcomes = {
        name: (outcome(use, face, value), outcome(use, memory, value))
        for name, value in values.items()
    }
    return {name: both for name, both in outcomes.items() if both[0] != both[1]}


def brief(found: dict[str, Any]) -> dict[str, str]:
    """For the message: what differs, in a form that can be shown."""
    return {
        name: f"{repr(got)[:300]} instead of {repr(expected)[:300]}"
        for name, (got, expected) in found.items()
    }


def is_refused(value: Any) -> bool:
    try:
        JsonPlusSerializer().dumps_typed(value)
    except Exception:
        return True
    return False


REFUSED = {name: value for name, value in VALUES.items() if is_refused(value)}
STORABLE = {name: value for name, value in VALUES.items() if name not in REFUSED}


@pytest.fixture(params=["inline", "in documents of their own"])
def _where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "inline":
        monkeypatch.setattr(_plan, "INLINE_VALUE_BYTES", -1)


# ------------------------------------------------------------------ channels


@pytest.mark.usefixtures("_where")
def test_a_channel_comes_back_in_value_and_type(face: Face) -> None:
    assert brief(differences(face, as_channel, VALUES)) == {}


@pytest.mark.usefixtures("_where")
def test_any_value_drawn_comes_back_from_a_channel(face: Face) -> None:
    @drawing
    @given(drawn)
    def law(value: Any) -> None:
        assert brief(differences(face, as_channel, {"drawn": value})) == {}

    law()


def test_channels_of_all_kinds_come_back_together(face: Face) -> None:
    memory = InMemorySaver()
    got, expected = (
        stored(saver, put(saver, STORABLE)).checkpoint["channel_values"] for saver in (face, memory)
    )
    assert got.keys() == expected.keys()
    assert {name: described(got[name]) for name in STORABLE} == {
        name: described(expected[name]) for name in STORABLE
    }


def test_an_unchanged_channel_comes_back_from_later_checkpoints(face: Face) -> None:
    config = put(face, STORABLE)
    before = stored(face, config).checkpoint["channel_values"]
    versions: Any = dict.fromkeys(STORABLE, VERSION)
    config = face.put(config, checkpoint(STORABLE, versions), {}, {})
    after = stored(face, config).checkpoint["channel_values"]
    assert {name: described(after[name]) for name in STORABLE} == {
        name: described(before[name]) for name in STORABLE
    }


def test_a_value_that_is_refused_leaves_nothing_behind(
    face: Face, database: Database[dict[str, Any]]
) -> None:
    for value in REFUSED.values():
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one, the tests above say
            put(face, {"large": LARGE, "refused": value})
    assert not any(contents(database).values())


def test_the_messages_of_a_chat_come_back_as_they_were_given(face: Face) -> None:
    chat = list(MESSAGES.values())
    assert as_channel(face, chat) == chat


def test_a_listing_gives_the_same_values(face: Face) -> None:
    config = put(face, STORABLE)
    read = stored(face, config).checkpoint["channel_values"]
    (row,) = face.list(config)
    assert described(row.checkpoint["channel_values"]) == described(read)


@pytest.mark.parametrize("value", [1, LARGE], ids=["inline", "own document"])
def test_a_channel_may_have_any_name(face: Face, value: Any) -> None:
    values = {channel: [channel, value] for channel in CHANNELS}
    found = stored(face, put(face, values)).checkpoint
    assert found["channel_values"] == values
    assert found["channel_versions"] == dict.fromkeys(CHANNELS, VERSION)


# ------------------------------------------------------------------ pending writes


def test_a_write_comes_back_in_value_and_type(face: Face) -> None:
    assert brief(differences(face, as_write, VALUES)) == {}


def test_any_value_drawn_comes_back_from_a_write(face: Face) -> None:
    @drawing
    @given(drawn)
    def law(value: Any) -> None:
        assert brief(differences(face, as_write, {"drawn": value})) == {}

    law()


def test_a_write_may_go_to_a_channel_of_any_name(face: Face) -> None:
    config = put(face, {"a": 1})
    face.put_writes(config, [(channel, [channel]) for channel in CHANNELS], "task")
    writes = stored(face, config).pending_writes
    assert writes == [("task", channel, [channel]) for channel in CHANNELS]


def test_a_write_that_is_refused_leaves_none_of_its_task(face: Face) -> None:
    config = put(face, {"a": 1})
    for value in REFUSED.values():
        with pytest.raises(Exception):  # noqa: B017, PT011 - which one, the tests above say
            face.put_writes(config, [("a", 1), ("channel", value)], "task")
    assert stored(face, config).pending_writes == []


# ------------------------------------------------------------------ metadata


def metadata_differences(face: Face, values: dict[str, Any]) -> dict[str, Any]:
    """As `differences`, but a type that only this saver keeps is none.

    InMemorySaver serializes the metadata as a whole, in which a bytearray becomes bytes.
    """
    found = differences(face, as_metadata, values)
    return {name: both for name, both in found.items() if both[0] != described(values[name])}


def test_metadata_comes_back_in_value_and_type(face: Face) -> None:
    # A key with a NUL is refused in metadata, as by older releases.
    odd = {key: value for key, value in VALUES["odd keys"].items() if "\0" not in key}
    assert brief(metadata_differences(face, {**VALUES, "odd keys": odd})) == {}


def test_any_value_drawn_comes_back_from_metadata(face: Face) -> None:
    @drawing
    @given(drawn)
    def law(value: Any) -> None:
        assume("\\x00" not in repr(value))
        assert brief(metadata_differences(face, {"drawn": value})) == {}

    law()


@pytest.mark.parametrize("key", ["", "a.b", "$set", ".", "日本", 5, None, "x" * 2000])
def test_metadata_may_have_any_key(face: Face, key: Any) -> None:
    memory = InMemorySaver()
    metadata = {"source": "loop", key: {key: [1]}}
    got, expected = (
        stored(saver, put(saver, {"a": 1}, metadata)).metadata for saver in (face, memory)
    )
    assert described(got) == described(expected)


@pytest.mark.parametrize("key", ["", "a.b", ".", "日本"])
def test_a_listing_can_be_filtered_by_any_key(face: Face, key: str) -> None:
    config = put(face, {"a": 1}, {"source": "loop", key: "wanted"})
    put(face, {"a": 1}, {"source": "loop", key: "other"})
    (row,) = face.list(None, filter={key: "wanted"})
    assert row.config["configurable"] == config["configurable"]


# ------------------------------------------------------------------ serializers


def test_with_a_pickle_fallback_more_values_come_back(make_face: MakeFace) -> None:
    face = make_face(serde=JsonPlusSerializer(pickle_fallback=True))
    values = {name: VALUES[name] for name in ("complex", "fraction", "class", "function")}
    values["large"] = [1j] * LARGE_SIZE
    assert stored(face, put(face, values)).checkpoint["channel_values"] == values
