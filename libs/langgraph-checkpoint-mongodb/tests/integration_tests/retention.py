"""Threads to remove checkpoints from, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from pymongo.database import Database

from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face
from tests.support import (
    Chain,
    checkpoint,
    insert_old_write,
    insert_whole,
    thread,
)

LARGE = "x" * 2 * INLINE_VALUE_BYTES

COLLECTIONS = ("checkpoints", "checkpoint_writes", "checkpoint_channel_values")

DB = Database[dict[str, Any]]


def all_of(thread_id: str = "t") -> RunnableConfig:
    """The config of a thread with all its namespaces."""
    return {"configurable": {"thread_id": thread_id}}


def split_thread(face: Face, _: DB, thread_id: str = "t", checkpoint_ns: str = "") -> list[Any]:
    """Four steps: `big` is written once, `doc` with every second step; a write at each."""
    chain = Chain(face, thread_id, checkpoint_ns)
    configs = []
    for step in range(4):
        changes: dict[str, Any] = {"n": step}
        if step == 0:
            changes["big"] = LARGE
        if step % 2 == 0:
            changes["doc"] = str(step) * len(LARGE)
        configs.append(chain.put(changes, metadata={"run_id": f"run {step // 2}"}))
        face.put_writes(configs[-1], [("n", step + 1)], f"task {step}", "~path")
    return configs


def whole_thread(_: Face, database: DB, thread_id: str = "t", checkpoint_ns: str = "") -> list[Any]:
    """The same as release 0.5.1 stores it."""
    config = thread(thread_id, checkpoint_ns)
    configs = []
    for step in range(4):
        doc = step // 2 * 2
        values = {"n": step, "big": LARGE, "doc": str(doc) * len(LARGE)}
        stored = checkpoint(values, {"n": step + 1, "big": 1, "doc": doc + 1})
        metadata = {"source": "loop", "step": step, "run_id": f"run {step // 2}"}
        config = insert_whole(database, config, stored, metadata)
        insert_old_write(
            database,
            config,
            task_id=f"task {step}",
            task_path="~path",
            idx=0,
            channel="n",
            value=step + 1,
        )
        configs.append(config)
    return configs


MakeThread = Callable[..., list[Any]]

both_layouts = pytest.mark.parametrize("make", [split_thread, whole_thread])


def steps(face: Face, config: RunnableConfig) -> list[int]:
    return [row.checkpoint["channel_values"]["n"] for row in face.list(config)]


def stored(database: DB, thread_id: str = "t") -> dict[str, int]:
    return {name: database[name].count_documents({"thread_id": thread_id}) for name in COLLECTIONS}


def value_names(database: DB, thread_id: str = "t") -> list[str]:
    found = database["checkpoint_channel_values"].find({"thread_id": thread_id})
    return sorted(f"{one['channel']} {int(one['version'][:32])}" for one in found)
