"""What a user installs: the built distributions and what they ask for."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parents[2]
PACKAGE = "langgraph/checkpoint/mongodb"


def build(target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=LIBRARY, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    source = (LIBRARY / PACKAGE).rglob("*")
    expected = [
        path.relative_to(LIBRARY).as_posix()
        for path in source
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert sorted(names) == sorted(expected)
    assert f"{PACKAGE}/py.typed" in names


def test_other_langgraph_packages_can_share_the_namespace(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "langgraph/__init__.py" not in names
    assert "langgraph/checkpoint/__init__.py" not in names


def test_it_depends_on_the_base_class_and_the_driver_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    lines = [line.replace(" ", "") for line in metadata.get_all("Requires-Dist", [])]
    required = [line for line in lines if "extra==" not in line]
    assert sorted(required) == ["langgraph-checkpoint<5.0.0,>=3.0.0", "pymongo>=4.12"]
    tool = [line.partition(";")[0] for line in lines if "extra=='cli'" in line]
    assert sorted(tool) == ["rich>=14.0", "typer>=0.26"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Version"] == "0.6.0"


def test_the_source_distribution_builds_the_same_package(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert f"{PACKAGE}/py.typed" in names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= set(names)
