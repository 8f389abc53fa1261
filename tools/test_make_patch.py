"""The patch is tried on a scratch repository with the upstream monorepo's layout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from make_patch import FOLDER, OURS, PatchError, git, make_patch

IDENTITY = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]


def repository(top: Path, files: dict[str, bytes]) -> Path:
    top.mkdir()
    git(top, "init", "--quiet")
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    commit(top)
    return top


def commit(top: Path) -> None:
    git(top, "add", "--all", "--force")
    git(top, *IDENTITY, "commit", "--quiet", "--message", "A state")


def tree_of(top: Path) -> str:
    """The folder's files with modes and contents, as git names them."""
    return git(top, "ls-tree", "-r", "HEAD", "--", FOLDER).decode()


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    files = {
        "README.md": b"the monorepo\n",
        "libs/langchain-mongodb/pyproject.toml": b"[project]\n",
        f"{FOLDER}/pyproject.toml": b'[project]\nversion = "0.5.1"\n',
        f"{FOLDER}/langgraph/checkpoint/mongodb/saver.py": b"old = True\n",
        f"{FOLDER}/langgraph/checkpoint/mongodb/gone.py": b"gone = True\n",
        f"{FOLDER}/tests/unit_tests/picture.png": bytes(range(256)),
        f"{FOLDER}/scripts/run.sh": b"#!/bin/sh\n",
    }
    return repository(tmp_path / "upstream", files)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    files = {
        "Makefile": b"ours alone\n",
        f"{FOLDER}/pyproject.toml": b'[project]\nversion = "0.6.0"\n',
        f"{FOLDER}/langgraph/checkpoint/mongodb/saver.py": b"new = True\r\nno newline at the end",
        f"{FOLDER}/langgraph/checkpoint/mongodb/py.typed": b"",
        f"{FOLDER}/.gitignore": b"*.bin\n",
        f"{FOLDER}/tests/ignored but tracked.bin": bytes(reversed(range(256))),
        f"{FOLDER}/tests/run.sh": b"#!/bin/sh\n",
    }
    top = repository(tmp_path / "ours", files)
    (top / FOLDER / "tests/run.sh").chmod(0o755)
    commit(top)
    return top


def apply(upstream: Path, patch: bytes) -> None:
    file = upstream.parent / "the.patch"
    file.write_bytes(patch)
    git(upstream, "apply", str(file))
    commit(upstream)


def test_the_applied_patch_makes_the_folders_equal(ours: Path, upstream: Path) -> None:
    apply(upstream, make_patch(ours, upstream))
    assert tree_of(upstream) == tree_of(ours)
    assert "100755" in tree_of(upstream)


def test_files_outside_the_folder_stay_as_they_are(ours: Path, upstream: Path) -> None:
    apply(upstream, make_patch(ours, upstream))
    assert (upstream / "README.md").read_bytes() == b"the monorepo\n"
    assert (upstream / "libs/langchain-mongodb/pyproject.toml").exists()
    assert not (upstream / "Makefile").exists()


def test_the_checkout_is_only_read(ours: Path, upstream: Path) -> None:
    before = sorted(path for path in upstream.rglob("*"))
    make_patch(ours, upstream)
    assert sorted(path for path in upstream.rglob("*")) == before
    assert git(upstream, "status", "--porcelain") == b""


def test_a_patch_of_equal_folders_is_empty(ours: Path, upstream: Path) -> None:
    apply(upstream, make_patch(ours, upstream))
    assert make_patch(ours, upstream) == b""


@pytest.mark.parametrize("side", ["ours", "upstream"])
def test_uncommitted_changes_are_refused(
    side: str, ours: Path, upstream: Path, request: pytest.FixtureRequest
) -> None:
    changed: Path = request.getfixturevalue(side)
    (changed / FOLDER / "new.py").write_text("new = 1\n")
    with pytest.raises(PatchError, match=r"(?s)commit or remove .*new\.py"):
        make_patch(ours, upstream)


def test_a_checkout_without_the_folder_is_refused(ours: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"README.md": b"another project\n"})
    with pytest.raises(PatchError, match=r"other has no libs/langgraph-checkpoint-mongodb"):
        make_patch(ours, other)


def test_a_path_that_is_no_repository_is_refused(ours: Path, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="not a git repository"):
        make_patch(ours, tmp_path)


def test_the_command_patches_with_this_repository(upstream: Path, tmp_path: Path) -> None:
    # A clone, as it is committed: the work tree of whoever runs the tests may be changing.
    clone = tmp_path / "clone"
    git(OURS, "clone", "--quiet", str(OURS), str(clone))
    shutil.copy(OURS / "tools" / "make_patch.py", clone / "tools" / "make_patch.py")
    patch = tmp_path / "out.patch"
    command = [sys.executable, str(clone / "tools/make_patch.py"), str(upstream)]
    subprocess.run([*command, "--output", str(patch)], check=True)
    apply(upstream, patch.read_bytes())
    assert tree_of(upstream) == tree_of(clone)
