"""The pictures in docs/operations.md: ``python -m bench.operate_pictures ../../docs/operate``.

A few threads of days gone by, on MONGODB_URI or an embedded server, and the tool's own `--picture`.
"""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bson import ObjectId
from pymongo import MongoClient
from typer.testing import CliRunner

from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.checkpoint.mongodb.operate.cli import app
from tests.embedded import embedded_server
from tests.integration_tests.test_migration import OldThread
from tests.support import Chain

COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")


def main() -> None:
    """Fill a database, and save the pictures in the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    name = f"pictures_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        uri = os.environ.get("MONGODB_URI") or stack.enter_context(embedded_server())
        client = stack.enter_context(MongoClient[Any](uri))
        try:
            _fill(client, name)
            _run(uri, name, "stats", "--largest", "4", "--picture", str(folder / "stats.svg"))
            _run(uri, name, "show", "support-4711", "--picture", str(folder / "show.svg"))
        finally:
            client.drop_database(name)


def _run(uri: str, name: str, *arguments: str) -> None:
    result = CliRunner().invoke(app, ["--uri", uri, "--db", name, *arguments])
    assert result.exit_code == 0, result.output
    print(result.output)


def _fill(client: MongoClient[Any], name: str) -> None:
    saver, database = MongoDBSaver(client, name), client[name]
    for number in range(24):
        chain = Chain(saver, f"chat-{number:03}")
        for turn in range(2 + number):
            words = [f"a message {n} " * 40 for n in range(4 * turn + 1)]
            chain.put({"messages": words, "summary": f"turn {turn} " * 10})
        _days_ago(database, chain.config["configurable"]["thread_id"], number / 4)
    report = Chain(saver, "report-2026-10")
    for turn in range(5):
        report.put({"documents": [f"{n}" * 900_000 for n in range(2 * turn + 1)]})
    _days_ago(database, "report-2026-10", 12)
    OldThread(database, "support-4711")
    _days_ago(database, "support-4711", 3)


def _days_ago(database: Any, thread_id: str, days: float) -> None:
    """Let a thread have grown evenly over as many days."""
    now = datetime.now(UTC)
    for name in COLLECTIONS:
        documents = [*database[name].find({"thread_id": thread_id}).sort("_id", 1)]
        for place, document in enumerate(documents):
            at = now - timedelta(days=days * (1 - place / max(len(documents), 1)))
            database[name].delete_one({"_id": document["_id"]})
            id_ = ObjectId(ObjectId.from_datetime(at).binary[:4] + ObjectId().binary[4:])
            database[name].insert_one({**document, "_id": id_})


if __name__ == "__main__":
    main()
