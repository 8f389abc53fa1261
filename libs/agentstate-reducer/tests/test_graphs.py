"""Graphs of LangGraph's, run on a wrapped saver."""

import asyncio
import logging
import threading
from typing import Annotated, Any, TypedDict

import pytest
from chats import system, texts, turns
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, interrupt
from threads import Faulty, Remember, Run, reducing, stored

CONFIG: Any = {"configurable": {"thread_id": "t", "memory_namespace": ("memories", "kim")}}


def ids_of(messages: list[Any]) -> list[str]:
    return [m.id for m in messages]


def echo_graph(saver: Any, **options: Any) -> Any:
    """A graph that answers, with a step before and after that leaves the messages alone."""

    class State(MessagesState):
        count: int

    builder = StateGraph(State)
    builder.add_node("before", lambda s: {"count": s.get("count", 0) + 1})
    builder.add_node("answer", lambda s: {"messages": [AIMessage(f"re: {last(s)}")]})
    builder.add_node("after", lambda s: {"count": s["count"] + 1})
    builder.add_edge(START, "before")
    builder.add_edge("before", "answer")
    builder.add_edge("answer", "after")
    return builder.compile(checkpointer=saver, **options)


def last(state: Any) -> Any:
    return state["messages"][-1].content


def ask(graph: Any, *questions: str) -> None:
    for question in questions:
        graph.invoke({"messages": [HumanMessage(question)]}, CONFIG)


def expected(*questions: str) -> list[str]:
    return [text for q in questions for text in (q, f"re: {q}")]


NUMBERS = [str(i) for i in range(12)]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_conversation_stays_bounded_and_every_turn_is_handed_over(durability: Any) -> None:
    hook, inner = Remember(), InMemorySaver()
    graph = echo_graph(reducing(inner, hook))
    for question in NUMBERS:
        graph.invoke({"messages": [HumanMessage(question)]}, CONFIG, durability=durability)
    assert all(
        len(t.checkpoint["channel_values"].get("messages", [])) <= 4 for t in inner.list(None)
    )
    assert hook.handed + texts(stored(inner)) == expected(*NUMBERS)


def test_a_saver_that_stores_checkpoints_whole_stays_bounded_too() -> None:
    hook = Remember()
    with SqliteSaver.from_conn_string(":memory:") as inner:
        ask(echo_graph(reducing(inner, hook)), *NUMBERS)
        assert all(
            len(t.checkpoint["channel_values"].get("messages", [])) <= 4 for t in inner.list(CONFIG)
        )
        assert hook.handed + texts(stored(inner)) == expected(*NUMBERS)


async def test_async_runs_stay_bounded_too() -> None:
    hook = Remember()

    async def remember(messages: Any, namespace: Any) -> None:
        await asyncio.sleep(0)
        hook(messages, namespace)

    async with AsyncSqliteSaver.from_conn_string(":memory:") as inner:
        graph = echo_graph(reducing(inner, remember))
        for question in NUMBERS:
            await graph.ainvoke({"messages": [HumanMessage(question)]}, CONFIG)
        found = await inner.aget_tuple(CONFIG)
        assert found is not None
        assert hook.handed + texts(found.checkpoint["channel_values"]["messages"]) == expected(
            *NUMBERS
        )


async def test_hooks_do_not_hold_up_the_event_loop() -> None:
    loop_thread = threading.get_ident()
    seen: list[tuple[str, bool]] = []
    moved_on = asyncio.Event()

    def slow(messages: Any, namespace: Any) -> None:
        seen.append(("sync", threading.get_ident() == loop_thread))
        loop.call_soon_threadsafe(moved_on.set)

    async def on_loop(messages: Any, namespace: Any) -> None:
        await asyncio.wait_for(moved_on.wait(), 20)
        seen.append(("async", threading.get_ident() == loop_thread))

    loop = asyncio.get_running_loop()
    graph = echo_graph(reducing(InMemorySaver(), slow, on_loop))
    for question in "abc":
        await graph.ainvoke({"messages": [HumanMessage(question)]}, CONFIG)
    assert seen[:2] == [("sync", False), ("async", True)]


async def test_sync_runs_inside_a_running_loop_complete_async_hooks() -> None:
    hook = Remember()

    async def remember(messages: Any, namespace: Any) -> None:
        await asyncio.sleep(0)
        hook(messages, namespace)

    ask(echo_graph(reducing(InMemorySaver(), remember)), "a", "b", "c")
    assert hook.handed == expected("a", "b")


def test_summaries_are_stored_and_carried_from_run_to_run() -> None:
    asked: list[list[str]] = []

    def summarize(messages: list[Any]) -> str:
        asked.append(texts(messages))
        return f"summary {len(asked)}"

    hook, inner = Remember(), InMemorySaver()
    settings = {"summarize_fn": summarize, "inject_summary": True, "max_messages": 6}
    ask(echo_graph(reducing(inner, hook, min_messages=4, **settings)), *NUMBERS)
    messages = stored(inner)
    assert [type(m) for m in messages[:2]] == [HumanMessage, AIMessage]
    assert messages[0].content.endswith(f"summary {len(asked)}")
    assert hook.handed + texts(messages[2:]) == expected(*NUMBERS)
    assert all(batch[0].endswith(f"summary {n}") for n, batch in enumerate(asked) if n)


def tool_graph(saver: Any, rounds: int) -> Any:
    """An agent that calls tools a number of rounds before it answers."""

    def agent(state: MessagesState) -> Any:
        done = 0
        for message in reversed(state["messages"]):
            if isinstance(message, HumanMessage):
                break
            done += isinstance(message, ToolMessage)
        if done >= rounds:
            return {"messages": [AIMessage("done")]}
        call = {"name": "look", "args": {}, "id": f"{len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def tools(state: MessagesState) -> Any:
        call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]  # an AIMessage
        if call["id"] == "1":
            interrupt("may I?")
        return {"messages": [ToolMessage("found", tool_call_id=call["id"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else END
    )
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("new_process", [False, True])
def test_interrupt_and_resume_work_in_a_window_smaller_than_the_run(new_process: bool) -> None:
    hook, inner = Remember(), InMemorySaver()
    settings: dict[str, Any] = {"min_messages": 1, "max_messages": 3}
    graph = tool_graph(reducing(inner, hook, **settings), rounds=6)
    out = graph.invoke({"messages": [HumanMessage("find it")]}, CONFIG)
    assert out["__interrupt__"]
    if new_process:
        graph = tool_graph(reducing(inner, hook, **settings), rounds=6)
    out = graph.invoke(Command(resume="yes"), CONFIG)
    assert out["messages"][-1].content == "done"
    assert len(out["messages"]) == 14
    assert len(stored(inner)) <= 3
    assert stored(inner)[0].content == "find it"
    kept = ids_of(stored(inner))
    handed = [m for m in ids_of(out["messages"]) if m not in kept]
    assert len(hook.handed) == len(handed)


def test_a_removal_of_a_pruned_message_does_not_break_a_resume() -> None:
    """One of two parallel nodes removes old messages; the other interrupts, and is resumed."""

    def forget(state: MessagesState) -> Any:
        return {"messages": [RemoveMessage(id="m0"), RemoveMessage(id="m6")]}

    def ask_somebody(state: MessagesState) -> Any:
        return {"messages": [AIMessage(interrupt("what now?"), id="done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("forget", forget)
    builder.add_node("ask", ask_somebody)
    builder.add_edge(START, "forget")
    builder.add_edge(START, "ask")
    inner = InMemorySaver()
    graph = builder.compile(checkpointer=reducing(inner))
    graph.invoke({"messages": [HumanMessage(str(i), id=f"m{i}") for i in range(8)]}, CONFIG)
    assert ids_of(stored(inner)) == ["m6", "m7"]
    out = graph.invoke(Command(resume="done"), CONFIG)
    assert ids_of(out["messages"]) == ["m7", "done"]


def test_removals_in_a_run_reach_the_stored_messages() -> None:
    inner = InMemorySaver()
    builder = StateGraph(MessagesState)
    builder.add_node(
        "trim",
        lambda s: {
            "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("only", id="only")]
        },
    )
    builder.add_edge(START, "trim")
    graph = builder.compile(checkpointer=reducing(inner))
    graph.invoke({"messages": [HumanMessage(str(i)) for i in range(9)]}, CONFIG)
    assert texts(stored(inner)) == ["only"]


def test_messages_inserted_in_a_run_are_stored_where_they_stand() -> None:
    def instruct(existing: list[Any], new: Any) -> list[Any]:
        if isinstance(new, SystemMessage):
            return [new, *existing]
        return [*existing, *new]

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], instruct]

    inner = InMemorySaver()
    builder = StateGraph(State)
    builder.add_node("instruct", lambda s: {"messages": SystemMessage("be kind")})
    builder.add_edge(START, "instruct")
    graph = builder.compile(checkpointer=reducing(inner))
    graph.invoke({"messages": [HumanMessage(str(i)) for i in range(9)]}, CONFIG)
    assert texts(stored(inner)) == ["be kind", "7", "8"]


def test_time_travel_and_updates_hand_each_turn_over_once() -> None:
    hook, inner = Remember(), InMemorySaver()
    graph = echo_graph(reducing(inner, hook))
    ask(graph, "a", "b")
    before = graph.get_state(CONFIG).config
    ask(graph, "c", "d", "e")
    assert hook.handed == expected("a", "b", "c", "d")
    graph = echo_graph(reducing(inner, hook))
    then = {"configurable": {**CONFIG["configurable"], **before["configurable"]}}
    graph.update_state(then, {"messages": [HumanMessage("x")]}, as_node="answer")
    ask(graph, "y", "z")
    assert hook.handed[:8] == expected("a", "b", "c", "d")
    assert hook.handed[8:] == ["x", "y", "re: y"]


def test_a_subgraph_with_the_same_messages_hands_nothing_over_twice() -> None:
    hook, inner = Remember(), InMemorySaver()
    child = StateGraph(MessagesState)
    child.add_node("answer", lambda s: {"messages": [AIMessage(f"re: {last(s)}")]})
    child.add_edge(START, "answer")
    builder = StateGraph(MessagesState)
    builder.add_node("child", child.compile(checkpointer=True))
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=reducing(inner, hook))
    ask(graph, *"abcdef")
    assert sorted(hook.handed) == sorted(set(hook.handed))
    assert all(
        len(t.checkpoint["channel_values"].get("messages", [])) <= 4 for t in inner.list(None)
    )


def fold(state: list[Any], writes: Any) -> list[Any]:
    for write in writes:
        # It is typed to return one message or many; of a list it makes a list.
        state = add_messages(state, write)  # type: ignore[assignment]
    return state


class Deltas(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(fold, snapshot_frequency=3)]
    _summarization_event: Any


def graph_of_deltas(saver: Any, *nodes: Any) -> Any:
    builder = StateGraph(Deltas)
    before = START
    for number, node in enumerate(nodes):
        builder.add_node(str(number), node)
        builder.add_edge(before, str(number))
        before = str(number)
    return builder.compile(checkpointer=saver)


def answer(state: Any) -> Any:
    return {"messages": [AIMessage(f"re: {last(state)}")]}


@pytest.mark.parametrize("new_process", [False, True])
@pytest.mark.parametrize("steps", [1, 7])
def test_a_delta_channel_is_reduced_in_its_snapshots(new_process: bool, steps: int) -> None:
    hook, inner = Remember(), InMemorySaver()
    saver = reducing(inner, hook)
    loaded = []
    for number in range(30):
        saver = reducing(inner, hook) if new_process else saver
        graph = graph_of_deltas(saver, *[answer] * steps)
        ask(graph, f"question {number}")
        loaded.append(texts(graph.get_state(CONFIG).values["messages"]))
    said = []
    for number in range(30):
        said.append(f"question {number}")
        for _ in range(steps):
            said.append(f"re: {said[-1]}")
    assert sorted(hook.handed + loaded[-1]) == sorted(said)
    assert max(map(len, loaded)) <= 4 + 3 * 2 + steps


def test_a_hook_that_fails_gets_what_left_a_delta_channel_later() -> None:
    hook, inner = Remember(fail=3), InMemorySaver()
    for number in range(12):
        graph = graph_of_deltas(reducing(inner, hook), answer)
        ask(graph, f"question {number}")
    kept = texts(graph.get_state(CONFIG).values["messages"])
    assert hook.handed + kept == expected(*(f"question {number}" for number in range(12)))


def test_a_message_that_was_pruned_from_a_snapshot_can_be_removed_by_the_run() -> None:
    def remove_first(state: Any) -> Any:
        return {"messages": [RemoveMessage(id=state["messages"][0].id)]}

    inner = InMemorySaver()
    for number in range(10):
        graph = graph_of_deltas(reducing(inner), *[answer] * 5, remove_first)
        ask(graph, f"question {number}")
    assert texts(graph.get_state(CONFIG).values["messages"])[-1].endswith("question 9")


def test_a_fork_of_a_delta_channel_hands_nothing_over_again() -> None:
    # With ids: a write without them gets others at each replay.
    def say(graph: Any, config: Any, *said: str) -> None:
        for text in said:
            graph.invoke({"messages": [HumanMessage(text, id=text)]}, config)

    def node(state: Any) -> Any:
        text = f"re: {last(state)}"
        return {"messages": [AIMessage(text, id=text)]}

    for at in range(2, 8):
        hook, inner = Remember(), InMemorySaver()
        graph = graph_of_deltas(reducing(inner, hook), node)
        say(graph, CONFIG, *(f"question {number}" for number in range(at)))
        place = graph.get_state(CONFIG).config["configurable"]
        fork = {"configurable": {**CONFIG["configurable"], **place}}
        say(graph, CONFIG, *(f"question {number}" for number in range(at, at + 5)))
        graph = graph_of_deltas(reducing(inner, hook), node)
        say(graph, fork, "other")
        say(graph, CONFIG, *(f"other {number}" for number in range(6)))
        assert len(hook.handed) == len(set(hook.handed))
        kept = texts(graph.get_state(CONFIG).values["messages"])
        assert set(expected("other", *(f"other {n}" for n in range(6)))) <= {*kept, *hook.handed}


def test_a_thread_that_deepagents_summarized_is_left_alone_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def summarize(state: Any) -> Any:
        return {"_summarization_event": {"cutoff_index": 1, "summary_message": None}}

    hook, inner = Remember(), InMemorySaver()
    graph = graph_of_deltas(reducing(inner, hook), summarize, answer)
    with caplog.at_level(logging.WARNING):
        ask(graph, *NUMBERS)
    assert texts(graph.get_state(CONFIG).values["messages"]) == expected(*NUMBERS)
    assert hook.handed == []
    assert len([r for r in caplog.records if "deepagents has summarized" in r.message]) == 1


@pytest.mark.parametrize("value", ["text", {"a": 1}, [1, 2, 3, 4, 5, 6]])
def test_a_channel_that_holds_no_messages_is_stored_as_it_is(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class State(TypedDict):
        messages: Any

    inner = InMemorySaver()
    builder = StateGraph(State)
    builder.add_node("n", lambda s: {"messages": value})
    builder.add_edge(START, "n")
    graph = builder.compile(checkpointer=reducing(inner, Remember()))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            graph.invoke({"messages": value}, CONFIG)
    assert graph.get_state(CONFIG).values["messages"] == value
    assert len(caplog.records) == 1


def test_a_save_does_not_fail_because_of_a_token_counter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def count(message: Any) -> int:
        raise RuntimeError("no counting today")

    inner, hook = InMemorySaver(), Remember()
    saver = reducing(inner, hook, max_tokens=10, token_counter=count)
    with caplog.at_level(logging.WARNING):
        ask(echo_graph(saver), "a", "b", "c")
    assert texts(stored(inner)) == expected("a", "b", "c")
    assert "no counting today" in caplog.text


def test_a_step_without_messages_passes_the_checkpoint_on_as_it_is() -> None:
    seen: list[Any] = []

    class Sees(Faulty):
        def put(self, *args: Any) -> Any:
            seen.append(args)
            return super().put(*args)

    def fail(*args: Any) -> Any:
        raise AssertionError("called")

    inner = Sees()
    saver = reducing(inner, fail, summarize_fn=fail, token_counter=fail)
    checkpoint: Any = {
        "v": 2,
        "id": "1",
        "ts": "",
        "channel_values": {"messages": [HumanMessage(str(i)) for i in range(50)]},
        "channel_versions": {"messages": 1},
        "versions_seen": {},
        "updated_channels": None,
    }
    args: Any = ({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {})
    saver.put(*args)
    assert all(a is b for a, b in zip(seen[0], args, strict=True))
    assert inner.log == ["put"]


@pytest.mark.parametrize("new_runs", [False, True])
@pytest.mark.parametrize("work", [False, True])
def test_each_message_is_summarized_once_however_long_a_run_is(new_runs: bool, work: bool) -> None:
    asked: list[list[str]] = []

    def summarize(messages: list[Any]) -> str:
        asked.append(texts(messages))
        return f"summary {len(asked)}"

    hook, inner = Remember(), InMemorySaver()
    saver = reducing(
        inner,
        hook,
        min_messages=4,
        max_messages=8,
        summarize_fn=summarize,
        inject_summary=True,
        summary_message_factory=lambda text, n: [system(text)],
    )
    run = Run(saver)
    run.say(system("be kind", "s"))
    for message in turns(20):
        run = Run(saver) if new_runs else run
        run.say(message)
        if work:
            run.work()
        kept = texts(stored(inner))
        assert len(kept) <= 8
        assert kept[0] == "be kind"
        assert [t for t in kept if t.startswith("summary")] == [f"summary {len(asked)}"][
            : len(asked)
        ]
    said = [text for batch in asked for text in batch if not text.startswith("summary")]
    assert said == hook.handed
    assert said + texts(stored(inner))[2:] == texts(turns(20))
    assert len(asked) < 12
    for number, batch in enumerate(asked[1:], start=1):
        assert batch[0] == f"summary {number}"


def test_a_thread_with_an_outbox_is_read_and_gone_on_with_by_the_bare_saver() -> None:
    inner = InMemorySaver()
    ask(echo_graph(reducing(inner, Remember(fail=99))), "a", "b", "c")
    assert any("__agentstate" in w[1] for t in inner.list(CONFIG) for w in t.pending_writes or ())
    bare = echo_graph(inner)
    assert bare.get_state(CONFIG).values["count"] > 0
    ask(bare, "d")
    assert texts(stored(inner))[-2:] == ["d", "re: d"]


def test_what_is_stored_for_hooks_is_never_shown() -> None:
    inner = InMemorySaver()
    saver = reducing(inner, Remember(fail=99))
    graph = echo_graph(saver)
    ask(graph, "a", "b", "c")
    shown = [w for t in saver.list(CONFIG) for w in t.pending_writes or ()]
    assert shown
    assert not any("__agentstate" in str(w) for w in shown)
    assert not any("__agentstate" in str(s) for s in graph.get_state_history(CONFIG))
