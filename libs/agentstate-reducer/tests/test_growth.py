"""How much is stored."""

from __future__ import annotations

from typing import Any

import servers
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from threads import Remember, reducing

CONFIG: Any = {"configurable": {"thread_id": "t"}}
SIZE = 5_000
WINDOW = {"min_messages": 6, "max_messages": 6}


def chat(saver: Any, turns: int) -> None:
    """Ask questions of one size and get answers of that size."""

    def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage("a" * SIZE)]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    for _ in range(turns):
        graph.invoke({"messages": [HumanMessage("q" * SIZE)]}, CONFIG)


def assert_bounded(sizes: list[int]) -> None:
    """Assert that the newest value is no larger than the one that first held six messages."""
    filled = next(size for size in sizes if size >= 6 * SIZE)
    assert sizes.index(filled) < 10
    assert sizes[-1] <= filled
    assert max(sizes) == filled


def test_on_mongodb_the_newest_value_is_no_larger_than_when_the_window_first_filled(
    mongodb_uri: str,
) -> None:
    from langgraph.checkpoint.mongodb import MongoDBSaver

    with (
        servers.mongodb_database(mongodb_uri) as name,
        MongoDBSaver.from_conn_string(mongodb_uri, name) as inner,
    ):
        chat(reducing(inner, Remember(), **WINDOW), 10)
        # Not what a document holds: a list that grows is stored in pieces.
        values = [row.checkpoint["channel_values"] for row in inner.list(CONFIG)]
        sizes = [len(inner.serde.dumps_typed(one.get("messages", []))[1]) for one in values]
        assert_bounded(sizes[::-1])


def test_on_postgres_the_newest_value_is_no_larger_than_when_the_window_first_filled() -> None:
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    with servers.postgres_database() as uri:
        with PostgresSaver.from_conn_string(uri) as inner:
            inner.setup()
            chat(reducing(inner, Remember(), **WINDOW), 10)
        with psycopg.connect(uri) as connection:
            rows = connection.execute(
                "SELECT length(blob) FROM checkpoint_blobs"
                " WHERE channel = 'messages' AND type <> 'empty' ORDER BY version"
            ).fetchall()
        assert_bounded([size for (size,) in rows])


def growth(sizes: dict[int, int], start: int, stop: int) -> float:
    """Return the bytes a turn between two turns."""
    return (sizes[stop] - sizes[start]) / (stop - start)


def test_a_chat_of_200_turns_stores_as_much_a_turn_late_as_early(mongodb_uri: str) -> None:
    from growth import measure

    sizes = measure(mongodb_uri, "wrapped", 200, every=40)
    early, late = growth(sizes, 40, 80), growth(sizes, 160, 200)
    assert early * 0.9 < late < early * 1.1


def test_a_chat_of_200_turns_stores_no_more_with_prune(mongodb_uri: str) -> None:
    from growth import measure

    # The window fills and is pruned every six turns: at multiples of that it is equally full.
    sizes = measure(mongodb_uri, "pruned", 200, every=42)
    assert max(sizes.values()) < 1.02 * min(sizes.values())
