"""Delta channels: rebuilt from their writes since the last snapshot, which can be reduced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTERS = "counters_since_delta_snapshot"
"""The metadata in which LangGraph counts the writes to each delta channel."""

SUMMARY_OF_DEEPAGENTS = "_summarization_event"
"""The channel in which deepagents notes how many of the first messages its summary stands for."""


def is_delta(value: Any, metadata: Mapping[str, Any], channel: str) -> bool:
    """Tell whether a channel is rebuilt from its writes.

    Args:
        value: The channel's value in a checkpoint.
        metadata: The checkpoint's metadata.
        channel: The channel's name.
    """
    return is_snapshot(value) or channel in (metadata.get(COUNTERS) or {})


def is_snapshot(value: Any) -> bool:
    """Tell whether a value is the snapshot of a delta channel.

    Args:
        value: The channel's value in a checkpoint.
    """
    # By name: the class is not in every release that this package works with.
    return type(value).__name__ == "_DeltaSnapshot"


def with_messages(value: Any, messages: list[Any]) -> Any:
    """Return what stands for messages in a checkpoint.

    Args:
        value: What stands there now: a list, or a snapshot.
        messages: The messages instead.
    """
    return value._replace(value=messages) if is_snapshot(value) else messages


def counts_from_the_first(values: Mapping[str, Any]) -> bool:
    """Tell whether a checkpoint says something about messages by their place in the whole list.

    Args:
        values: The values of its channels.
    """
    event = values.get(SUMMARY_OF_DEEPAGENTS)
    return isinstance(event, dict) and event.get("cutoff_index") is not None
