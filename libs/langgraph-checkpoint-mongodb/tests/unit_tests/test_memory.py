from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph.checkpoint.mongodb._layout.checkpoint import CheckpointInfo
from langgraph.checkpoint.mongodb._layout.keys import CheckpointKey
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT, WHOLE, Layout
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._operations import memory as _memory
from langgraph.checkpoint.mongodb._operations.memory import Memory


def key(thread: str = "t", checkpoint_id: str = "1", checkpoint_ns: str = "") -> CheckpointKey:
    return CheckpointKey(thread, checkpoint_ns, checkpoint_id)


def parent(entries: int = 0, layout: Layout = SPLIT) -> CheckpointInfo:
    return CheckpointInfo(layout, {f"c{n}": ManifestEntry(f"c{n}", "1", 1) for n in range(entries)})


def known_threads(memory: Memory, count: int) -> list[int]:
    return [n for n in range(count) if memory.info(key(f"t{n}")) is not None]


def test_the_newest_checkpoint_of_a_namespace_is_known() -> None:
    memory, one = Memory(), parent(3)
    memory.remember(key(), one)
    assert memory.info(key()) is one


def test_an_older_checkpoint_is_not_known() -> None:
    memory = Memory()
    memory.remember(key(checkpoint_id="1"), parent())
    memory.remember(key(checkpoint_id="2"), parent())
    assert memory.info(key(checkpoint_id="1")) is None


def test_namespaces_of_a_thread_do_not_displace_each_other() -> None:
    memory, root, child = Memory(), parent(1), parent(2)
    memory.remember(key(), root)
    memory.remember(key(checkpoint_ns="child:1"), child)
    assert memory.info(key()) is root
    assert memory.info(key(checkpoint_ns="child:1")) is child


def test_the_layout_of_a_thread_is_known_from_any_of_its_checkpoints() -> None:
    memory = Memory()
    memory.remember(key(checkpoint_ns="child:1"), parent(layout=WHOLE))
    assert memory.layout("t") == WHOLE
    assert memory.layout("other") is None


def test_the_layout_alone_can_be_kept() -> None:
    memory = Memory()
    memory.note_layout("t", SPLIT)
    assert memory.layout("t") == SPLIT
    assert memory.info(key()) is None


def test_nothing_is_known_of_a_forgotten_thread() -> None:
    memory = Memory()
    for checkpoint_ns in ("", "child:1"):
        memory.remember(key(checkpoint_ns=checkpoint_ns), parent(2))
    memory.remember(key("other"), parent(2))
    memory.forget("t")
    assert memory.info(key()) is None
    assert memory.info(key(checkpoint_ns="child:1")) is None
    assert memory.layout("t") is None
    assert memory.info(key("other")) is not None


def test_forgetting_an_unknown_thread_does_nothing() -> None:
    Memory().forget("t")


def test_the_number_of_namespaces_is_bounded_the_oldest_going_first() -> None:
    memory, count = Memory(), _memory._NAMESPACES + 10
    for n in range(count):
        memory.remember(key(f"t{n}"), parent())
    assert known_threads(memory, count) == list(range(10, count))


def test_the_number_of_layouts_is_bounded_the_oldest_going_first() -> None:
    memory, count = Memory(), _memory._NAMESPACES + 10
    for n in range(count):
        memory.note_layout(f"t{n}", SPLIT)
    assert [n for n in range(count) if memory.layout(f"t{n}")] == list(range(10, count))


def test_the_number_of_manifest_entries_is_bounded() -> None:
    memory, each = Memory(), 10_000
    large = parent(each)
    for n in range(20):
        memory.remember(key(f"t{n}"), large)
    known = known_threads(memory, 20)
    assert len(known) == _memory._ENTRIES // each
    assert known[-1] == 19


def test_a_manifest_too_large_to_keep_leaves_room_for_others() -> None:
    memory = Memory()
    memory.remember(key("huge"), parent(_memory._ENTRIES + 1))
    assert memory.info(key("huge")) is None
    memory.remember(key("small"), parent(1))
    assert memory.info(key("small")) is not None


def test_a_thread_in_use_outlives_newer_ones_that_are_not() -> None:
    memory = Memory()
    memory.remember(key("used"), parent())
    for n in range(2 * _memory._NAMESPACES):
        memory.remember(key(f"t{n}"), parent())
        assert memory.info(key("used")) is not None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50), st.booleans())))
def test_the_entries_are_counted_as_they_come_and_go(
    steps: list[tuple[str, int, bool]],
) -> None:
    memory = Memory()
    kept: dict[str, int] = {}
    for thread, entries, forget in steps:
        if forget:
            memory.forget(thread)
            kept.pop(thread, None)
        else:
            memory.remember(key(thread), parent(entries))
            kept[thread] = entries
    assert memory._entries == sum(kept.values())


def test_threads_may_use_it_at_once() -> None:
    memory, count = Memory(), 4
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def hammer(number: int) -> None:
        start.wait()
        try:
            for n in range(400):
                memory.remember(key(f"t{n % 7}", str(number)), parent(n % 5))
                memory.info(key(f"t{(n + 1) % 7}", str(number)))
                memory.layout(f"t{n % 7}")
                if n % 3 == 0:
                    memory.forget(f"t{n % 7}")
        except BaseException as error:
            failures.append(error)

    _in_threads(hammer, count)
    assert failures == []
    for n in range(7):
        memory.forget(f"t{n}")
    assert memory._entries == 0


def test_a_put_of_a_large_input_is_known_while_it_is_under_way() -> None:
    memory = Memory()
    with memory.input_in_flight(key()) as in_flight:
        assert memory.in_flight(key()) is in_flight
        assert not in_flight.done.is_set()
    assert memory.in_flight(key()) is None


def test_whoever_waits_for_a_put_is_let_go_when_it_fails() -> None:
    memory = Memory()
    with pytest.raises(ValueError, match="too large"), memory.input_in_flight(key()) as in_flight:
        raise ValueError("too large")
    assert in_flight.done.is_set()
    assert in_flight.digests == {}
    assert memory.in_flight(key()) is None


def _in_threads(function: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=function, args=(n,)) for n in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
