"""The process of the embedded server: SecantusDB, started as the tests need it.

python embedded_main.py ARGUMENTS OF SECANTUSDB ...
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import secantus.server
import secantus.transactions

COMMAND_LIMIT_S = 120

_at_work: dict[int, float] = {}


def watched(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that carries out a command, so that one that hangs is noticed."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        this = threading.get_ident()
        _at_work[this] = time.monotonic()
        try:
            return dispatch(*args, **kwargs)
        finally:
            del _at_work[this]

    return timed


def end_when_hung(limit_s: float) -> None:
    """Wait for a command that takes longer; then print the stacks of all commands, and exit."""
    while True:
        time.sleep(limit_s / 10)
        began = min([*_at_work.values()], default=time.monotonic())
        if time.monotonic() - began > limit_s:
            break
    sys.stderr.write(f"A command has hung for {limit_s:g} s. Commands at work:\n")
    frames = sys._current_frames()
    for thread in [*_at_work]:
        traceback.print_stack(frames[thread], limit=-12)
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    """Run SecantusDB with the command line's arguments."""
    faulthandler.enable()  # SIGABRT is answered with the stacks of all threads
    secantus.server.dispatch = watched(secantus.server.dispatch)
    threading.Thread(target=end_when_hung, args=[COMMAND_LIMIT_S], daemon=True).start()
    # It keeps the replies to this many writes for clients that repeat one. With 10,000, as it
    # comes, it sorts them all at each further write, and so spends most of a test run. A
    # repetition follows at once.
    secantus.transactions._RETRYABLE_RECORD_MAX = 500
    runpy.run_module("secantus", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
