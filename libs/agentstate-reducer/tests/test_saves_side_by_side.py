"""A graph and its subgraph save the same messages at the same time: each goes to a hook once."""

import asyncio
import threading
import time
from collections import Counter

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver


class Slow(InMemorySaver):
    def put(self, *args):
        time.sleep(0.05)
        return super().put(*args)

    async def aput(self, *args):
        await asyncio.sleep(0.05)
        return InMemorySaver.put(self, *args)


def arguments(namespace):
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {
        "messages": [HumanMessage(f"q{i}", id=f"q{i}") for i in range(8)]
    }
    checkpoint["channel_versions"] = {"messages": "1"}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    return config, checkpoint, {}, {"messages": "1"}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_namespaces_of_a_thread_that_save_together_hand_over_once(kind):
    got = Counter()
    settings = ReducerConfig(
        min_messages=2,
        max_messages=4,
        on_prune=[lambda messages, _: got.update(m.content for m in messages)],
    )
    saver = ReducingSaver(Slow(), MessageReducer(config=settings))
    namespaces = ["", "agent:1", "agent:2"]
    if kind == "sync":
        threads = [
            threading.Thread(target=saver.put, args=arguments(namespace))
            for namespace in namespaces
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:

        async def together():
            await asyncio.gather(*(saver.aput(*arguments(name)) for name in namespaces))

        asyncio.run(together())
    assert got == Counter({f"q{i}": 1 for i in range(6)})
