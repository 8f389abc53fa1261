"""Agents of ordinary size: what one step costs."""

from __future__ import annotations

from typing import TypedDict

from bench.workloads._base import Stage, looping, text, thread

FIXED = 330  # characters in each channel that stays
CHANGING = 300  # characters in each channel that changes


class Agent(TypedDict, total=False):
    """Eight small channels."""

    n: int
    notes: list[str]
    scratch: dict[str, str]
    plan: list[str]
    tools: list[str]
    profile: dict[str, str]
    mode: str
    answer: str


class SmallAgent:
    """W3: eight channels under 1 KB, three of which change in each step."""

    async def run(self, stage: Stage) -> dict[str, float]:
        steps = stage.size(100, 25)

        def step(state: Agent) -> Agent:
            n = state["n"] + 1
            return {"n": n, "notes": [text(CHANGING, n)], "scratch": {"last": text(CHANGING, -n)}}

        graph = looping(Agent, stage.face, stage.face.saver, step, steps)
        given: Agent = {
            "n": 0,
            "notes": [],
            "scratch": {},
            "plan": [text(FIXED, 1)],
            "tools": [text(FIXED, 2)],
            "profile": {"name": text(FIXED, 3)},
            "mode": "draft",
            "answer": text(FIXED, 4),
        }
        empty = stage.stored()
        with stage.meter.measure() as span:
            await stage.face.invoke(graph, given, thread("agent"))
        return {
            "commands_per_step": span.commands / steps,
            "requests_per_step": span.requests / steps,
            "sent_per_step": span.sent / steps,
            "received_per_step": span.received / steps,
            "stored_per_step": (stage.stored() - empty) / steps,
            "ms_per_step": span.seconds * 1000 / steps,
            "cpu_ms_per_step": span.cpu_seconds * 1000 / steps,
        }
