"""The README and the example do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

import agentstate_reducer
from agentstate_reducer import ReducerConfig

HERE = Path(__file__).parents[1]
README = (HERE / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {n}" for n in range(len(BLOCKS))])
def test_the_readme_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_readme_lists_every_setting_with_its_default() -> None:
    table = README.partition("## Settings")[2]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (\S+) \|", table, flags=re.MULTILINE))
    config = ReducerConfig()
    assert set(rows) == {f.name for f in fields(ReducerConfig)}
    for name, shown in rows.items():
        value = getattr(config, name)
        assert shown.strip("`").replace(",", "") in (str(value), f'"{value}"'), name


def test_the_public_names_are_there() -> None:
    published = {
        "MessageReducer",
        "ReducerConfig",
        "ReducerResult",
        "RememberFn",
        "Background",
        "DEFAULT_NAMESPACE_KEY",
        "resolve_token_counter",
        "default_summary_messages_factory",
    }
    assert published <= set(agentstate_reducer.__all__)
    assert all(hasattr(agentstate_reducer, name) for name in agentstate_reducer.__all__)


def test_the_example_finds_again_what_left_the_window() -> None:
    done = subprocess.run(
        [sys.executable, HERE / "examples" / "long_term_memory.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "in the thread" in done.stdout
    assert done.stdout.splitlines()[-1] == "You said: my sister lives in Lisbon"


def test_the_examples_hook_stores_a_repeated_delivery_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(HERE / "examples"))
    from langchain_core.messages import HumanMessage
    from long_term_memory import remember_in

    store = InMemoryStore()
    hook: Any = remember_in(store)
    messages = agentstate_reducer.PrunedMessages([HumanMessage("hello")], ["a key"])
    hook(messages, ("memories", "kim"))
    hook(messages, ("memories", "kim"))
    assert [item.value["said"] for item in store.search(("memories", "kim"))] == ["hello"]
