"""The workloads, the same code for every peer."""

from __future__ import annotations

from bench.workloads._base import Stage, Workload
from bench.workloads.agents import ToolAgent
from bench.workloads.channels import SmallTogether, Sweep
from bench.workloads.growing import BesideDelta, Chat, History
from bench.workloads.large import GraphInput, LargeChannels, UnchangingChannel
from bench.workloads.load import Concurrent, ManyTasks, Ticking
from bench.workloads.reads import DeltaHistory, GetTuple, Growth
from bench.workloads.steps import SmallAgent

WORKLOADS: dict[str, Workload] = {
    "W1": LargeChannels(list),
    "W1s": LargeChannels(str),
    "W2": Chat(200, 10),
    "W2L": Chat(1000, 10),
    "W3": SmallAgent(),
    "W4": GetTuple(),
    "W4b": SmallTogether(),
    "W4c": Sweep(),
    "W5": UnchangingChannel(),
    "W6": Concurrent(),
    "W6b": ManyTasks(),
    "W7": GraphInput(),
    "W8": DeltaHistory(),
    "W9": Ticking(),
    "W10": Growth(),
    "W11": History(),
    "W12": ToolAgent(),
    "W13": BesideDelta(),
}

__all__ = ["WORKLOADS", "Stage", "Workload"]
