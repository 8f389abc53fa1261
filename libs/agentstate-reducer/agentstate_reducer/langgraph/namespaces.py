"""Where the messages of a run go in long-term memory."""

from __future__ import annotations

from typing import Any

from ..models import DEFAULT_NAMESPACE_KEY


def memory_namespace(reducer: Any, config: Any) -> Any:
    """Return the namespace of a run for long-term memory.

    Args:
        reducer: Its `config.namespace` decides, or else `config.namespace_key` is where to look.
        config: A LangGraph config, or `None`.

    Returns:
        What `config.namespace` returns; without one, what `config["configurable"]` has under the
        key; `("memories", thread_id)` without that, and `None` without a thread.
    """
    conf = (config or {}).get("configurable") or {}
    settings = getattr(reducer, "config", None)
    decide = getattr(settings, "namespace", None)
    thread = conf.get("thread_id")
    default = None if thread is None else ("memories", thread)
    if decide is not None:
        try:
            return decide(config, getattr(conf.get("__pregel_runtime"), "context", None))
        except Exception as error:
            reducer.warn_once(ValueError(f"namespace failed, {default!r} is used: {error!r}"))
            return default
    namespace = conf.get(getattr(settings, "namespace_key", DEFAULT_NAMESPACE_KEY))
    if namespace is not None:
        return namespace
    return default
