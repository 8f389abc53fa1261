"""A checkpoint of the past that cannot be read does not stop the thread."""

import asyncio
import logging

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver


class Damaged(InMemorySaver):
    """Lists the newest checkpoint and raises at the one before it."""

    def list(self, *args, **kwargs):
        yield next(super().list(*args, **kwargs))
        raise LookupError("a value was not found")

    async def alist(self, *args, **kwargs):
        for stored in self.list(*args, **kwargs):
            yield stored


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_damaged_checkpoint_does_not_fail_the_next_save(kind, caplog):
    inner, got = Damaged(), []
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    settings = ReducerConfig(
        min_messages=2, max_messages=4, on_prune=[lambda messages, _: got.extend(messages)]
    )

    def put(saver, config, count):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {
            "messages": [HumanMessage(f"q{i}", id=f"q{i}") for i in range(count)]
        }
        checkpoint["channel_versions"] = {"messages": f"{count}"}
        args = (config, checkpoint, {}, {"messages": f"{count}"})
        return saver.put(*args) if kind == "sync" else asyncio.run(saver.aput(*args))

    for count in (1, 2):
        config = put(inner, config, count)
    with caplog.at_level(logging.WARNING):
        put(ReducingSaver(inner, MessageReducer(config=settings)), config, 6)
    newest = next(InMemorySaver.list(inner, {"configurable": {"thread_id": "t"}}))
    assert len(newest.checkpoint["channel_values"]["messages"]) == 2
    assert [message.content for message in got] == ["q0", "q1", "q2", "q3"]
    assert "cannot be read" in caplog.text
