"""Threads with values that grow."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from langgraph.checkpoint.mongodb._layout.plan import INLINE_VALUE_BYTES
from tests.face import Face
from tests.support import Chain

Data = Database[dict[str, Any]]

LARGE = 2 * INLINE_VALUE_BYTES

AES_KEY = b"0123456789abcdef"


def message(number: int, length: int = 600) -> dict[str, Any]:
    """Something like a message, of no bytes that another has."""
    return {"role": "human", "id": f"m{number}", "content": f"{number:05}" * (length // 5)}


def chat(face: Face, turns: int, *, thread_id: str = "t") -> Chain:
    """A conversation: each turn has a question and an answer."""
    chain = Chain(face, thread_id)
    chain.put({"messages": []})
    for turn in range(turns):
        chain.put({"question": turn})
        for number in (2 * turn, 2 * turn + 1):
            chain.put({"messages": [*chain.values["messages"], message(number)]})
    return chain


def many(count: int, size: int) -> dict[str, Any]:
    return {f"channel_{place:04}": f"{place:04}" * (size // 4) for place in range(count)}
