"""Servers end with the tests that started them, and a command that hangs in one is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

KEEPER = Path(__file__).parents[1] / "keeper.py"
LIMIT_S = 60

# Stands for the server: says that it runs, and where; ignores SIGTERM if it is told to.
SERVER = """
import faulthandler, os, pathlib, signal, sys, time
faulthandler.enable()
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
told = pathlib.Path(sys.argv[1])
told.with_suffix(".new").write_text(f"{os.getpid()} {os.getcwd()}")
told.with_suffix(".new").rename(told)
if sys.argv[2] == "ends":
    sys.exit("the server's last words")
def lingering():
    time.sleep(600)
lingering()
"""
# Stands for the tests: starts the keeper as `tests.embedded` does, and waits.
OWNER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
keeper = subprocess.Popen(
    [sys.executable, sys.argv[1], str(os.getpid()), sys.executable, "-c", *sys.argv[2:]],
    stdin=subprocess.PIPE, start_new_session=True,
)
forked = os.fork()  # a child that holds the keeper's pipe open
if not forked:
    time.sleep(5)
    os._exit(0)
time.sleep(600)
"""


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    if Path("/proc/self").exists():  # a zombie that nobody waits for has ended all the same
        return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Kept:
    """A server under a keeper, and the process that asked for it."""

    def __init__(self, owner: subprocess.Popen[str], told: Path) -> None:
        wait_until(told.exists)
        pid, folder = told.read_text().split(maxsplit=1)
        self.owner, self.pid, self.folder = owner, int(pid), Path(folder)

    def is_gone(self) -> bool:
        return not is_running(self.pid) and not self.folder.exists()


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Kept]:
    """A server whose owner will be ended."""
    command = [sys.executable, "-c", OWNER, str(KEEPER), SERVER, str(tmp_path / "told"), "plain"]
    owner = subprocess.Popen(command, text=True, start_new_session=True)
    yield Kept(owner, tmp_path / "told")
    owner.kill()
    owner.wait()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_server_ends_with_its_owner_however_that_ends(owned: Kept, how: int) -> None:
    assert not owned.is_gone()
    owned.owner.send_signal(how)
    owned.owner.wait(LIMIT_S)
    wait_until(owned.is_gone)


GROUP_OWNER = """
import os, pathlib, subprocess, sys, time
keeper = subprocess.Popen(
    [sys.executable, sys.argv[1], str(os.getpid()), sys.argv[2]],
    stdin=subprocess.PIPE, process_group=0,
)
sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
member = subprocess.Popen(sleeping, process_group=keeper.pid)
print(keeper.pid, member.pid, flush=True)
time.sleep(600)
"""


def test_a_group_of_servers_ends_with_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    command = [sys.executable, "-c", GROUP_OWNER, str(KEEPER.with_name("group_keeper.py"))]
    with subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert [is_running(pid) for pid in pids] == [True, True]
        owner.kill()
    wait_until(lambda: not folder.exists() and not any(map(is_running, pids)))


def keep(tmp_path: Path, kind: str) -> Kept:
    command = [sys.executable, str(KEEPER), str(os.getpid())]
    command += [sys.executable, "-c", SERVER, str(tmp_path / "told"), kind]
    keeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    return Kept(keeper, tmp_path / "told")


def test_a_server_that_is_let_go_of_ends_without_a_word(tmp_path: Path) -> None:
    kept = keep(tmp_path, "plain")
    _, said = kept.owner.communicate(timeout=LIMIT_S)
    assert said == ""
    assert kept.is_gone()


def test_a_keeper_that_is_told_to_end_ends_the_server(tmp_path: Path) -> None:
    kept = keep(tmp_path, "plain")
    kept.owner.terminate()
    kept.owner.wait(LIMIT_S)
    assert kept.is_gone()
    kept.owner.communicate()


def test_a_server_that_does_not_end_is_ended_and_its_stacks_are_shown(tmp_path: Path) -> None:
    kept = keep(tmp_path, "deaf")
    _, said = kept.owner.communicate(timeout=LIMIT_S)
    assert kept.is_gone()
    assert "did not end within" in said
    assert "in lingering" in said


def test_the_last_words_of_a_server_that_ends_by_itself_are_shown(tmp_path: Path) -> None:
    kept = keep(tmp_path, "ends")
    kept.owner.wait(LIMIT_S)
    assert kept.is_gone()
    _, said = kept.owner.communicate()
    assert "ended by itself, with status 1" in said
    assert "the server's last words" in said


HUNG = """
import threading
from tests.embedded_main import end_when_hung, watched

def waits_for_a_lock():
    threading.Event().wait()

quick = watched(lambda: None)
threading.Thread(target=watched(waits_for_a_lock), daemon=True).start()
threading.Thread(target=lambda: [quick() for _ in iter(int, 1)], daemon=True).start()
end_when_hung(0.2)
"""


def test_a_command_that_hangs_ends_the_server_and_is_named() -> None:
    pytest.importorskip("secantus", reason="SecantusDB has no build for Python 3.14; use 3.13")
    command = [sys.executable, "-c", HUNG]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=KEEPER.parents[1]
    )
    assert done.returncode == 1
    assert "has hung for 0.2 s" in done.stderr
    assert "in waits_for_a_lock" in done.stderr
