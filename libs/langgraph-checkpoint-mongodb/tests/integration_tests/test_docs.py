"""The examples and commands in the documents, run on the test's server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from langgraph.checkpoint.mongodb.operate.cli import app
from tests.face import MakeFace
from tests.integration_tests.test_migration import OldThread
from tests.support import CommandCounter

LIBRARY = Path(__file__).resolve().parents[2]
REPOSITORY = LIBRARY.parents[1]
OPERATIONS = REPOSITORY / "docs" / "operations.md"
LOCAL = "mongodb://localhost:27017"

needs_repository = pytest.mark.skipif(
    not OPERATIONS.exists(),
    reason="the library stands alone here; its repository has the folder docs/",
)


def blocks(document: Path, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)
    assert found
    return found


def run_as_a_script(code: str, uri: str, database: str) -> str:
    """Run an example as its reader would, on the test's server and in its database."""
    code = code.replace(LOCAL, uri).replace('"checkpoint_example"', f'"{database}"')
    code = code.replace("MongoDBSaver(client)", f'MongoDBSaver(client, "{database}")')
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_librarys_readme_runs(mongodb_uri: str, database: Database[dict[str, Any]]) -> None:
    code = "\n".join(blocks(LIBRARY / "README.md", "python"))

    printed = run_as_a_script(code, mongodb_uri, database.name)

    assert printed.splitlines() == [
        "['read 7,000,000 characters']",
        "['read 7,000,000 characters', 'read 10,000,000 characters']",
    ]
    assert database.checkpoints.distinct("thread_id") == ["1"]
    assert database.checkpoints.count_documents({}) == 5


@needs_repository
def test_the_repositorys_readme_runs(mongodb_uri: str, database: Database[dict[str, Any]]) -> None:
    (code,) = blocks(REPOSITORY / "README.md", "python")

    assert run_as_a_script(code, mongodb_uri, database.name) == "['worked']\n"

    large = database.checkpoint_channel_values.aggregate(
        [{"$group": {"_id": None, "bytes": {"$sum": {"$binarySize": "$value"}}}}]
    )
    assert next(iter(large))["bytes"] > 17_000_000


def index_commands() -> list[tuple[str, list[tuple[str, int]], dict[str, Any]]]:
    """Collection, keys and options of the `createIndex` commands for operators."""
    commands = []
    for block in blocks(OPERATIONS, "js"):
        for collection, arguments in re.findall(r"^db\.(\w+)\.createIndex\((.+)\)$", block, re.M):
            # A key without quotes is JavaScript, not JSON.
            quoted = re.sub(r"([$]?[a-zA-Z_]+):", r'"\1":', arguments)
            keys, *options = json.loads(f"[{quoted}]")
            named = {"unique": False, **options[0]} if options else {}
            commands.append((collection, [*keys.items()], named))
    return commands


@needs_repository
def test_the_commands_for_operators_make_every_index(
    make_face: MakeFace, database: Database[dict[str, Any]]
) -> None:
    for collection, keys, options in index_commands():
        database[collection].create_index(keys, **options)
    made = indexes(database)

    counter = CommandCounter()
    with counter.recording():
        make_face(client_kwargs={"event_listeners": [counter]}, ttl=2_592_000).setup()

    assert set(counter.names) == {"listIndexes"}
    assert indexes(database) == made


@needs_repository
def test_the_savers_make_no_index_that_operators_are_not_told_of(
    make_face: MakeFace, database: Database[dict[str, Any]]
) -> None:
    make_face(ttl=2_592_000).setup()

    told = {(collection, tuple(keys)) for collection, keys, _ in index_commands()}
    assert indexes(database) == told


def indexes(database: Database[dict[str, Any]]) -> set[tuple[str, tuple[tuple[str, int], ...]]]:
    """Collection and keys of every index but `_id`'s."""
    return {
        (collection, tuple(index["key"]))
        for collection in database.list_collection_names()
        for name, index in database[collection].index_information().items()
        if name != "_id_"
    }


@needs_repository
def test_the_recipes_for_retention_run(
    make_face: MakeFace, database: Database[dict[str, Any]], mongodb_uri: str
) -> None:
    section = OPERATIONS.read_text().partition("\n## Retention\n")[2].partition("\n## ")[0]
    recipes = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    assert len(recipes) == 2
    prelude = (
        "from pymongo import MongoClient\n"
        "from langgraph.checkpoint.base import empty_checkpoint\n"
        "from langgraph.checkpoint.mongodb import MongoDBSaver\n"
        f'client = MongoClient("{LOCAL}")\n'
        "saver = MongoDBSaver(client)\n"
        "def fill():\n"
        "    for thread in ('thread-1', 'thread-2'):\n"
        "        config = {'configurable': {'thread_id': thread, 'checkpoint_ns': ''}}\n"
        "        for step in range(12):\n"
        "            config = saver.put(config, empty_checkpoint(), {'step': step}, {})\n"
        "fill()\n"
    )

    run_as_a_script(
        "\n".join([prelude, recipes[0], "fill()", recipes[1]]), mongodb_uri, database.name
    )

    left = database.checkpoints.aggregate([{"$sortByCount": "$thread_id"}])
    expected = dict.fromkeys(["thread-1", "thread-2", "thread-1-backup"], 5)
    assert {row["_id"]: row["count"] for row in left} == expected


@needs_repository
def test_the_recipes_for_old_threads_and_for_the_tool_run(
    database: Database[dict[str, Any]], mongodb_uri: str
) -> None:
    recipes = []
    for name in ("Moving an old thread", "The operator's tool"):
        section = OPERATIONS.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        recipes += re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
    assert len(recipes) == 2
    old = OldThread(database, "thread-1")
    prelude = (
        "from pymongo import MongoClient\n"
        "from langgraph.checkpoint.mongodb import MongoDBSaver\n"
        f'client = MongoClient("{LOCAL}")\n'
        "saver = MongoDBSaver(client)\n"
    )
    told = "print(damaged, soon_full)"

    printed = run_as_a_script("\n".join([prelude, *recipes, told]), mongodb_uri, database.name)

    assert printed == "[] []\n"
    assert database.checkpoints.distinct("layout") == [2]
    assert database.checkpoints.count_documents({}) == len(old.configs)


@needs_repository
def test_the_tools_commands_are_those_of_the_operators_table() -> None:
    section = OPERATIONS.read_text().partition("\n## The operator's tool\n")[2]
    table = section.partition("\n## ")[0]
    told = set(re.findall(r"^\| `(\w+)[^`]*` \| (?!\d)", table, re.M))
    assert told == {command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
