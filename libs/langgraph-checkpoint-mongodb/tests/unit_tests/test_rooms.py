"""The law of who may import whom, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph.checkpoint import mongodb

PACKAGE = Path(str(mongodb.__file__)).parent
NAME = "langgraph.checkpoint.mongodb"

FACES = "the faces"
MAY_IMPORT = {
    "_layout": {"_layout", "errors"},
    "_database": {"_database", "errors"},
    "_operations": {"_layout", "_database", "_operations", "errors"},
    "errors": set(),
    FACES: {"_layout", "_database", "_operations", "errors", FACES},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """Where a module of the package, by its dotted name, belongs."""
    first = module.removeprefix(NAME).lstrip(".").partition(".")[0]
    return first if first in MAY_IMPORT else FACES


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join([NAME, *(part for part in parts if part != "__init__")])


def imports(path: Path) -> Iterator[str]:
    """The full names of what a module imports; of `from x import y` both."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the room"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    ours = [name for name in imports(path) if name.startswith(NAME)]
    assert {room(name) for name in ours} <= MAY_IMPORT[room(name_of(path))]


@pytest.mark.parametrize(
    ("inside", "foreign"),
    [
        ("_layout", ("pymongo", "asyncio", "threading")),
        ("_database", ("langgraph", "langchain_core")),
    ],
)
def test_a_room_knows_nothing_of_what_is_not_its_own(inside: str, foreign: tuple[str, ...]) -> None:
    for path in (PACKAGE / inside).glob("*.py"):
        names = [name for name in imports(path) if not name.startswith(NAME)]
        assert not [name for name in names if name.partition(".")[0] in foreign], path.name


def test_no_imports_go_in_a_circle() -> None:
    known = {name_of(path) for path in MODULES}
    left = {
        name_of(path): {
            found
            for name in imports(path)
            for found in (name, name.rpartition(".")[0])
            if found in known and found not in (name_of(path), NAME)
        }
        for path in MODULES
    }
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert not left
