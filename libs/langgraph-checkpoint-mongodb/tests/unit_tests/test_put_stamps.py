"""Which stamps a put renews."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from tests.unit_tests.puts import (
    ENTRY,
    INSERTED,
    KEY,
    LARGE,
    UPDATED,
    V1,
    V2,
    committed,
    inserted,
    knowing,
    put_second,
    taken,
)
from tests.unit_tests.scripted import ScriptedPort


def test_with_a_ttl_every_document_is_stamped_and_a_value_no_earlier_than_its_checkpoint() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2}, ttl=3600)
    assert inserted(port)[0]["created_at"] >= committed(port)["created_at"]


def test_without_a_ttl_nothing_is_stamped() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2})
    assert not any("created_at" in document for document in [*inserted(port), committed(port)])


def carried_with(stamped: datetime | None, ttl: int | None) -> ScriptedPort:
    """Carry a value whose stamp is known, and answer what was asked."""
    script: list[tuple[str, Any]] = [("update", UPDATED), ("update", UPDATED)]
    port = knowing(*script, parent=CheckpointInfo(SPLIT, {"large": ENTRY}, stamped))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=ttl)
    return port


def test_a_carried_value_whose_stamp_lies_in_the_past_is_stamped_anew() -> None:
    port = carried_with(wall_time() - timedelta(minutes=5), 3600)
    assert port.methods == ["values.update", "checkpoints.update"]
    (update,) = port.asked[0].given
    assert update.update["$set"]["created_at"] >= committed(port)["created_at"]


def test_only_what_has_a_stamp_is_stamped_anew() -> None:
    port = carried_with(wall_time() - timedelta(minutes=5), 3600)
    (update,) = port.asked[0].given
    assert update.filter["created_at"] == {"$exists": True}
    assert not update.upsert


def test_a_carried_value_whose_stamp_lies_ahead_is_left_alone() -> None:
    ahead = wall_time() + timedelta(seconds=50)
    port = knowing(("update", INSERTED), parent=CheckpointInfo(SPLIT, {"large": ENTRY}, ahead))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=3600)
    assert port.methods == ["checkpoints.update"]
    remembered = port.memory.info(KEY)
    assert remembered is not None
    assert remembered.stamped == ahead


def test_a_ttl_given_up_takes_the_stamps_of_carried_values_away() -> None:
    port = carried_with(wall_time() + timedelta(seconds=50), None)
    (update,) = port.asked[0].given
    assert update.update == {"$unset": {"created_at": ""}}


def test_a_value_that_never_expires_is_left_alone_when_a_ttl_begins() -> None:
    port = knowing(("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V1}, new={}, ttl=3600)
    assert port.methods == ["checkpoints.update"]


def test_a_value_that_was_there_already_is_stamped_anew() -> None:
    port = taken(("update", UPDATED), ("update", INSERTED))
    put_second(port, {"large": LARGE}, {"large": V2}, ttl=3600)
    assert port.methods[:3] == ["values.insert", "values.update", "checkpoints.update"]
