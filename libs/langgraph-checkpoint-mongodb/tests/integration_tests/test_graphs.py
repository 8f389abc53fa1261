"""Graphs with 17 MB of state, paused, and resumed by another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.face import Face, Kind, MakeFace
from tests.integration_tests.large_graphs import DOCS, SENT, TOOL_RESULT, WAYS, compiled, digest
from tests.support import CommandCounter, thread

LIBRARY = Path(__file__).parents[2]
INPUTS: dict[str, dict[str, Any]] = {"input": {"docs": DOCS, "tool_result": TOOL_RESULT}}
EXPECTED = {way: [digest(DOCS), digest(TOOL_RESULT)] for way in WAYS}
EXPECTED["sends"] = sorted(digest(one) for one in SENT)


def start(face: Face, way: str) -> None:
    """Run a thread until it pauses with the 17 MB in its state."""
    face.invoke(compiled(face, way), INPUTS.get(way, {"received": []}), thread(way))


def resume_elsewhere(uri: str, db_name: str, kind: Kind) -> dict[str, list[str]]:
    """Resume all threads in a fresh process; what their states then hold."""
    command = [sys.executable, "-m", "tests.integration_tests.large_graphs", uri, db_name, kind]
    done = subprocess.run(command, cwd=LIBRARY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    digests: dict[str, list[str]] = json.loads(done.stdout)
    return digests


def test_seventeen_megabytes_are_resumed_in_a_fresh_process(
    face: Face, mongodb_uri: str, database: Database[dict[str, Any]]
) -> None:
    for way in WAYS:
        start(face, way)
    assert resume_elsewhere(mongodb_uri, database.name, face.kind) == EXPECTED


@pytest.mark.parametrize("way", WAYS)
def test_every_step_of_such_a_thread_is_read_whole(face: Face, way: str) -> None:
    start(face, way)
    large = {"docs": DOCS, "tool_result": TOOL_RESULT}
    seen = set()
    for row in face.list(thread(way)):
        written = [(channel, value) for _, channel, value in row.pending_writes or []]
        for channel, value in (*row.checkpoint["channel_values"].items(), *written):
            if channel in large:
                assert value == large[channel]
                seen.add(channel)
            elif channel == "__start__" and way == "input":
                assert value == large
                seen.add(channel)
            elif channel == "__pregel_tasks" and isinstance(value, list) and value:
                assert [send.arg["tool_result"] for send in value] == SENT
                seen.add(channel)
    assert seen == SEEN[way]


SEEN = {
    "two nodes": {"docs", "tool_result"},
    "one node": {"docs", "tool_result"},
    "input": {"__start__", "docs", "tool_result"},
    "sends": {"__pregel_tasks"},
}


def test_the_large_channels_are_sent_twice_and_no_more(make_face: MakeFace) -> None:
    counter = CommandCounter()
    face = make_face(client_kwargs={"event_listeners": [counter]})
    with counter.recording():
        start(face, "two nodes")
        face.invoke(compiled(face, "two nodes"), None, thread("two nodes"))
    sent = sum(command.size for command in counter.commands)
    # As a node's pending write, and as the channel's value.
    assert sent < 2 * (len(DOCS) + len(TOOL_RESULT)) + 100_000
