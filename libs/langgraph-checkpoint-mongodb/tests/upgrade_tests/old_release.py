"""Runs inside the environment of a published release: a line of JSON in, a line out.

Started by `rig.py`; uses nothing but that release, its LangGraph and `graphs.py`. A request
is `[uri, database, options, function, arguments]`, where the functions are those of
`Commands`; the answer is `{"result": ...}` or `{"error": {"type", "message"}}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import graphs  # type: ignore[import-not-found]  # beside this script
from langchain_core.messages import HumanMessage
from langgraph.types import Command
from pymongo import AsyncMongoClient, MongoClient

from langgraph.checkpoint.mongodb import MongoDBSaver

RELEASE = version("langgraph-checkpoint-mongodb")


class Commands:
    """What the tests ask of the old release, all on one database."""

    def __init__(self, uri: str, database: str, *, aes_key: str | None = None) -> None:
        """Connect; with a key (16 characters) the state is encrypted."""
        self.uri, self.database = uri, database
        self.saver = MongoDBSaver(MongoClient(uri), db_name=database)
        if aes_key:
            from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

            # Set afterwards, as people did: 0.2.2 ignored the argument.
            self.saver.serde = EncryptedSerializer.from_pycryptodome_aes(key=aes_key.encode())

    def _graph(self, thread: str) -> Any:
        return graphs.graph_of(thread, self.saver)

    def _config(self, thread: str, **more: Any) -> Any:
        return {
            "configurable": {"thread_id": thread, "actor": RELEASE, **more},
            "metadata": graphs.metadata_of(RELEASE),
        }

    def make(self, threads: Sequence[str]) -> dict[str, Any]:
        """Make threads, each in the way that its name says; return how each looks."""
        for thread in threads:
            getattr(self, f"_make_{thread.split('-')[0]}")(thread)
            if thread.endswith("-forked"):
                self._fork(thread)
        return {thread: self.read(thread) for thread in threads}

    def _make_chat(self, thread: str) -> None:
        """Two finished turns."""
        for turn in ("hello", "and again"):
            message = HumanMessage(turn, id=turn)
            turn_input = {"messages": [message], "name": turn, "extra": (turn, 1, b"raw")}
            self._graph(thread).invoke(turn_input, self._config(thread))

    def _make_paused(self, thread: str) -> None:
        """One turn, stopped by an interrupt."""
        self._graph(thread).invoke({"name": thread, "log": ["in"]}, self._config(thread))

    _make_approval = _make_nested = _make_fanout = _make_paused

    def _make_flaky(self, thread: str) -> None:
        """One turn, stopped by an error."""
        try:
            self._graph(thread).invoke({"log": ["in"]}, self._config(thread, fail=True))
        except RuntimeError:
            return
        raise AssertionError("The node was told to fail and did not.")

    def _fork(self, thread: str) -> None:
        """Resume a paused thread; then a second branch from before its end, run to its end too."""
        graph, config = self._graph(thread), self._config(thread)
        graph.invoke(Command(resume="trunk"), config)
        before_end = next(s for s in graph.get_state_history(config) if s.next == ("end",))
        fork = graph.update_state(before_end.config, {"name": "branch"}, as_node="ask")
        checkpoint_id = fork["configurable"]["checkpoint_id"]
        graph.invoke(None, self._config(thread, checkpoint_id=checkpoint_id))

    def make_async(self, thread: str) -> dict[str, Any]:
        """Make a thread with the async saver that releases before 0.3 had, at its defaults."""
        import asyncio

        from langgraph.checkpoint.mongodb.aio import AsyncMongoDBSaver

        async def made() -> dict[str, Any]:
            client: AsyncMongoClient[Any] = AsyncMongoClient(self.uri)
            async with client:
                saver = AsyncMongoDBSaver(client, db_name=self.database)
                graph, config = graphs.graph_of(thread, saver), self._config(thread)
                await graph.ainvoke({"name": thread, "log": ["in"]}, config)
                state = await graph.aget_state(config, subgraphs=True)
                seen: dict[str, Any] = graphs.report(
                    state, [item async for item in graph.aget_state_history(config)]
                )
                return seen

        return asyncio.run(made())

    def read(self, thread: str) -> dict[str, Any]:
        """How this release sees a thread."""
        graph, config = self._graph(thread), {"configurable": {"thread_id": thread}}
        state = graph.get_state(config, subgraphs=True)
        seen: dict[str, Any] = graphs.report(state, graph.get_state_history(config))
        return seen

    def invoke(self, thread: str, input: Any, **config: Any) -> Any:
        """Run a thread on: `input` is the graph's, null goes on, `{"resume": ...}` resumes."""
        resumes = isinstance(input, dict) and set(input) == {"resume"}
        given = Command(**input) if resumes else input
        return graphs.plain(self._graph(thread).invoke(given, self._config(thread, **config)))

    def update(self, thread: str, values: Any, as_node: str | None = None) -> None:
        """Change a thread's state by hand."""
        self._graph(thread).update_state(self._config(thread), values, as_node=as_node)

    def list(self, thread: str | None, **options: Any) -> dict[str, Any]:
        """List checkpoints with the saver itself, and say how far that came."""
        config: Any = thread and {"configurable": {"thread_id": thread}}
        found, error = [], None
        try:
            for item in self.saver.list(config, **options):
                names = item.config["configurable"]
                found.append([names["thread_id"], names["checkpoint_id"]])
        except Exception as raised:
            error = describe_error(raised)
        return {"found": found, "error": error}

    def delete(self, thread: str) -> None:
        """Delete a thread."""
        self.saver.delete_thread(thread)


def describe_error(error: Exception) -> dict[str, str]:
    """An error, ready for JSON."""
    return {"type": type(error).__name__, "message": str(error)}


def main() -> None:
    """Answer requests until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    versions = {name: version(name) for name in ("langgraph", "langgraph-checkpoint", "pymongo")}
    print(json.dumps({"release": RELEASE, **versions}), file=answers, flush=True)
    place, commands = None, None
    for line in sys.stdin:
        uri, database, options, name, arguments = json.loads(line)
        try:
            if place != (uri, database, options):
                if commands:
                    commands.saver.client.close()
                place, commands = (uri, database, options), Commands(uri, database, **options)
            answer = {"result": getattr(commands, name)(**arguments)}
        except Exception as error:
            answer = {"error": describe_error(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
