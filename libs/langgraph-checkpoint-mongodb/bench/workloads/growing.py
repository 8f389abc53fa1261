"""Values that grow: chats of many turns, their history, and delta channels beside them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from bench.workloads._base import Stage, expect, text, thread

MESSAGE = 500  # characters
POINTS = 10  # of a plot of bytes over turns


def appended(messages: list[Any], writes: Sequence[list[Any]]) -> Any:
    """Reduce writes of messages to all messages."""
    return add_messages(messages, [message for write in writes for message in write])


class Conversation(TypedDict):
    """A chat whose messages are a plain list."""

    messages: Annotated[list[Any], add_messages]


class DeltaConversation(TypedDict):
    """A chat whose messages are rebuilt from pending writes, with LangGraph's own snapshots."""

    messages: Annotated[list[Any], DeltaChannel(appended, list)]


class Talk:
    """A chat that goes on, each turn a question and an answer of 500 characters.

    Args:
        stage: Where it runs.
        state: `Conversation` or `DeltaConversation`.
        name: Its thread's name.
        with_ids: Whether messages have ids already, which `add_messages` gives them otherwise.
    """

    def __init__(self, stage: Stage, state: type, name: str, *, with_ids: bool = False) -> None:
        builder: Any = StateGraph(state)
        builder.add_node("reply", stage.face.node(self._reply))
        builder.add_edge(START, "reply")
        self._graph = builder.compile(checkpointer=stage.face.saver)
        self._stage, self._with_ids = stage, with_ids
        self.config = thread(name)
        self.turns = 0

    async def go_on(self, turns: int) -> None:
        """Talk for so many turns more."""
        for _ in range(turns):
            question = HumanMessage(text(MESSAGE, -self.turns), id=self._id(2 * self.turns))
            await self._stage.face.invoke(self._graph, {"messages": [question]}, self.config)
            self.turns += 1

    async def measured(self, turns: int) -> dict[str, float]:
        """Talk for so many turns, and return what one took, also at points on the way."""
        figures: dict[str, float] = {}
        empty, each = self._stage.stored(), turns // POINTS
        with self._stage.meter.measure() as span:
            for _ in range(POINTS):
                with self._stage.meter.measure() as some:
                    await self.go_on(each)
                figures[f"point_sent_{self.turns}"] = some.sent / each
        return {
            "commands_per_turn": span.commands / turns,
            "requests_per_turn": span.requests / turns,
            "sent_per_turn": span.sent / turns,
            "received_per_turn": span.received / turns,
            "stored_per_turn": (self._stage.stored() - empty) / turns,
            "ms_per_turn": span.seconds * 1000 / turns,
            "cpu_ms_per_turn": span.cpu_seconds * 1000 / turns,
            **figures,
        }

    def _reply(self, state: Any) -> Any:
        number = len(state["messages"])
        return {"messages": [AIMessage(text(MESSAGE, number), id=self._id(number))]}

    def _id(self, number: int) -> str | None:
        return str(uuid.UUID(int=number)) if self._with_ids else None


class Chat:
    """W2 and W2L: a chat.

    Args:
        turns: How many, a multiple of `POINTS`.
        quick: The same in the small size.
    """

    def __init__(self, turns: int, quick: int) -> None:
        self._turns, self._quick = turns, quick

    async def run(self, stage: Stage) -> dict[str, float]:
        turns = stage.size(self._turns, self._quick)
        return await Talk(stage, Conversation, "chat").measured(turns)


class History:
    """W11: every checkpoint of a chat, newest first, as `get_state_history` reads them."""

    async def run(self, stage: Stage) -> dict[str, float]:
        turns = stage.size(200, 10)
        talk = Talk(stage, Conversation, "chat")
        await talk.go_on(turns)
        root = {"configurable": {**talk.config["configurable"], "checkpoint_ns": ""}}
        with stage.meter.measure() as span:
            lengths = [
                len(found.checkpoint["channel_values"].get("messages", ()))
                async for found in stage.face.list(root)
            ]
        expect(
            set(lengths) == set(range(2 * turns + 1)) and lengths == sorted(lengths, reverse=True),
            "history is not whole",
        )
        return {
            "checkpoints": len(lengths),
            "commands": span.commands,
            "requests": span.requests,
            "received": span.received,
            "ms": span.seconds * 1000,
            "cpu_ms": span.cpu_seconds * 1000,
        }


class BesideDelta:
    """W13: the chat of W2 with a plain list, and with a delta channel."""

    async def run(self, stage: Stage) -> dict[str, float]:
        turns = stage.size(200, 10)
        figures: dict[str, float] = {}
        points: dict[str, float] = {}
        for name, state in (("list", Conversation), ("delta", DeltaConversation)):
            # Without ids a delta channel would give other ones each time it is rebuilt.
            talk = Talk(stage, state, name, with_ids=True)
            for figure, value in (await talk.measured(turns)).items():
                if figure.startswith("point_"):
                    points[figure.replace("point", f"point_{name}")] = value
                else:
                    figures[f"{name}_{figure}"] = value
            await talk.go_on(turns // 8)  # away from a snapshot, which is read as any value
            for figure, value in (await self._read(stage, talk)).items():
                figures[f"{name}_read_{figure}"] = value
        return figures | points

    async def _read(self, stage: Stage, talk: Talk) -> dict[str, float]:
        """Measure how the messages are read, as LangGraph does before a turn."""
        times = []
        for _ in range(stage.size(20, 3)):
            with stage.meter.measure() as span:
                found = await stage.face.get_tuple(talk.config)
                messages = found.checkpoint["channel_values"].get("messages")
                if messages is None:
                    messages = await self._rebuilt(stage, found.config)
                messages = getattr(messages, "value", messages)  # of a snapshot
            expect(len(messages) == 2 * talk.turns, f"{len(messages)} messages were read")
            times.append(span.seconds)
        return {"commands": span.commands, "received": span.received, "ms": min(times) * 1000}

    async def _rebuilt(self, stage: Stage, config: Any) -> Any:
        began = (await stage.face.history(config, "messages"))["messages"]
        seed = began.get("seed")
        writes = [write[-1] for write in began["writes"]]
        return appended(getattr(seed, "value", seed) or [], writes)
