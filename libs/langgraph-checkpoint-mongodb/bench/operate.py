"""The operator's tool on a large collection: ``python -m bench.operate``, with MONGODB_URI set.

Makes a collection of 100,000 checkpoints in 2,000 threads, half of them by release 0.5.1 and half
by this one, and measures each command in a process of its own: time, commands, peak memory.
One thread of each kind is made by the real saver, turn by turn. The others are copies of its
documents under other thread ids: what the tool reads and does is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from bson import ObjectId
from pymongo import MongoClient
from rich.console import Console
from rich.table import Table

from langgraph.checkpoint.mongodb import MongoDBSaver, operate
from tests.face import Face
from tests.support import CommandCounter
from tests.upgrade_tests import today
from tests.upgrade_tests.rig import OldSaver, Rig

THREADS, TURNS = 2000, 13
"""A turn of the chat makes four checkpoints."""

TEXT = "a sentence of a chat as people have it, of some length. " * 16
COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")
_BATCH = 2000

Step = Callable[[MongoDBSaver], Any]
COMMANDS: dict[str, Step] = {
    "stats --quick": lambda saver: operate.stats(saver, quick=True),
    "stats": operate.stats,
    "indexes": operate.indexes,
    "show (split)": lambda saver: operate.show(saver, "split 7"),
    "show (old layout)": lambda saver: operate.show(saver, "chat 7"),
    "verify": lambda saver: _nothing([*operate.verify(saver)]),
    "migrate --dry-run": lambda saver: operate.migrate(saver, dry_run=True),
    "migrate": operate.migrate,
    "stats, all split": operate.stats,
    "verify, all split": lambda saver: _nothing([*operate.verify(saver)]),
    "prune --keep-last 10 --dry-run": lambda saver: operate.prune(
        saver, keep_last=10, dry_run=True
    ),
    "prune --keep-last 10": lambda saver: operate.prune(saver, keep_last=10),
    "prune --idle 90d": lambda saver: operate.prune(saver, idle=timedelta(days=90)),
}


def _nothing(findings: list[operate.Finding]) -> int:
    assert not findings, findings[:3]
    return 0


def main() -> None:
    """Make the collection, run the commands, say what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=THREADS, help="how many threads")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--database", default=f"bench_{uuid.uuid4().hex[:8]}")
    given = parser.parse_args()
    uri = os.environ.get("MONGODB_URI")
    if uri is None:
        sys.exit("Set MONGODB_URI to a MongoDB server: the embedded one says nothing of times.")
    if given.child:
        _child(uri, given.database, given.child)
        return
    with MongoClient[Any](uri) as client:
        try:
            _make(client, uri, given.database, given.threads)
            _report(client, uri, given.database)
        finally:
            client.drop_database(given.database)


def _make(client: MongoClient[Any], uri: str, name: str, threads: int) -> None:
    database = client[name]
    MongoDBSaver(client, name)
    with Rig.open() as rig, ExitStack() as closing:
        old = OldSaver(rig.release("0.5.1"), uri, name)
        old.make("chat")
        face = Face("sync", uri, name, closing=closing)
        for turn in range(TURNS):
            given: dict[str, Any] = {"messages": [["human", f"{turn} {TEXT}"]], "name": TEXT}
            if turn < TURNS - 2:
                old.invoke("chat", given)
            today.invoke(face, "chat-split", given)
    templates = {"chat": "chat", "chat-split": "split"}
    for template, prefix in templates.items():
        for collection in COLLECTIONS:
            documents = [*database[collection].find({"thread_id": template})]
            batch: list[dict[str, Any]] = []
            for number in range(threads // 2):
                key = {"thread_id": f"{prefix} {number}"}
                batch += [{**one, **key, "_id": ObjectId()} for one in documents]
                if len(batch) >= _BATCH:
                    database[collection].insert_many(batch, ordered=False)
                    batch = []
            if batch:
                database[collection].insert_many(batch, ordered=False)
            database[collection].delete_many({"thread_id": template})


def _report(client: MongoClient[Any], uri: str, name: str) -> None:
    console = Console()
    counts = {one: client[name][one].estimated_document_count() for one in COLLECTIONS}
    version = client.server_info()["version"]
    console.print(f"MongoDB {version}: {counts}", highlight=False)
    table = Table("command", "seconds", "commands", "peak MB", "at first")
    for command, figures in _measured(name):
        table.add_row(
            command,
            f"{figures['seconds']:.1f}",
            f"{figures['commands']:,}",
            f"{figures['mb']:.0f}",
            f"{figures['before']:.0f}",
        )
    console.print(table)


def _measured(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for command in COMMANDS:
        arguments = [sys.executable, "-m", "bench.operate", "--database", name, "--child", command]
        done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
        yield command, json.loads(done.stdout)


def _child(uri: str, name: str, command: str) -> None:
    counter = CommandCounter()
    with MongoClient[Any](uri, event_listeners=[counter]) as client:
        saver = MongoDBSaver(client, name, create_indexes=False)
        saver.checkpoint_collection.find_one()
        idle = _peak_mb()
        count = 0
        counter.on = True
        # Counted, and not kept: that would be the memory that is measured.
        started = counter.started

        def counted(event: Any) -> None:
            nonlocal count
            started(event)
            count += len(counter.commands)
            counter.commands.clear()

        counter.started = counted  # type: ignore[method-assign]
        began = time.perf_counter()
        COMMANDS[command](saver)
        seconds = time.perf_counter() - began
    figures = {"seconds": seconds, "commands": count, "mb": _peak_mb(), "before": idle}
    print(json.dumps(figures))


def _peak_mb() -> float:
    """The most memory that this program has had; not, as `getrusage` has it, its parent's."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match, "this needs Linux"
    return int(match[1]) / 1024


if __name__ == "__main__":
    main()
