"""The process that runs workloads for one peer and one face.

It answers each JSON line on standard input (a `Job`) by one JSON line. Standard output
is kept for answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from typing import Any, TextIO

from bench.faces import run
from bench.job import Job
from bench.meter import Meter, RelayStats
from bench.peers import open_peer, versions
from bench.workloads import WORKLOADS, Stage


async def perform(peer: str, face: str, job: Job) -> dict[str, float]:
    """Run one workload on a fresh database and return its figures."""
    workload = WORKLOADS[job.workload]
    relay = RelayStats(job.control) if job.control else None
    try:
        async with open_peer(peer, face, job.uri) as opened:
            meter = Meter(opened.commands, relay)
            stage = Stage(opened.face, meter, opened.stored, opened.multiply, job.quick)
            return await workload.run(stage)
    finally:
        if relay:
            relay.close()


def answer(peer: str, face: str, line: str) -> dict[str, Any]:
    """Do what one line asks; an error becomes part of the answer."""
    job = Job(**json.loads(line))
    try:
        work = perform(peer, face, job)
        return {"figures": run(work) if face == "sync" else asyncio.run(work)}
    except Exception as error:  # a peer's failure is a result of the comparison
        traceback.print_exc(file=sys.stderr)
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def main() -> None:
    """Serve jobs until standard input ends: ``_worker_entry.py PEER FACE``."""
    peer, face = sys.argv[1:3]
    answers: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a peer prints goes to standard error
    print(json.dumps({"versions": versions(peer), "pid": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(peer, face, line)), file=answers, flush=True)
