from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.codec import Codec, Typed
from langgraph.checkpoint.mongodb._layout.compat import DeltaSnapshot
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.manifest import NO_PART, ManifestEntry
from langgraph.checkpoint.mongodb._layout.parts import LARGE_ITEM_BYTES, join_parts
from langgraph.checkpoint.mongodb._layout.pieces import TAILS_TOTAL_BYTES
from langgraph.checkpoint.mongodb._layout.plan import (
    INLINE_TOTAL_BYTES,
    INLINE_VALUE_BYTES,
    plan_put,
)
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan
from langgraph.checkpoint.mongodb._layout.values import version_text
from tests.hypothesis_profile import examples
from tests.support import HAS_DELTA_CHANNELS, checkpoint, needs_delta_channels
from tests.unit_tests.strategies import (
    CODEC,
    names,
    unique_versions,
    values,
    versions,
)

MB = 1024 * 1024
LARGE = b"x" * 2 * INLINE_VALUE_BYTES
OVER = INLINE_VALUE_BYTES + 1


def version(counter: int = 1) -> str:
    return f"{counter:032d}.{counter:016d}"


V1, V2 = version(1), version(2)


def plan(
    channel_values: Mapping[str, Any],
    channel_versions: Mapping[str, Any],
    *,
    new: Mapping[str, Any] | None = None,
    held: Mapping[str, ManifestEntry] | None = None,
    digests: Mapping[bytes, ManifestEntry] | None = None,
    own: Collection[str] = (),
    codec: Codec = CODEC,
    checkpoint_id: str = "c1",
) -> PutPlan:
    """Plan a checkpoint whose every channel is new, unless said otherwise."""
    made = checkpoint(channel_values, channel_versions, id=checkpoint_id)
    new = channel_versions if new is None else new
    parent = CheckpointInfo(SPLIT, held or {}, digests=digests or {})
    return plan_put(codec, made, dict(new), parent, own)


def places(made: PutPlan) -> list[str]:
    """The channels, once for each place that they are in."""
    carried = [entry.channel for entry in made.carried]
    written = [entry.channel for entry, _ in made.written]
    return sorted([*made.inline, *carried, *written])


def read(made: PutPlan, entry: ManifestEntry) -> Any:
    (parts,) = [parts for one, parts in made.written if one == entry]
    return CODEC.loads(parts[0]) if entry.parts is None else join_parts(CODEC, parts)


def inline_sizes(made: PutPlan) -> list[int]:
    return [len(CODEC.dumps(value)[1]) for value in made.inline.values()]


# ------------------------------------------------------------------ laws

sized = st.sampled_from(
    [0, 100, INLINE_VALUE_BYTES, INLINE_VALUE_BYTES + 1, 2 * INLINE_VALUE_BYTES]
)
payloads = st.builds(
    lambda size, kind: kind(b"x" * size), sized, st.sampled_from([bytes, bytearray])
)
snapshots = st.builds(DeltaSnapshot, values) if HAS_DELTA_CHANNELS else st.nothing()
any_value = values | payloads | snapshots


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    """A checkpoint, what its parent holds, and a `new_versions` that need not fit them."""
    channel_versions = draw(st.dictionaries(names, versions, max_size=6))
    with_value = draw(st.sets(st.sampled_from([*channel_versions, "unversioned"])))
    new = draw(st.sets(st.sampled_from([*channel_versions, "other"])))
    held = {}
    for channel in draw(st.sets(st.sampled_from([*channel_versions, "gone"]))):
        same = channel in channel_versions and draw(st.booleans())
        holds = version_text(channel_versions[channel]) if same else "older"
        held[channel] = ManifestEntry(channel, "key", 1, channel_version=holds)
    return {
        "channel_values": {channel: draw(any_value) for channel in with_value},
        "channel_versions": channel_versions,
        "new": dict.fromkeys(new, "whatever"),
        "held": held,
        "own": draw(st.sets(st.sampled_from([*channel_versions, "other"]))),
    }


# A step is large to draw.
def a_step(test: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    return settings(max_examples=examples(50))(given(steps())(test))


def still_held(step: dict[str, Any], channel: str) -> bool:
    entry = step["held"].get(channel)
    current = step["channel_versions"].get(channel)
    return entry is not None and current is not None and entry.holds == version_text(current)


@a_step
def test_every_channel_value_is_in_exactly_one_place(step: dict[str, Any]) -> None:
    made = plan(**step)
    carried = {channel for channel in step["channel_versions"] if still_held(step, channel)}
    unwritten = carried - step["channel_values"].keys()
    assert places(made) == sorted(step["channel_values"].keys() | unwritten)


@a_step
def test_what_is_not_carried_reads_back_equal(step: dict[str, Any]) -> None:
    made = plan(**step)
    got = CODEC.loads(CODEC.dumps(made.inline))
    got |= {entry.channel: read(made, entry) for entry, _ in made.written}
    carried = {entry.channel for entry in made.carried}
    wanted = {
        channel: value
        for channel, value in step["channel_values"].items()
        if channel not in carried
    }
    assert {channel: (type(value), value) for channel, value in got.items()} == {
        channel: (type(value), value) for channel, value in wanted.items()
    }


@a_step
def test_a_value_is_carried_only_at_that_very_version(step: dict[str, Any]) -> None:
    for entry in plan(**step).carried:
        assert step["held"][entry.channel] == entry
        assert entry.holds == version_text(step["channel_versions"][entry.channel])


@a_step
def test_a_channel_that_the_step_wrote_is_not_carried_when_its_value_is_given(
    step: dict[str, Any],
) -> None:
    carried = {entry.channel for entry in plan(**step).carried}
    assert not carried & step["new"].keys() & step["channel_values"].keys()


@a_step
def test_the_manifest_names_what_is_written_and_what_is_carried(step: dict[str, Any]) -> None:
    made = plan(**step)
    named = {entry.channel for entry in made.carried} | {e.channel for e, _ in made.written}
    assert made.manifest().keys() == named


@a_step
def test_a_written_entry_holds_its_channels_version_and_size(step: dict[str, Any]) -> None:
    for entry, parts in plan(**step).written:
        assert entry.holds == version_text(step["channel_versions"].get(entry.channel))
        assert entry.size == sum(len(data) for _, data in parts)


@a_step
def test_the_inline_values_of_a_checkpoint_are_small(step: dict[str, Any]) -> None:
    sizes = inline_sizes(plan(**step))
    assert max(sizes, default=0) <= INLINE_VALUE_BYTES
    assert sum(sizes) <= INLINE_TOTAL_BYTES


@given(st.dictionaries(names, st.integers(0, INLINE_VALUE_BYTES - 5), min_size=1))
def test_all_small_values_are_inline_while_they_are_few(sizes: dict[str, int]) -> None:
    channel_values = {channel: b"x" * size for channel, size in sizes.items()}
    made = plan(channel_values, dict.fromkeys(channel_values, V1))
    total = sum(len(CODEC.dumps(value)[1]) for value in channel_values.values())
    assert (not made.written) == (total <= INLINE_TOTAL_BYTES)


# ------------------------------------------------------------------ inline or not


@pytest.mark.parametrize(("beyond", "inline"), [(0, True), (1, False)])
def test_an_inline_value_has_a_limit(beyond: int, inline: bool) -> None:
    made = plan({"a": b"x" * (INLINE_VALUE_BYTES + beyond)}, {"a": V1})
    assert ("a" in made.inline) == inline


def test_text_has_the_same_limit() -> None:
    channel_values = {"a": "x" * (INLINE_VALUE_BYTES - 5), "b": "x" * INLINE_VALUE_BYTES}
    made = plan(channel_values, {"a": V1, "b": V1})
    assert (list(made.inline), [entry.channel for entry, _ in made.written]) == (["a"], ["b"])


class Foreign(JsonPlusSerializer):
    """A serializer whose bytes may not be cut, as far as can be known."""

    def dumps_typed(self, obj: Any) -> Typed:
        return super().dumps_typed(obj)


def test_beyond_the_total_the_smallest_values_stay_inline_where_none_can_be_bundled() -> None:
    channel_values = {f"c{n}": b"x" * (n * 10) for n in range(1, 101)}
    channel_values |= {f"d{n}": b"y" * 1000 for n in range(20)}
    made = plan(channel_values, dict.fromkeys(channel_values, V1), codec=Codec(Foreign()))
    assert 0 < INLINE_TOTAL_BYTES - sum(inline_sizes(made)) <= INLINE_VALUE_BYTES
    largest_inline = max(len(value) for value in made.inline.values())
    assert largest_inline <= min(entry.size for entry, _ in made.written)


# ------------------------------------------------------------------ bundles


MANY = {f"c{n:03}": f"{n:03}" * 100 for n in range(300)}


def after(made: PutPlan) -> CheckpointInfo:
    """What a put that follows knows."""
    return CheckpointInfo(SPLIT, made.manifest(), growths=made.growths, bundle=made.bundle)


def followed(made: PutPlan, channel_values: Mapping[str, Any], new: Mapping[str, Any]) -> PutPlan:
    channel_versions = {**dict.fromkeys(channel_values, V1), **new}
    stored = checkpoint(channel_values, channel_versions, id="c2")
    return plan_put(CODEC, stored, dict(new), after(made))


def test_small_values_beyond_the_total_are_bundled_in_one_document() -> None:
    made = plan(MANY, dict.fromkeys(MANY, V1))
    assert [(entry.channel, len(parts)) for entry, parts in made.written] == [(BUNDLE, 1)]
    assert not made.inline


def test_a_step_after_a_bundle_writes_what_it_changed_inline() -> None:
    made = plan(MANY, dict.fromkeys(MANY, V1))
    later = followed(made, {**MANY, "c001": "new"}, {"c001": V2})
    assert later.inline == {"c001": "new"}
    assert not later.written
    assert later.bundle is not None
    assert later.bundle.dead == {"c001"}


def test_what_has_another_version_than_the_bundle_holds_is_stored_anew() -> None:
    made = plan(MANY, dict.fromkeys(MANY, V1))
    stored = checkpoint(MANY, {**dict.fromkeys(MANY, V1), "c001": V2}, id="c2")
    later = plan_put(CODEC, stored, {}, after(made))
    assert later.inline == {"c001": MANY["c001"]}


def test_a_channel_that_is_not_given_stays_in_the_bundle() -> None:
    made = plan(MANY, dict.fromkeys(MANY, V1))
    given_ = {name: value for name, value in MANY.items() if name != "c001"}
    stored = checkpoint(given_, dict.fromkeys(MANY, V1), id="c2")
    later = plan_put(CODEC, stored, {}, after(made))
    assert later.bundle is not None
    assert "c001" in later.bundle.live


def test_a_channel_that_the_step_emptied_leaves_the_bundle() -> None:
    made = plan(MANY, dict.fromkeys(MANY, V1))
    given_ = {name: value for name, value in MANY.items() if name != "c001"}
    later = followed(made, given_, {"c001": V2})
    assert later.bundle is not None
    assert later.bundle.dead == {"c001"}


# ------------------------------------------------------------------ values that grow


def test_a_value_that_has_grown_names_what_is_stored_and_holds_the_rest() -> None:
    made = plan({"list": ["x" * OVER]}, {"list": V1})
    later = followed(made, {"list": ["x" * OVER, "y" * 100]}, {"list": V2})
    assert not later.written
    entry = later.manifest()["list"]
    assert (entry.pieces, entry.holds) == ((NO_PART,), V2)
    assert len(later.growths["list"].tail) == 102


def test_the_tails_together_are_bounded() -> None:
    lists = {f"l{n}": ["x" * OVER] for n in range(20)}
    made = plan(lists, dict.fromkeys(lists, V1))
    grown = {name: [*value, "y" * 2000] for name, value in lists.items()}
    later = followed(made, grown, dict.fromkeys(grown, V2))
    tails = sum(len(growth.tail) for growth in later.growths.values())
    assert TAILS_TOTAL_BYTES - 2100 < tails <= TAILS_TOTAL_BYTES
    assert len(later.written) == 20 - tails // 2000


def test_a_delta_snapshot_is_never_cut() -> None:
    needs = {"list": DeltaSnapshot(["x" * OVER])} if HAS_DELTA_CHANNELS else {}
    assert not plan(needs, dict.fromkeys(needs, V1)).growths


def test_which_values_are_inline_does_not_depend_on_their_order() -> None:
    channel_values = {f"c{n:03}": b"x" * 900 for n in range(100)}
    backwards = dict(reversed(channel_values.items()))
    all_at = dict.fromkeys(channel_values, V1)
    assert plan(channel_values, all_at).inline.keys() == plan(backwards, all_at).inline.keys()


@needs_delta_channels
def test_a_snapshot_of_a_delta_channel_is_never_inline() -> None:
    made = plan({"log": DeltaSnapshot([1])}, {"log": V1})
    ((entry, _),) = made.written
    assert (entry.channel, entry.snapshot) == ("log", True)


def test_a_value_that_would_change_inside_a_container_is_never_inline() -> None:
    codec = Codec(JsonPlusSerializer(pickle_fallback=True))
    made = plan({"a": bytearray(b"x"), "b": 1j, "c": b"x"}, dict.fromkeys("abc", V1), codec=codec)
    types = {entry.channel: parts[0][0] for entry, parts in made.written}
    assert (types, made.inline) == ({"a": "bytearray", "b": "pickle"}, {"c": b"x"})


def test_a_small_scalar_is_inline_without_being_serialized_by_itself() -> None:
    class Untouched:
        def dumps_typed(self, obj: Any) -> Typed:
            raise AssertionError(obj)

        def loads_typed(self, data: Typed) -> Any:
            raise AssertionError(data)

    scalars = {"a": 1, "b": True, "c": None, "d": 0.5, "e": "text"}
    assert plan(scalars, dict.fromkeys(scalars, V1), codec=Codec(Untouched())).inline == scalars


# ------------------------------------------------------------------ carried or written


def test_an_unchanged_value_is_carried_and_not_even_serialized() -> None:
    held = {"a": ManifestEntry("a", V1, OVER)}
    made = plan({"a": object()}, {"a": V1}, new={}, held=held)
    assert made.carried == [held["a"]]


def test_a_value_is_written_although_the_caller_calls_nothing_new() -> None:
    made = plan({"a": LARGE}, {"a": V1}, new={})
    assert [entry.channel for entry, _ in made.written] == ["a"]


def test_a_value_that_changed_is_written_although_the_caller_does_not_say_so() -> None:
    made = plan({"a": LARGE}, {"a": V2}, new={}, held={"a": ManifestEntry("a", V1, OVER)})
    assert [entry.holds for entry, _ in made.written] == [V2]


def test_a_value_that_the_step_did_not_write_gets_a_key_of_the_checkpoints_own() -> None:
    made = plan({"a": LARGE, "b": LARGE}, {"a": V1, "b": V1}, new={"a": V1})
    assert {entry.channel: entry.version for entry, _ in made.written} == {
        "a": V1,
        "b": f"{V1}@c1",
    }


def test_a_channel_without_a_version_is_written_and_never_carried() -> None:
    held = {"a": ManifestEntry("a", "@c0", OVER, channel_version="")}
    made = plan({"a": LARGE}, {}, held=held)
    assert [entry.version for entry, _ in made.written] == ["@c1"]


def test_a_snapshot_that_is_left_out_is_carried_while_its_version_stands() -> None:
    held = {"log": ManifestEntry("log", V1, 10, snapshot=True)}
    assert plan({}, {"log": V1}, held=held).carried == [held["log"]]
    assert plan({}, {"log": V2}, held=held).carried == []


def test_an_emptied_channel_is_not_carried() -> None:
    made = plan({}, {"a": V2}, held={"a": ManifestEntry("a", V1, OVER)})
    assert places(made) == []


def test_two_forks_that_count_to_one_number_do_not_meet_on_one_key() -> None:
    ((one, _),) = plan({"a": LARGE}, {"a": 2}, checkpoint_id="c1").written
    ((other, _),) = plan({"a": LARGE}, {"a": 2}, checkpoint_id="c2").written
    assert one.version != other.version
    assert one.holds == other.holds == "2"


@given(unique_versions)
def test_a_unique_version_keys_its_value(unique: str) -> None:
    ((entry, _),) = plan({"a": LARGE}, {"a": unique}).written
    assert (entry.version, entry.channel_version) == (unique, None)


def test_only_the_channels_that_must_have_keys_of_the_checkpoints_own() -> None:
    made = plan({"a": LARGE, "b": LARGE}, {"a": V1, "b": V1}, own={"b"})
    assert {entry.channel: entry.version for entry, _ in made.written} == {
        "a": V1,
        "b": f"{V1}@c1",
    }


# ------------------------------------------------------------------ the graph's input

DOCS = b"d" * MB
SMALL = b"s" * 2 * INLINE_VALUE_BYTES


def input_step() -> PutPlan:
    return plan({"__start__": {"docs": DOCS, "small": SMALL}}, {"__start__": V1})


def test_the_input_is_written_in_parts_when_it_is_large() -> None:
    made = input_step()
    ((entry, parts),) = made.written
    assert (entry.parts, len(parts)) == (3, 3)
    assert read(made, entry) == {"docs": DOCS, "small": SMALL}


def test_any_other_channel_is_written_whole() -> None:
    ((entry, parts),) = plan({"a": {"docs": DOCS}}, {"a": V1}).written
    assert (entry.parts, len(parts)) == (None, 1)


def test_a_channel_that_takes_a_large_item_of_the_input_does_not_write_it_again() -> None:
    made = plan(
        {"docs": DOCS, "small": SMALL}, {"docs": V2, "small": V2}, digests=input_step().digests
    )
    (entry,) = made.carried
    assert (entry.channel, entry.holds, entry.size) == ("docs", V2, len(DOCS))
    (stored_key,) = entry.keys(CheckpointKey("t", "", "c1"))
    assert (stored_key.channel, stored_key.version) == ("__start__", V1)
    _, parts = input_step().written[0]
    assert CODEC.loads(parts[stored_key.part or 0]) == DOCS
    assert [entry.channel for entry, _ in made.written] == ["small"]


@pytest.mark.parametrize("other", [b"D" * MB, bytearray(DOCS), [DOCS], DOCS + b"d"])
def test_a_value_that_differs_in_anything_is_written(other: Any) -> None:
    made = plan({"docs": other}, {"docs": V2}, digests=input_step().digests)
    assert (made.carried, [entry.channel for entry, _ in made.written]) == ([], ["docs"])


def test_what_was_taken_from_the_input_is_carried_on_like_any_value() -> None:
    first = plan({"docs": DOCS}, {"docs": V2}, digests=input_step().digests)
    second = plan({"docs": DOCS}, {"docs": V2}, new={}, held=first.manifest())
    assert second.carried == first.carried


def test_an_input_passed_on_twice_still_names_where_it_was_stored() -> None:
    first = plan({"__start__": {"docs": DOCS}}, {"__start__": V1})
    again = plan({"one": DOCS, "two": DOCS}, {"one": V2, "two": V2}, digests=first.digests)
    assert {entry.stored_channel for entry in again.carried} == {"__start__"}


def test_only_large_items_are_offered_to_other_channels() -> None:
    assert all(entry.size > LARGE_ITEM_BYTES for entry in input_step().digests.values())
    assert plan({"a": os.urandom(MB)}, {"a": V1}).digests == {}
