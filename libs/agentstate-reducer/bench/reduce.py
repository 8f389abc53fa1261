"""How long one `reduce` takes: this version, 0.5.0, and LangChain's `trim_messages`.

Run `uv run python bench/reduce.py`; lengths may follow. 0.5.0 is installed into a folder that is
removed again. Each number is the best of several calls, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LENGTHS = (100, 1_000, 10_000, 100_000)
LOW, HIGH = 10, 20
TOOLS_EVERY = 5
LONGEST_SECONDS = 1.0
PROJECT = Path(__file__).parents[1]


def chat(length: int) -> list[Any]:
    """Return a chat in which each fifth turn calls a tool."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    messages: list[Any] = []
    turn = 0
    while len(messages) < length:
        messages.append(HumanMessage(f"question {turn}", id=f"q{turn}"))
        if turn % TOOLS_EVERY == 0:
            call = {"name": "look", "args": {"at": turn}, "id": f"c{turn}"}
            messages.append(AIMessage("", tool_calls=[call], id=f"u{turn}"))
            messages.append(ToolMessage("found", tool_call_id=f"c{turn}", id=f"r{turn}"))
        messages.append(AIMessage(f"answer {turn}", id=f"a{turn}"))
        turn += 1
    return messages


def reducer() -> Callable[[list[Any]], Any]:
    from agentstate_reducer import MessageReducer

    return MessageReducer(min_messages=LOW, max_messages=HIGH).reduce


def trimmer() -> Callable[[list[Any]], Any]:
    from langchain_core.messages import trim_messages

    return lambda messages: trim_messages(
        messages, max_tokens=HIGH, token_counter=len, start_on="human", strategy="last"
    )


def best(function: Callable[[list[Any]], Any], messages: list[Any]) -> float:
    """Return the milliseconds of the fastest of some calls."""
    taken: list[float] = []
    end = time.perf_counter() + LONGEST_SECONDS
    while not taken or (len(taken) < 20 and time.perf_counter() < end):
        start = time.perf_counter()
        function(messages)
        taken.append(time.perf_counter() - start)
    return min(taken) * 1000


def measure(what: str, lengths: list[int]) -> None:
    function = trimmer() if what == "trim_messages" else reducer()
    print(json.dumps([best(function, chat(length)) for length in lengths]))


def times(what: str, lengths: list[int], path: Path) -> list[float]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", what, *map(str, lengths)],
        env={**os.environ, "PYTHONPATH": str(path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[float] = json.loads(done.stdout)
    return found


def main(lengths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        install = ["pip", "install", "--quiet", "--no-deps", "--target", folder]
        uv = os.environ.get("UV", "uv")  # `uv run` says where it is
        subprocess.run([uv, *install, "agentstate-reducer==0.5.0"], check=True)
        columns = {
            "this version": times("this version", lengths, PROJECT),
            "0.5.0": times("0.5.0", lengths, Path(folder)),
            "trim_messages": times("trim_messages", lengths, PROJECT),
        }
    print(f"| ms a call, window {LOW} to {HIGH} |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for i, length in enumerate(lengths):
        row = " | ".join(f"{column[i]:,.2f}" for column in columns.values())
        print(f"| {length:,} messages | {row} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], [int(length) for length in sys.argv[3:]])
    else:
        main([int(length) for length in sys.argv[1:]] or list(LENGTHS))
