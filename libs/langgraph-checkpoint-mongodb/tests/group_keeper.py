"""Ends the processes of its group, and removes a folder, when its owner is gone.

    python group_keeper.py OWNER FOLDER

For servers that tests kill and start again by themselves, and so hold by their ids. OWNER is the
process's id that started this one and holds the other end of its standard input.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

STOP_LIMIT_S = 3


def main(owner: int, folder: str) -> None:
    """Wait for the owner's end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.getppid() == owner and not select.select([sys.stdin], [], [], 0.5)[0]:
        pass
    group = os.getpgrp()
    os.killpg(group, signal.SIGTERM)
    time.sleep(STOP_LIMIT_S)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(group, signal.SIGKILL)  # this process, too


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
