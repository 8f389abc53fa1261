from __future__ import annotations

import copy
import pickle
from typing import get_args

import pytest
from pymongo.errors import DocumentTooLarge

from langgraph.checkpoint.mongodb import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
    MongoDBSaverError,
    UnknownLayoutError,
)
from langgraph.checkpoint.mongodb.errors import MissingCause

MISSING = [("docs", "00000001.5"), ("plan", "2@c7")]
CAUSES = get_args(MissingCause)
ERRORS: list[MongoDBSaverError] = [
    ChannelTooLargeError("docs", 17_000_001, 16_777_216, "its value document"),
    CheckpointTooLargeError("its metadata", 17_000_001, 16_777_216, "c7"),
    *(MissingChannelValueError("t7", "child:1", "c7", MISSING, cause) for cause in CAUSES),
    UnknownLayoutError(3, "t7", "c7"),
]
FACTS = {
    ChannelTooLargeError: ["'docs'", "17,000,001", "16,777,216", "its value document"],
    CheckpointTooLargeError: ["'c7'", "17,000,001", "16,777,216", "its metadata"],
    MissingChannelValueError: ["'t7'", "'child:1'", "'c7'", "'docs'", "00000001.5", "'plan'"],
    UnknownLayoutError: ["3", "'t7'", "'c7'"],
}
ADVICE = {
    ChannelTooLargeError: "put a reference into the state",
    CheckpointTooLargeError: "Nothing was written",
    MissingChannelValueError: "go on from an older checkpoint",
    UnknownLayoutError: "Upgrade langgraph-checkpoint-mongodb",
}
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@each_error
def test_one_root_catches_them_all(error: Exception) -> None:
    assert isinstance(error, MongoDBSaverError)


@each_error
def test_the_message_names_the_facts(error: Exception) -> None:
    assert [fact for fact in FACTS[type(error)] if fact not in str(error)] == []


@each_error
def test_the_message_says_what_to_do_or_what_did_not_happen(error: Exception) -> None:
    assert ADVICE[type(error)] in str(error)


@each_error
def test_it_is_the_same_in_another_process(error: Exception) -> None:
    other = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


@each_error
def test_a_copy_is_the_same(error: Exception) -> None:
    assert str(copy.deepcopy(error)) == str(error)


def test_each_cause_of_a_missing_value_has_a_text_of_its_own() -> None:
    texts = {str(error) for error in ERRORS if isinstance(error, MissingChannelValueError)}
    assert len(texts) == len(CAUSES) == 4


def test_facts_are_attributes() -> None:
    channel, checkpoint, missing, *_, layout = ERRORS
    assert isinstance(channel, ChannelTooLargeError)
    assert (channel.channel, channel.size, channel.limit) == ("docs", 17_000_001, 16_777_216)
    assert channel.where == "its value document"
    assert isinstance(checkpoint, CheckpointTooLargeError)
    assert (checkpoint.what, checkpoint.checkpoint_id) == ("its metadata", "c7")
    assert (checkpoint.size, checkpoint.limit) == (17_000_001, 16_777_216)
    assert isinstance(missing, MissingChannelValueError)
    assert (missing.thread_id, missing.checkpoint_ns) == ("t7", "child:1")
    assert missing.cause == "value lost"
    assert (missing.checkpoint_id, missing.missing) == ("c7", MISSING)
    assert isinstance(layout, UnknownLayoutError)
    assert (layout.layout, layout.thread_id, layout.checkpoint_id) == (3, "t7", "c7")


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda error: type(error).__name__)
def test_what_is_too_large_is_what_the_driver_calls_too_large(error: Exception) -> None:
    assert isinstance(error, DocumentTooLarge)
