"""Keeps the message list of an agent bounded, and hands what leaves it to long-term memory."""

from .background import Background
from .models import (
    DEFAULT_NAMESPACE_KEY,
    PrunedMessages,
    ReducerConfig,
    ReducerResult,
    RememberFn,
)
from .reducer import MessageReducer
from .summary import default_summary_messages_factory
from .tokens import resolve_token_counter

__version__ = "0.6.0"

__all__ = [
    "DEFAULT_NAMESPACE_KEY",
    "Background",
    "MessageReducer",
    "PrunedMessages",
    "ReducerConfig",
    "ReducerResult",
    "RememberFn",
    "__version__",
    "default_summary_messages_factory",
    "resolve_token_counter",
]
