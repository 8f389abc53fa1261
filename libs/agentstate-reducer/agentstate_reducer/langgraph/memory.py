"""Long-term memory in a LangGraph store: a hook that fills it, and a tool that looks in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore, PutOp

from ..messages import content_of, role_of, stable_json
from ..models import PrunedMessages
from ..reducer import MessageReducer
from .namespaces import memory_namespace

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


class remember_in:
    """A hook that puts pruned messages into a store, each under its key.

    A message that is handed over again overwrites itself.

    Args:
        store: The store.
    """

    def __init__(self, store: BaseStore) -> None:
        self.store = store

    def __call__(self, messages: PrunedMessages, namespace: Any) -> None:
        """Put messages into the store.

        Args:
            messages: The messages.
            namespace: Where; a text is a namespace of one part.
        """
        place = _place(namespace)
        self.store.batch(
            [
                PutOp(place, key, {"role": role_of(message), "content": _text(message)})
                for key, message in zip(messages.keys, messages, strict=True)
            ]
        )


def recall(
    store: BaseStore,
    reducer: MessageReducer | None = None,
    *,
    limit: int = 5,
    name: str = "recall",
) -> BaseTool:
    """Return a tool with which a model looks for what was said before, and left the window.

    Args:
        store: The store that `remember_in` fills. Give it an index, to find by meaning.
        reducer: The reducer, for the namespace of a run.
        limit: How many messages it returns at the most.
        name: What the model calls it.

    Returns:
        The tool, for `create_agent` and the like. It takes a `query`.
    """
    from langchain_core.tools import StructuredTool  # savers have no need of it

    def search(query: str, config: RunnableConfig) -> str:
        place = _place(memory_namespace(reducer, config))
        return _shown(store.search(place, query=query, limit=limit))

    async def asearch(query: str, config: RunnableConfig) -> str:
        place = _place(memory_namespace(reducer, config))
        return _shown(await store.asearch(place, query=query, limit=limit))

    return StructuredTool.from_function(
        search,
        asearch,
        name=name,
        description="Look for what was said earlier and is no longer in the conversation.",
    )


def _place(namespace: Any) -> tuple[str, ...]:
    parts = namespace if isinstance(namespace, (tuple, list)) else (namespace,)
    return tuple(str(part) for part in parts)


def _text(message: Any) -> str:
    content = content_of(message)
    return content if isinstance(content, str) else stable_json(content)


def _shown(items: Any) -> str:
    lines = [f"{item.value.get('role')}: {item.value.get('content')}" for item in items]
    return "\n".join(lines) or "Nothing was found."
