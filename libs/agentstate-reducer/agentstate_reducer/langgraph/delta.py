"""Recognising a DeltaChannel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTERS = "counters_since_delta_snapshot"
"""The metadata in which LangGraph counts the writes to each delta channel."""


def is_delta(value: Any, metadata: Mapping[str, Any], channel: str) -> bool:
    """Tell whether a channel is rebuilt from its writes, so that its value must not be changed.

    Args:
        value: The channel's value in a checkpoint.
        metadata: The checkpoint's metadata.
        channel: The channel's name.
    """
    # By name: the class is not in every release that this package works with.
    return type(value).__name__ == "_DeltaSnapshot" or channel in (metadata.get(COUNTERS) or {})
