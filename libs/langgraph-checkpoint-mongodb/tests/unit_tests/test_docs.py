"""The documents speak of things that exist."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import pymongo.errors
import pytest

from langgraph.checkpoint import mongodb
from langgraph.checkpoint.mongodb import errors
from langgraph.checkpoint.mongodb._layout.states import STATES

LIBRARY = Path(__file__).resolve().parents[2]
REPOSITORY = LIBRARY.parents[1]
OPERATIONS = REPOSITORY / "docs" / "operations.md"
HERE = sorted(LIBRARY.glob("*.md"))
AROUND = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(?:> ?)*```.*?^ *(?:> ?)*```", re.M | re.S)

needs_repository = pytest.mark.skipif(
    not OPERATIONS.exists(),
    reason="the library stands alone here; its repository has the folder docs/",
)


def anchors(text: str) -> set[str]:
    """The headings' names in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in LINK.findall(FENCE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = document if not path else (document.parent / path).resolve()
        if not found.exists() or (anchor and anchor not in anchors(found.read_text())):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", HERE, ids=lambda path: path.name)
def test_links_of_the_library_resolve_inside_it(document: Path) -> None:
    assert broken_links(document) == []
    assert "](../" not in document.read_text(), "it is also shown where there is no repository"


@needs_repository
@pytest.mark.parametrize("document", AROUND, ids=lambda path: path.name)
def test_links_of_the_repository_resolve(document: Path) -> None:
    assert broken_links(document) == []


def error_table(document: Path) -> str:
    """The section on errors."""
    _, _, section = document.read_text().partition("\n## Errors\n")
    assert section, f"{document.name} has no section on errors"
    return section.partition("\n## ")[0]


@needs_repository
def test_every_error_is_in_the_operators_table_with_its_facts() -> None:
    table = error_table(OPERATIONS)
    for name in errors.__all__:
        assert f"`{name}`" in table
    for name, facts in re.findall(r"^\| `(\w+)` \(([^)]+)\)", table, re.M):
        documented = re.findall(r"`\.(\w+)`", facts)
        source = getattr(errors, name).__init__.__code__.co_varnames
        assert set(documented) <= set(source), name


@pytest.mark.parametrize(
    "document",
    [LIBRARY / "README.md", pytest.param(OPERATIONS, marks=needs_repository)],
    ids=lambda path: path.name,
)
def test_errors_in_the_documents_exist(document: Path) -> None:
    import asyncio

    for name in set(
        re.findall(r"`(?:[\w.]+\.)?(\w+Error|OperationFailure)\b", document.read_text())
    ):
        homes = (mongodb, pymongo.errors, builtins, asyncio)
        assert any(hasattr(home, name) for home in homes), name


def test_arguments_in_the_readme_are_those_of_both_savers() -> None:
    _, _, section = (LIBRARY / "README.md").read_text().partition("\n## Arguments\n")
    rows = re.findall(r"^\| `(\w+)` \| (\S+)", section.partition("\n## ")[0], re.M)
    assert rows
    for saver in (mongodb.MongoDBSaver, mongodb.AsyncMongoDBSaver):
        code = saver.__init__.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        assert {name for name, _ in rows} == {*names} - {"self", "client"}
        positional = dict(zip(names[2:], saver.__init__.__defaults__ or (), strict=False))
        defaults = {**positional, **(saver.__init__.__kwdefaults__ or {})}
        for name, default in rows:
            if name != "serde":
                assert str(defaults[name]) == default.strip("`"), name


@needs_repository
@pytest.mark.parametrize("room", ["_layout", "_database", "_operations", ""])
def test_the_design_names_every_file_of_a_room_and_no_other(room: str) -> None:
    _, _, section = (REPOSITORY / "docs" / "design.md").read_text().partition("\n## Rooms\n")
    begin = f"**`{room}`.**" if room else "**The faces.**"
    (paragraph,) = [one for one in section.split("\n\n") if one.startswith(begin)]
    files = {path.name for path in (Path(str(mongodb.__file__)).parent / room).glob("*.py")}
    outside = {"__init__.py"} if room else {"errors.py"}
    assert sorted(re.findall(r"`(\w+\.py)`", paragraph)) == sorted(files - outside)


@needs_repository
def test_the_life_of_a_checkpoint_is_told_in_the_same_words_in_code_and_design() -> None:
    _, _, section = (
        (REPOSITORY / "docs" / "design.md").read_text().partition("\n## The life of a checkpoint\n")
    )
    rows = re.findall(r"^\| (.+) \|$", section.partition("\n## ")[0], re.M)
    assert [tuple(row.split(" | ")) for row in rows[1:]] == [tuple(state) for state in STATES]
