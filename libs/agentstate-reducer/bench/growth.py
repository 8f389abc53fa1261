"""How much a long chat stores in MongoDB: bare, wrapped, and wrapped with `prune`.

    MONGODB_URI=mongodb://localhost:27017 uv run --group bench python bench/growth.py

writes `bench/growth.svg`, the plot in the README, and prints the figures. Without MONGODB_URI the
embedded server of the tests is used.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.graph import START, MessagesState, StateGraph
from pymongo import MongoClient

from agentstate_reducer import MessageReducer, ReducerConfig
from agentstate_reducer.langgraph import ReducingSaver

TURNS = 200
CHARACTERS = 1000
WINDOW = {"min_messages": 10, "max_messages": 20}

Take = Callable[[list[Any], Any], None]


def measure(uri: str, kind: str, turns: int = TURNS, every: int = 1) -> dict[int, int]:
    """Chat, and weigh what is stored now and then.

    Args:
        uri: Address of a MongoDB server.
        kind: `"bare"`, `"wrapped"` or `"pruned"`: wrapped, and `prune` called after each turn.
        turns: How many questions are asked and answered.
        every: After how many turns to weigh.

    Returns:
        Bytes of all documents, by turn.
    """
    with _database(uri) as (client, name):
        inner = MongoDBSaver(client, name)
        saver: Any = inner
        if kind != "bare":
            config = ReducerConfig(**WINDOW, on_prune=[lambda messages, namespace: None])
            saver = ReducingSaver(inner, MessageReducer(config=config))
        graph = _graph(saver)
        sizes = {}
        for n in range(1, turns + 1):
            question = HumanMessage(_text("question", n))
            graph.invoke({"messages": [question]}, {"configurable": {"thread_id": "chat"}})
            if kind == "pruned":
                saver.prune(["chat"])
            if n % every == 0:
                sizes[n] = _bytes(client, name)
        return sizes


def _graph(saver: Any) -> Any:
    def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage(_text("answer", len(state["messages"])))]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def _text(kind: str, n: int) -> str:
    return f"{kind} {n} ".ljust(CHARACTERS, ".")


@contextmanager
def _database(uri: str) -> Iterator[tuple[MongoClient[Any], str]]:
    name = f"growth_{uuid.uuid4().hex[:12]}"
    with MongoClient[Any](uri) as client:
        try:
            yield client, name
        finally:
            client.drop_database(name)


def _bytes(client: MongoClient[Any], name: str) -> int:
    """Return the BSON size of all documents of a database."""
    from bson.raw_bson import RawBSONDocument

    options = client.codec_options.with_options(document_class=RawBSONDocument)
    database = client.get_database(name, codec_options=options)
    return sum(
        len(document.raw)
        for collection in client[name].list_collection_names()
        for document in database[collection].find()
    )


def plot(measured: dict[str, dict[int, int]], path: Path) -> None:
    """Draw what was measured.

    Args:
        measured: Bytes by turn, by the curve's name.
        path: Where the picture goes.
    """
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, sizes in measured.items():
        axes.plot([*sizes], [size / 2**20 for size in sizes.values()], label=name)
    axes.set_xlabel("turns")
    axes.set_ylabel("stored, MiB")
    axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Measure, print and draw."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import servers

    names = {
        "bare": "MongoDBSaver alone",
        "wrapped": "in a ReducingSaver",
        "pruned": "in a ReducingSaver, prune after each turn",
    }
    with servers.mongodb() as uri:
        measured = {names[kind]: measure(uri, kind, every=5) for kind in names}
    for name, sizes in measured.items():
        picked = ", ".join(f"{n}: {sizes[n] / 2**10:,.0f}" for n in (10, 50, 100, 200))
        print(f"{name}: KiB after turn {picked}")
    plot(measured, Path(__file__).with_name("growth.svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
