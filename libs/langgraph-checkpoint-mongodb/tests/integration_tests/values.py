"""Values that people keep in LangGraph's state, and how to compare what comes back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import uuid
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel, SecretStr

from tests.support import LARGE_SIZE


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    YES = "yes"


class Bits(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Order:
    name: str
    amounts: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    at: dt.datetime
    inner: Order


class Person(BaseModel):
    name: str
    born: dt.date | None = None
    friends: list[Person] = []


class NotStorable:
    """Nothing that the serializer knows."""


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


ZONE = dt.timezone(dt.timedelta(hours=5, minutes=45), "NPT")
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4)

MESSAGES: dict[str, Any] = {
    "human message": HumanMessage("hello", id="1", name="someone"),
    "message of parts": HumanMessage([{"type": "text", "text": "x"}, {"type": "image", "b": "y"}]),
    "answer with tool calls": AIMessage(
        "", tool_calls=[{"name": "find", "args": {"q": [1, None]}, "id": "c1"}], id="2"
    ),
    "answer with usage": AIMessage(
        "x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    ),
    "system message": SystemMessage("be brief", additional_kwargs={"a": {"b": 1}}),
    "tool message": ToolMessage("found", tool_call_id="c1", artifact={"rows": [1]}, status="error"),
    "function message": FunctionMessage(content="x", name="f"),
    "chat message": ChatMessage(content="x", role="critic"),
    "remove message": RemoveMessage(id="1"),
    "answer chunk": AIMessageChunk(content="he", id="3", response_metadata={"model": "m"}),
    "human chunk": HumanMessageChunk(content="he"),
    "tool chunk": ToolMessageChunk(content="he", tool_call_id="c1"),
    "document": Document("text", metadata={"page": 1, "a.b": "$x"}, id="d1"),
}
VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "largest integer": 2**64 - 1,
    "smallest integer": -(2**63),
    "too large an integer": 2**64,
    "too small an integer": -(2**63) - 1,
    "float": 1.5,
    "minus zero": -0.0,
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "not a number": float("nan"),
    "empty text": "",
    "text": "naïve 日本 😀",
    "text with NUL": "a\0b",
    "half a surrogate pair": "a\ud83db",
    "long text": "x" * LARGE_SIZE,
    "bytes": b"\x00\xff",
    "empty bytes": b"",
    "long bytes": b"\x00" * LARGE_SIZE,
    "bytearray": bytearray(b"\x00\xff"),
    "long bytearray": bytearray(LARGE_SIZE),
    "bytearray inside": [bytearray(b"x")],
    "memoryview": memoryview(b"x"),
    "tuple": (1, ("a", None)),
    "named tuple": Point(1, (2, 3)),
    "set": {1, 2, 3},
    "frozen set": frozenset({"a"}),
    "empty set": set(),
    "deque": deque([1, "a"]),
    "bounded deque": deque([1], maxlen=5),
    "default dict": defaultdict(list, {"a": [1]}),
    "ordered dict": OrderedDict(b=1, a=2),
    "odd keys": {"": 1, "a.b": 2, "$set": 3, "a\0b": 4, "日本": 5},
    "keys of other types": {1: "a", None: "b", 1.5: "c", False: "d"},
    "key of a date": {dt.date(2026, 1, 1): 1},
    "key of a tuple": {(1, 2): 3},
    "key of half a surrogate pair": {"\ud83d": 1},
    "nested": nested(200),
    "nested too deep": nested(300),
    "cyclic": cyclic(),
    "many items": list(range(3000)),
    "naive time": NOON,
    "time in UTC": NOON.replace(tzinfo=dt.UTC),
    "time in another zone": NOON.replace(tzinfo=ZONE),
    "date": dt.date(2026, 2, 28),
    "time of day": dt.time(23, 59, 59, 999999),
    "time of day in a zone": dt.time(1, 2, tzinfo=ZONE),
    "duration": dt.timedelta(days=-1, microseconds=5),
    "zone": ZONE,
    "uuid": uuid.UUID(int=2**127 + 1),
    "decimal": decimal.Decimal("1.10"),
    "decimal that is not a number": decimal.Decimal("NaN"),
    "fraction": fractions.Fraction(1, 3),
    "complex": 1 + 2j,
    "enum": Colour.RED,
    "enum of a tuple": Colour.PAIR,
    "integer enum": Number.ONE,
    "text enum": Word.YES,
    "flag": Bits.A | Bits.B,
    "path": pathlib.PurePosixPath("/a/b.txt"),
    "real path": pathlib.Path("a") / "b",
    "pattern": re.compile(r"a+\d", re.IGNORECASE | re.MULTILINE),
    "address": ipaddress.ip_address("10.0.0.1"),
    "network": ipaddress.ip_network("fe80::/10"),
    "dataclass": Order("x", [1, decimal.Decimal("0.1")]),
    "frozen dataclass": Frozen(NOON, Order("y")),
    "pydantic model": Person(name="a", born=dt.date(2000, 1, 1), friends=[Person(name="b")]),
    "secret": SecretStr("s3cret"),
    "array": GRID,
    "column order": np.asfortranarray(GRID),
    "slice of an array": GRID[::2, 1:3],
    "number in an array": np.array(5),
    "empty array": np.zeros((0, 3)),
    "array of truth": np.array([True, False]),
    "array of text": np.array(["a", "bc"]),
    "array of times": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "array of objects": np.array([{"a": 1}, None], dtype=object),
    "large array": np.arange(2000, dtype=np.int64),
    "numpy float": np.float64(1.5),
    "numpy integer": np.int64(5),
    "send": Send("node", {"a": [1]}),
    "interrupt": Interrupt(value={"question": "?"}, id="i1"),
    "command": Command(update={"a": 1}, goto="node"),
    "store item": Item(value={"a": 1}, key="k", namespace=("n",), created_at=NOON, updated_at=NOON),
    "exception": ValueError("x"),
    "class": Order,
    "function": nested,
    "unknown object": NotStorable(),
    "list of everything": [1, "a", None, b"x", {"d": dt.date(2026, 1, 1)}, Order("z")],
    **MESSAGES,
}


def described(value: Any) -> object:
    """A value with the types of all that is in it, in a form that can be compared.

    What is not equal to itself (a NaN) or has no one order (a set) is the same as another
    such one here.
    """
    kind = type(value)
    if isinstance(value, dict):
        return kind, [(described(key), described(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(described(item)) for item in value)
    if isinstance(value, (list, tuple, deque)):
        return kind, getattr(value, "maxlen", None), [described(item) for item in value]
    if isinstance(value, np.ndarray):
        order = value.flags.f_contiguous and not value.flags.c_contiguous
        return kind, value.dtype.str, value.shape, order, value.tolist()
    if isinstance(value, BaseModel):
        return kind, described(dict(value))
    if isinstance(value, Item):
        return kind, described(value.dict())
    return kind, repr(value)


# ------------------------------------------------------------------ drawn values

_texts = st.text(max_size=10)
_zones = st.sampled_from([None, dt.UTC, ZONE])
_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | _texts
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | st.datetimes(timezones=_zones)
    | st.dates()
    | st.times(timezones=_zones)
    | st.timedeltas()
    | st.uuids()
    | st.decimals()
    | st.sampled_from([Colour.RED, Number.ONE, Word.YES, Bits.B])
    | st.builds(lambda size: np.arange(size), st.integers(0, 9))
    | st.builds(Person, name=_texts, friends=st.just([]))
    | st.builds(HumanMessage, _texts)
    | st.integers(LARGE_SIZE // 2 - 100, LARGE_SIZE // 2 + 100).map(lambda size: "x" * size)
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = _texts | st.integers(-9, 9) | st.none()
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Order, name=_texts, amounts=st.lists(inner, max_size=3))
        | st.builds(Point, st.integers(0, 9), inner)
        | st.sets(_texts | st.integers(0, 9), max_size=3)
    )


drawn: st.SearchStrategy[Any] = st.recursive(_leaves, _containers, max_leaves=8)
