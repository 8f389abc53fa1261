"""What the wrapper says of itself, and whom it lets reduce."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from chats import human, texts, turns
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from threads import Remember, Run, reducing, stored

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver, apply_reducer, memory_namespace


def reducer(*hooks: Any) -> MessageReducer:
    return MessageReducer(config=ReducerConfig(min_messages=2, max_messages=4, on_prune=[*hooks]))


class Knows(InMemorySaver):
    """A saver that applies a reducer itself."""

    def __init__(self, reducer: Any = None, messages_key: str = "messages") -> None:
        super().__init__()
        self.reducer = reducer
        self.messages_key = messages_key

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        reduced = apply_reducer(self.reducer, checkpoint, config, self.messages_key)
        return super().put(config, reduced, metadata, new_versions)


class TestWhoReduces:
    def test_a_saver_that_knows_of_no_reducer_is_reduced_for(self) -> None:
        saver = ReducingSaver(InMemorySaver(), reducer())
        assert not saver.passthrough
        Run(saver).say(*turns(3))
        assert len(stored(saver)) == 2

    def test_a_saver_that_lacks_one_is_handed_it(self) -> None:
        hook, inner = Remember(), Knows()
        given = reducer(hook)
        saver = ReducingSaver(inner, given)
        assert saver.passthrough
        assert inner.reducer is given
        Run(saver).say(*turns(3))
        assert len(stored(saver)) == 2
        assert hook.batches == [(texts(turns(2)), ("memories", "kim"))]

    def test_a_saver_that_lacks_one_is_told_the_channel(self) -> None:
        inner = Knows()
        assert ReducingSaver(inner, reducer(), messages_key="notes").passthrough
        assert inner.messages_key == "notes"

    def test_a_saver_with_the_same_one_keeps_it(self) -> None:
        one = reducer()
        assert ReducingSaver(Knows(one), one).passthrough

    def test_a_saver_with_another_one_is_refused(self) -> None:
        with pytest.raises(ValueError, match="Knows has another reducer"):
            ReducingSaver(Knows(reducer()), reducer())

    def test_a_saver_with_another_one_for_another_channel_is_not(self) -> None:
        saver = ReducingSaver(Knows(reducer(), "notes"), reducer())
        assert not saver.passthrough

    def test_a_wrapper_of_a_wrapper_with_the_same_reducer_passes_through(self) -> None:
        hook = Remember()
        one = reducer(hook)
        saver = ReducingSaver(ReducingSaver(InMemorySaver(), one), one)
        assert saver.passthrough
        Run(saver).say(*turns(3))
        assert hook.handed == texts(turns(2))

    def test_a_wrapper_of_a_wrapper_with_another_reducer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="another reducer"):
            ReducingSaver(ReducingSaver(InMemorySaver(), reducer()), reducer())

    def test_wrappers_for_two_channels_work_side_by_side(self) -> None:
        hook, inner = Remember(), InMemorySaver()
        one = reducer(hook)
        saver = ReducingSaver(ReducingSaver(inner, one), one, messages_key="notes")
        assert not saver.passthrough
        assert ReducingSaver(saver, one).passthrough
        checkpoint: Any = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": turns(3), "notes": turns(4, start=10)}
        versions: Any = {"messages": "1", "notes": "1"}
        checkpoint["channel_versions"] = versions
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        put = saver.put(config, checkpoint, {}, versions)
        found = saver.get_tuple(put)
        assert found is not None
        assert found.checkpoint["channel_values"] == {
            "messages": turns(1, start=2),
            "notes": turns(1, start=13),
        }
        assert found.pending_writes == []
        assert sorted(hook.handed) == sorted(texts(turns(2)) + texts(turns(3, start=10)))
        assert len(inner.writes["t", "", checkpoint["id"]]) == (1 + 4 + 1) + (1 + 6 + 1)


class TestRefusals:
    def test_a_context_manager_is_refused_with_the_fix(self) -> None:
        @contextmanager
        def opened() -> Iterator[InMemorySaver]:
            yield InMemorySaver()

        with pytest.raises(TypeError, match=r"open it first: `with \.\.\. as saver"):
            ReducingSaver(opened(), reducer())  # type: ignore[arg-type]

    def test_an_async_context_manager_is_refused_with_the_fix(self) -> None:
        with pytest.raises(TypeError, match=r"open it first: `async with \.\.\. as saver"):
            ReducingSaver(AsyncSqliteSaver.from_conn_string(":memory:"), reducer())  # type: ignore[arg-type]
        assert asynccontextmanager

    @pytest.mark.parametrize("strange", [None, "saver", InMemorySaver])
    def test_what_is_no_saver_is_refused(self, strange: Any) -> None:
        with pytest.raises(TypeError, match="BaseCheckpointSaver"):
            ReducingSaver(strange, reducer())

    def test_a_missing_reducer_is_refused(self) -> None:
        with pytest.raises(ValueError, match="needs a reducer"):
            ReducingSaver(InMemorySaver(), None)  # type: ignore[arg-type]

    def test_what_is_no_reducer_is_refused(self) -> None:
        with pytest.raises(TypeError, match="MessageReducer, not a ReducerConfig"):
            ReducingSaver(InMemorySaver(), ReducerConfig())  # type: ignore[arg-type]


def members() -> list[str]:
    return [
        name for name in dir(BaseCheckpointSaver) if not name.startswith("_") and name != "serde"
    ]


class Bare(BaseCheckpointSaver[int]):
    """Implements next to nothing."""

    def put(self, *args: Any) -> Any:
        return {}


class Everything(InMemorySaver):
    """Implements what InMemorySaver leaves out, and sees that it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.called.append(("prune", thread_ids, strategy))

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.called.append(("aprune", thread_ids, strategy))

    def get(self, config: Any) -> Any:
        return "got"

    @property
    def config_specs(self) -> list[Any]:
        return ["a spec"]


class OldWrites(InMemorySaver):
    """A saver from before put_writes took a task path."""

    def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]
        super().put_writes(config, writes, task_id)


class Extended(ReducingSaver):
    """A subclass with a word of its own."""

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        super().prune([*thread_ids, "and mine"], strategy=strategy)


class FromPath(ReducingSaver):
    """A subclass that makes the inner saver itself."""

    def __init__(self, path: str) -> None:
        super().__init__(Everything(), reducer())
        self.path = path


class TestCapabilities:
    @pytest.mark.parametrize("wrapper", [ReducingSaver, type("Sub", (ReducingSaver,), {})])
    @pytest.mark.parametrize(
        "inner", [InMemorySaver, Bare, Everything, OldWrites, SqliteSaver, AsyncPostgresSaver]
    )
    def test_they_are_those_of_the_inner_saver_by_type(self, wrapper: Any, inner: Any) -> None:
        saver = wrapper(object.__new__(inner), reducer())
        for name in members():
            theirs = getattr(inner, name) is not getattr(BaseCheckpointSaver, name)
            ours = getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name)
            assert ours == theirs, name

    def test_methods_of_later_releases_follow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def archive(self: Any) -> Any:
            raise NotImplementedError

        monkeypatch.setattr(BaseCheckpointSaver, "archive", archive, raising=False)

        class Archives(InMemorySaver):
            def archive(self) -> str:
                return "archived"

        class DoesNot(InMemorySaver):
            pass

        assert ReducingSaver(Archives(), reducer()).archive() == "archived"
        assert type(ReducingSaver(DoesNot(), reducer())).archive is archive

    def test_calls_reach_the_inner_saver(self) -> None:
        inner = Everything()
        saver: Any = ReducingSaver(inner, reducer())
        saver.prune(["a"], strategy="delete")
        assert inner.called == [("prune", ["a"], "delete")]
        assert inspect.iscoroutinefunction(saver.aprune)
        assert saver.get({}) == "got"
        assert saver.config_specs == ["a spec"]
        assert saver.get_next_version(None, None).startswith("0" * 31 + "1.")
        assert saver.called is inner.called

    def test_what_the_inner_saver_lacks_says_so(self) -> None:
        with pytest.raises(NotImplementedError):
            ReducingSaver(InMemorySaver(), reducer()).prune(["a"])

    def test_signatures_are_those_of_the_inner_saver(self) -> None:
        assert (
            "task_path"
            in inspect.signature(ReducingSaver(InMemorySaver(), reducer()).put_writes).parameters
        )
        old = ReducingSaver(OldWrites(), reducer(Remember()))
        assert "task_path" not in inspect.signature(old.put_writes).parameters
        Run(old).say(*turns(3))
        assert len(stored(old)) == 2

    def test_a_subclass_extends_what_the_inner_saver_has(self) -> None:
        inner = Everything()
        Extended(inner, reducer()).prune(["a"])
        assert inner.called == [("prune", ["a", "and mine"], "keep_latest")]

    def test_a_subclass_may_have_a_constructor_of_its_own(self) -> None:
        saver: Any = FromPath("here")
        assert saver.path == "here"
        assert isinstance(saver, FromPath)
        assert type(saver).prune is not BaseCheckpointSaver.prune

    def test_the_same_classes_give_the_same_class(self) -> None:
        assert type(reducing(InMemorySaver())) is type(reducing(InMemorySaver()))
        assert type(reducing(InMemorySaver())).__name__ == "ReducingSaver[InMemorySaver]"


class TestCopies:
    def test_the_serializer_is_the_inner_savers(self) -> None:
        inner = InMemorySaver()
        saver = reducing(inner)
        assert saver.serde is inner.serde
        saver.serde = other = JsonPlusSerializer()
        assert inner.serde is other

    def test_a_copy_has_an_inner_saver_of_its_own_and_the_same_memory(self) -> None:
        hook, inner = Remember(), InMemorySaver()
        saver = reducing(inner, hook)
        run = Run(saver)
        run.say(*turns(3))
        twin = copy.copy(saver)
        assert type(twin) is type(saver)
        assert twin.inner is not inner
        twin.serde = JsonPlusSerializer()
        assert inner.serde is not twin.serde
        run.saver = twin
        run.say(*turns(1, start=3))
        assert hook.handed == texts(turns(2))

    @pytest.mark.parametrize("inner", [InMemorySaver, Everything])
    def test_an_allowlist_makes_the_inner_saver_strict(self, inner: Any) -> None:
        bare = inner()
        saver = reducing(bare)
        strict: Any = saver.with_allowlist({("chats", "Message")})
        assert isinstance(strict, ReducingSaver)
        assert (strict is saver) == (bare.with_allowlist({("chats", "Message")}) is bare)
        assert type(strict) is type(saver)

    def test_strict_mode_is_enforced_on_the_inner_saver(self) -> None:
        code = """
            import logging, sys, uuid
            from dataclasses import dataclass
            from typing import Annotated, TypedDict
            from langgraph.checkpoint.memory import InMemorySaver
            from langgraph.graph import StateGraph
            from langgraph.graph.message import add_messages
            from langchain_core.messages import HumanMessage
            from agentstate_reducer import MessageReducer
            from agentstate_reducer.langgraph import ReducingSaver

            @dataclass
            class Allowed: x: int
            @dataclass
            class Refused: x: int
            class State(TypedDict):
                messages: Annotated[list, add_messages]
                allowed: Allowed
                anything: object

            builder = StateGraph(State)
            builder.add_node("n", lambda s: {"allowed": Allowed(1), "anything": Refused(1)})
            builder.set_entry_point("n")
            bare = InMemorySaver()
            saver = ReducingSaver(bare, MessageReducer(2, 4)) if sys.argv[1] == "wrapped" else bare
            graph = builder.compile(checkpointer=saver)
            config = {"configurable": {"thread_id": "t"}}
            for i in range(6):
                graph.invoke({"messages": [HumanMessage(str(i))]}, config)
            values = graph.get_state(config).values
            print(len(values["messages"]), type(values["allowed"]).__name__,
                  type(values["anything"]).__name__)
        """

        def run(kind: str) -> list[str]:
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(code), kind],
                env={"LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                check=True,
            )
            return done.stdout.split()

        bare, wrapped = run("bare"), run("wrapped")
        assert bare[1:] == wrapped[1:]
        assert wrapped[1] == "Allowed"
        assert wrapped[2] != "Refused"
        assert int(bare[0]) == 6
        assert int(wrapped[0]) <= 4


class TestNamespaces:
    def test_the_namespace_is_what_the_config_says(self) -> None:
        assert memory_namespace(reducer(), {"configurable": {"memory_namespace": "x"}}) == "x"

    def test_the_key_can_be_chosen(self) -> None:
        chosen = MessageReducer(config=ReducerConfig(namespace_key="user"))
        assert memory_namespace(chosen, {"configurable": {"user": ("u", 1)}}) == ("u", 1)

    def test_without_one_it_is_the_threads(self) -> None:
        assert memory_namespace(reducer(), {"configurable": {"thread_id": "t"}}) == (
            "memories",
            "t",
        )

    @pytest.mark.parametrize("config", [None, {}, {"configurable": None}])
    def test_without_a_thread_there_is_none(self, config: Any) -> None:
        assert memory_namespace(reducer(), config) is None


class TestApplyReducer:
    def test_it_returns_a_copy_and_calls_the_hooks(self) -> None:
        hook = Remember()
        checkpoint = {"id": "1", "channel_values": {"messages": turns(3), "x": 1}}
        config = {"configurable": {"thread_id": "t"}}
        reduced = apply_reducer(reducer(hook), checkpoint, config)
        assert reduced == {
            "id": "1",
            "channel_values": {"messages": turns(1, start=2), "x": 1},
        }
        assert len(checkpoint["channel_values"]["messages"]) == 6  # type: ignore[index]
        assert hook.batches == [(texts(turns(2)), ("memories", "t"))]

    @pytest.mark.parametrize(
        "values", [{}, {"messages": []}, {"messages": [human("x")]}, {"messages": "text"}]
    )
    def test_it_returns_the_checkpoint_when_nothing_is_pruned(self, values: Any) -> None:
        checkpoint = {"channel_values": values}
        assert apply_reducer(reducer(), checkpoint, None) is checkpoint
        assert apply_reducer(None, checkpoint, None) is checkpoint


class TestPassingThrough:
    async def test_every_call_goes_to_the_inner_saver(self) -> None:
        one = reducer()
        inner = ReducingSaver(InMemorySaver(), one)
        saver = ReducingSaver(inner, one)
        run = Run(saver)
        run.say(*turns(1))
        await run.asay(*turns(2, start=1))
        config: Any = {"configurable": {"thread_id": "t"}}
        found = await saver.aget_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"]["messages"] == turns(1, start=2)
        assert [t async for t in saver.alist(config)] == list(saver.list(config))
        assert "passthrough" in repr(saver)
        assert "reducing" in repr(inner)

    def test_an_allowlist_goes_through(self) -> None:
        class Stricter(InMemorySaver):
            def with_allowlist(self, extra: Any) -> Any:
                return copy.copy(self) if extra else self

        inner = Stricter()
        saver: Any = ReducingSaver(inner, reducer())
        assert saver.with_allowlist(set()) is saver
        strict = saver.with_allowlist({("a", "b")})
        assert type(strict) is type(saver)
        assert strict.inner is not inner
        assert strict._core is saver._core
