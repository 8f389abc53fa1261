from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb._database.clock import wall_time
from langgraph.checkpoint.mongodb._layout.ttl import (
    MAX_TTL,
    aware,
    checked_ttl,
    is_due,
    value_stamp,
)

AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("ttl", [None, 1, 3600, MAX_TTL])
def test_a_ttl_is_whole_seconds_or_none(ttl: int | None) -> None:
    assert checked_ttl(ttl) == ttl


def test_a_whole_float_is_a_ttl() -> None:
    assert repr(checked_ttl(60.0)) == "60"


@pytest.mark.parametrize(
    "ttl", [0, -1, MAX_TTL + 1, 0.5, True, "60", timedelta(hours=1), float("inf"), float("nan")]
)
def test_any_other_ttl_is_refused_and_named(ttl: Any) -> None:
    with pytest.raises(ValueError, match=r"^Invalid ttl .*None") as failed:
        checked_ttl(ttl)
    assert repr(ttl) in str(failed.value)


def test_a_stamp_comes_back_from_bson_as_it_went_in() -> None:
    stamp = wall_time()
    assert aware(bson.decode(bson.encode({"at": stamp}))["at"]) == stamp


def test_a_time_has_a_zone_also_when_the_client_leaves_it_out() -> None:
    assert aware(AT.replace(tzinfo=None)) == AT
    assert aware(AT) is AT
    assert aware(None) is None


@given(st.integers(1, MAX_TTL))
def test_a_value_outlives_its_writer_by_a_small_part_of_the_ttl(ttl: int) -> None:
    ahead = value_stamp(ttl, AT) - AT
    assert timedelta(0) < ahead <= timedelta(seconds=ttl) / 16


@given(st.integers(1, MAX_TTL))
def test_what_is_still_relied_on_is_due_after_a_small_part_of_the_ttl(ttl: int) -> None:
    soon = value_stamp(ttl, AT)
    assert not is_due(AT, ttl, soon)
    assert is_due(AT, ttl, soon + timedelta(milliseconds=1))


def test_what_never_expires_is_never_due() -> None:
    assert not is_due(None, 60, AT)


def test_without_a_ttl_a_stamp_is_always_to_go() -> None:
    assert is_due(AT, None, AT)
    assert not is_due(None, None, AT)
