"""Settings: what is refused when it is made, and what they do together."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chats import ai, human, result, system, turns
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

import agentstate_reducer
from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver
from agentstate_reducer.messages import read


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"max_messages": "20"}, TypeError, "max_messages must be a whole number"),
        ({"max_messages": 6.5}, TypeError, "float: 6.5"),
        ({"min_messages": None}, TypeError, "min_messages"),
        ({"max_tokens": True}, TypeError, "bool"),
        ({"preserve_first": "no"}, TypeError, "True or False"),
        ({"summarize_fn": "gpt"}, TypeError, "summarize_fn must be a function"),
        ({"token_counter": 4}, TypeError, "token_counter"),
        ({"pin": [1]}, TypeError, "pin"),
        ({"on_prune": "print"}, TypeError, "a list of functions"),
        ({"on_prune": [print, 3]}, TypeError, "a hook in on_prune"),
        ({"namespace_key": 3}, TypeError, "namespace_key"),
        ({"max_tokens": 9, "exclude_tools": "search"}, TypeError, "a list of names"),
        ({"summarize": len}, TypeError, "a function goes into summarize_fn"),
        ({"inject_summary": True}, ValueError, "without summarize"),
        ({"max_summary_tokens": 9}, ValueError, "without summarize"),
        ({"target_tokens": 50}, ValueError, "without max_tokens"),
        ({"keep_results": 3}, ValueError, "without max_tokens"),
        ({"min_messages": 20, "max_messages": None}, ValueError, "never prunes"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        ReducerConfig(**settings)


def test_a_reducer_that_would_never_prune_is_refused() -> None:
    with pytest.raises(ValueError, match="min_messages=20 never prunes without max_messages"):
        MessageReducer(20)


def test_marks_beside_a_config_are_refused() -> None:
    with pytest.raises(ValueError, match="give them to the config"):
        MessageReducer(2, 4, config=ReducerConfig())
    with pytest.raises(TypeError, match="ReducerConfig"):
        MessageReducer(config={"max_messages": 4})  # type: ignore[arg-type]


def test_one_hook_needs_no_list() -> None:
    got: list[Any] = []
    config = ReducerConfig(
        min_messages=2,
        max_messages=4,
        on_prune=lambda m, n: got.extend(m),  # type: ignore[arg-type]
    )
    MessageReducer(config=config).reduce(turns(3))
    assert got == turns(2)


def test_a_copy_has_the_settings_and_knows_what_was_handed_over() -> None:
    got: list[Any] = []
    config = ReducerConfig(min_messages=2, max_messages=4, on_prune=[lambda m, n: got.extend(m)])
    reducer = MessageReducer(config=config)
    reducer.reduce(turns(3))
    copied = copy.deepcopy(reducer)
    copied.config.max_messages = 9
    assert reducer.max_messages == 4
    copied.reduce(turns(6))
    assert got == turns(5)


def test_a_reducer_goes_to_another_process() -> None:
    reducer = MessageReducer(2, 4)
    sent = pickle.loads(pickle.dumps(reducer))
    assert sent.reduce(turns(3)).surviving == reducer.reduce(turns(3)).surviving


def test_the_version_is_that_of_the_package() -> None:
    assert agentstate_reducer.__version__ == importlib.metadata.version("agentstate-reducer")


def test_both_limits_hold_when_both_are_given() -> None:
    def kept(**settings: int) -> int:
        config = ReducerConfig(token_counter=lambda m: 10, **settings)
        return len(MessageReducer(config=config).reduce(turns(20)).surviving)

    assert kept(max_tokens=1000, max_messages=6, min_messages=6) == 6
    assert kept(max_tokens=40, max_messages=6, min_messages=6) == 4
    assert kept(max_tokens=1000) == 40  # the default of max_messages does not count beside tokens


def test_pinned_messages_stay_with_their_question_and_answer() -> None:
    chat = turns(10)
    config = ReducerConfig(min_messages=4, max_messages=6, pin=lambda m: m.get("id") == "q2")
    outcome = MessageReducer(config=config).reduce([system(), *chat])
    assert outcome.surviving == [system(), *turns(1, start=2), *turns(1, start=9)]
    assert outcome.pruned == [m for m in chat if m not in outcome.surviving]


def test_pinned_messages_stay_even_beyond_the_bound() -> None:
    config = ReducerConfig(min_messages=2, max_messages=4, pin=lambda m: m["role"] == "user")
    question = human("and now?", "q9")
    kept = MessageReducer(config=config).reduce([*turns(5), question]).surviving
    assert kept == [*turns(5), question]


def exchange(n: int, text: str, tool: str = "look") -> list[Any]:
    call = {"id": f"c{n}", "function": {"name": tool, "arguments": "{}"}}
    return [
        human(f"question {n}", f"q{n}"),
        {**ai("", f"u{n}"), "tool_calls": [call]},
        result(f"c{n}", text, f"r{n}"),
        ai(f"answer {n}", f"a{n}"),
    ]


def size(message: Any) -> int:
    return len(str(message.get("content")))


def test_old_results_are_shortened_before_turns_go() -> None:
    got: list[Any] = []
    chat = [m for n in range(6) for m in exchange(n, "x" * 1000, "keep" if n == 1 else "look")]
    config = ReducerConfig(
        max_tokens=4500,
        token_counter=size,
        keep_results=2,
        exclude_tools=["keep"],
        on_prune=[lambda m, n: got.extend(m)],
    )
    reducer = MessageReducer(config=config)
    outcome = reducer.reduce(chat)
    assert outcome.pruned == []
    assert [m["id"] for m in outcome.surviving] == [m["id"] for m in chat]
    cut = [m["id"] for m in outcome.surviving if "were removed here]" in m["content"]]
    assert cut == ["r0", "r2", "r3"]
    assert sum(map(size, outcome.surviving)) <= 4500
    assert outcome.shortened == got == [m for m in chat if m["id"] in cut]
    more = [m for n in range(6, 12) for m in exchange(n, "y" * 900)]
    second = reducer.reduce(outcome.surviving, more)
    ids = [m["id"] for m in got]
    assert len(ids) == len(set(ids))
    stays = [m for m in (*chat, *more) if m in second.surviving]
    assert {m["id"] for m in got} == {m["id"] for m in (*chat, *more) if m not in stays}


def test_what_the_model_has_not_seen_is_not_shortened() -> None:
    waiting = exchange(0, "x" * 1000)[:3]
    config = ReducerConfig(max_tokens=500, token_counter=size, keep_results=0)
    assert MessageReducer(config=config).reduce(waiting).surviving == waiting


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"image": {"format": "png", "source": {"bytes": "AAAA"}}},
    ],
)
def test_old_images_give_way_to_a_note(image: Any) -> None:
    chat = [{"role": "user", "content": [{"text": "see"}, image], "id": "i"}, *turns(1)]
    config = ReducerConfig(
        max_tokens=1, token_counter=lambda m: int("AAAA" in str(m)) * 2, keep_results=0
    )
    outcome = MessageReducer(config=config).reduce([*chat[:1], ai("a", "b"), *chat[1:]])
    assert outcome.surviving[0]["content"][0] == {"text": "see"}
    assert "an image or file was removed here" in outcome.surviving[0]["content"][1]["text"]
    assert outcome.shortened == chat[:1]


def test_langchain_results_are_shortened_in_a_copy() -> None:
    call = {"name": "look", "args": {}, "id": "c"}
    chat = [
        HumanMessage("q", id="1"),
        AIMessage("", tool_calls=[call], id="2"),
        ToolMessage("x" * 1000, tool_call_id="c", id="3"),
        AIMessage("a", id="4"),
    ]
    config = ReducerConfig(max_tokens=500, token_counter=lambda m: len(m.content), keep_results=0)
    kept = MessageReducer(config=config).reduce(chat).surviving
    assert isinstance(kept[2], ToolMessage)
    assert (read(kept[2]).answers, len(chat[2].content)) == (("c",), 1000)
    assert len(kept[2].content) < 300


TYPED = """
from typing import Any
from agentstate_reducer import Background, MessageReducer, PrunedMessages, ReducerConfig

def one(messages: PrunedMessages, namespace: tuple[str, str]) -> None:
    for key, message in zip(messages.keys, messages):
        print(key, message, namespace)

async def two(messages: list[Any], namespace: Any) -> None: ...

def dead(error: BaseException, messages: PrunedMessages, namespace: Any) -> None: ...

MessageReducer(config=ReducerConfig(
    on_prune=[one, two, Background(one)], max_attempts=3, on_dead_letter=dead
))
"""


def test_hooks_with_types_pass_a_type_checker(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    example = Path(__file__).parents[1] / "examples" / "long_term_memory.py"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file), str(example)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("key", ["messages", "dialogue"])
def test_a_messages_key_that_no_checkpoint_has_is_told(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    saver = ReducingSaver(InMemorySaver(), MessageReducer(0, 4), messages_key=key)
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage("yes")]})
    graph.add_edge(START, "answer")
    compiled = graph.compile(checkpointer=saver)
    for _ in range(3):
        compiled.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t"}})
    told = [r.getMessage() for r in caplog.records if "messages_key" in r.getMessage()]
    if key == "messages":
        assert told == []
    else:
        (text,) = told
        assert "no channel 'dialogue'" in text
        assert "but has messages;" in text
