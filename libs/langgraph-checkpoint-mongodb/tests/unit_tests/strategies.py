"""Hypothesis strategies for what LangGraph hands to a saver, and the plain serializer."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.values import COPY_CHANNEL

CODEC = Codec(JsonPlusSerializer())

# Text that UTF-8 can hold: the serializer refuses lone surrogates before anything is stored.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# No channel may have a name of the layout's own.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name not in (BUNDLE, COPY_CHANNEL)
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=20)
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)

unique_versions = st.builds(
    lambda counter, suffix: f"{counter:032d}.{suffix:016d}",
    st.integers(1, 5),
    st.integers(0, 10**16 - 1),
)
# The forms that callers use: this library's, other savers', counters, times.
versions = unique_versions | st.integers(0, 5) | st.floats(0, 5) | names
