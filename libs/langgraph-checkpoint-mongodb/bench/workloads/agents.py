"""An agent as LangChain builds it, with tools and files."""

from __future__ import annotations

import operator
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

from bench.workloads._base import Stage, expect, text, thread

RESULT = 5000  # characters that a tool returns


class ScriptedModel(BaseChatModel):
    """Answers a question by three tool calls, and their results by a sentence."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Take any tools: the script knows them."""
        return self

    def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        number = len(messages)
        answer = AIMessage(text(200, number))
        if isinstance(messages[-1], HumanMessage):
            answer = AIMessage("", tool_calls=self._calls(number))
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)

    def _calls(self, number: int) -> list[ToolCall]:
        names = ("search", "search", "download")
        return [
            ToolCall(name=name, args={"number": number + at}, id=f"call-{number + at}")
            for at, name in enumerate(names)
        ]


@tool
def search(number: int) -> str:
    """Find something."""
    return text(RESULT, number)


@tool
def download(number: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Find something and keep it as a file."""
    found = ToolMessage(text(RESULT, number), tool_call_id=tool_call_id)
    return Command(update={"files": {f"{number}.txt": text(RESULT, -number)}, "messages": [found]})


class ToolAgent:
    """W12: an agent that calls three tools a turn, 5 kB each, and gains a file of 5 kB."""

    async def run(self, stage: Stage) -> dict[str, float]:
        # Takes a second to import, which no other workload should pay.
        from langchain.agents import AgentState, create_agent

        class Desk(AgentState):  # type: ignore[misc]
            files: Annotated[dict[str, str], operator.or_]

        turns = stage.size(100, 4)
        agent = create_agent(
            ScriptedModel(),
            tools=[search, download],
            state_schema=Desk,
            checkpointer=stage.face.saver,
        )
        empty = stage.stored()
        with stage.meter.measure() as span:
            for turn in range(turns):
                question = HumanMessage(text(100, turn))
                await stage.face.invoke(agent, {"messages": [question]}, thread("agent"))
        latest = (await stage.face.get_tuple(thread("agent"))).checkpoint["channel_values"]
        expect(len(latest["messages"]) == 6 * turns, f"{len(latest['messages'])} messages")
        expect(len(latest["files"]) == turns, f"{len(latest['files'])} files")
        state = {name: latest[name] for name in ("messages", "files")}
        own = len(JsonPlusSerializer().dumps_typed(state)[1]) / turns
        return {
            "own_size_per_turn": own,
            "sent_per_turn": span.sent / turns,
            "multiple_of_own": span.sent / turns / own,
            "received_per_turn": span.received / turns,
            "stored_per_turn": (stage.stored() - empty) / turns,
            "commands_per_turn": span.commands / turns,
            "requests_per_turn": span.requests / turns,
            "ms_per_turn": span.seconds * 1000 / turns,
            "cpu_ms_per_turn": span.cpu_seconds * 1000 / turns,
        }
