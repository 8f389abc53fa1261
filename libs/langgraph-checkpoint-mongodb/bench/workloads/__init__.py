"""The workloads, the same code for every peer."""

from __future__ import annotations

from bench.workloads._base import Stage, Workload
from bench.workloads.large import GraphInput, LargeChannels, UnchangingChannel
from bench.workloads.load import Concurrent, Ticking
from bench.workloads.reads import DeltaHistory, GetTuple, Growth
from bench.workloads.steps import Chat, SmallAgent

WORKLOADS: dict[str, Workload] = {
    "W1": LargeChannels(list),
    "W1s": LargeChannels(str),
    "W2": Chat(),
    "W3": SmallAgent(),
    "W4": GetTuple(),
    "W5": UnchangingChannel(),
    "W6": Concurrent(),
    "W7": GraphInput(),
    "W8": DeltaHistory(),
    "W9": Ticking(),
    "W10": Growth(),
}

__all__ = ["WORKLOADS", "Stage", "Workload"]
