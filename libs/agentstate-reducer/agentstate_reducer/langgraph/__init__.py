"""A checkpoint saver of LangGraph's, wrapped so that the messages it stores stay bounded."""

try:
    import langgraph.checkpoint.base  # noqa: F401 - to say what is missing
except ImportError as error:
    raise ImportError(
        "agentstate_reducer.langgraph needs langgraph-checkpoint: "
        'pip install "agentstate-reducer[langgraph]"'
    ) from error

from .memory import recall, remember_in
from .namespaces import memory_namespace
from .saver import ReducingSaver, apply_reducer

__all__ = ["ReducingSaver", "apply_reducer", "memory_namespace", "recall", "remember_in"]
