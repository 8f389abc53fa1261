"""put_writes over a scripted port."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pymongo.errors import AutoReconnect

from langgraph.checkpoint.mongodb import (
    ChannelTooLargeError,
)
from langgraph.checkpoint.mongodb._database.port import run
from langgraph.checkpoint.mongodb._layout.codec import Codec
from langgraph.checkpoint.mongodb._layout.keys import Document
from langgraph.checkpoint.mongodb._layout.manifest import ManifestEntry
from langgraph.checkpoint.mongodb._layout.parts import digest
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.put_writes import put_writes
from tests.support import thread
from tests.unit_tests.puts import (
    INSERTED,
    KEY,
    LARGE,
    MB,
    UPDATED,
    V2,
    committed,
    inserted,
    knowing,
    put_second,
)
from tests.unit_tests.scripted import ScriptedPort


def write(port: ScriptedPort, *writes: tuple[str, Any], ttl: int | None = None) -> None:
    call = Context(port, port.memory, Codec(JsonPlusSerializer()), ttl)
    run(put_writes(call, thread("t", checkpoint_id="2"), writes, "task", "~path"))


def test_no_writes_ask_nothing() -> None:
    write(ScriptedPort())


def test_writes_are_one_insert_that_leaves_what_is_there() -> None:
    whole = [{"idx": 0}, {"idx": 1}]
    port = ScriptedPort(("insert", [0]), ("find", whole), ("delete", 0))
    write(port, ("a", 1), ("b", LARGE))
    assert [document["idx"] for document in inserted(port)] == [0, 1]
    assert port.asked[-1].given["attempt"] == inserted(port)[0]["attempt"]


def test_a_special_write_replaces_and_the_others_stay() -> None:
    port = ScriptedPort(("insert", []), ("update", UPDATED))
    write(port, ("a", 1), ("__error__", "e"))
    assert [document["idx"] for document in inserted(port)] == [0]
    (error,) = port.asked[1].given
    assert (list(error.update), error.filter["idx"]) == (["$set"], -1)
    assert error.upsert


def test_nothing_is_written_when_one_write_is_too_large() -> None:
    with pytest.raises(ChannelTooLargeError, match="pending write of task 'task'") as failed:
        write(ScriptedPort(), ("a", 1), ("docs", "x" * 17 * MB))
    assert failed.value.channel == "docs"


def test_writes_are_stamped_only_with_a_ttl() -> None:
    stamped, plain = ScriptedPort(("insert", [])), ScriptedPort(("insert", []))
    write(stamped, ("a", 1), ttl=60)
    write(plain, ("a", 1))
    assert "created_at" in inserted(stamped)[0]
    assert "created_at" not in inserted(plain)[0]


DOCS = b"d" * MB


def put_input(port: ScriptedPort) -> None:
    """Put checkpoint 2 with an input of one large and one small item."""
    values = {"__start__": {"docs": DOCS, "small": 1}}
    put_second(port, values, {"__start__": V2})


def test_a_write_of_a_large_item_of_the_input_names_it() -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_input(port)
    (entry,) = committed(port)["channels"]
    port.play_on(("insert", []))
    write(port, ("docs", DOCS), ("small", 1))
    docs, small = inserted(port)
    assert docs["value"] == b""
    assert (docs["stored"]["channel"], docs["stored"]["version"]) == ("__start__", V2)
    assert 0 < docs["stored"]["part"] < entry["parts"]
    assert (small["value"] != b"", "stored" in small) == (True, False)


@pytest.mark.parametrize("other", [b"D" * MB, bytearray(DOCS), DOCS + b"d"])
def test_a_write_that_differs_from_the_input_holds_its_value(other: Any) -> None:
    port = knowing(("insert", []), ("update", INSERTED))
    put_input(port)
    port.play_on(("insert", []))
    write(port, ("docs", other))
    assert "stored" not in inserted(port)[0]


def test_a_write_to_a_checkpoint_that_is_not_known_holds_its_value() -> None:
    port = ScriptedPort(("insert", []))
    write(port, ("docs", DOCS))
    assert "stored" not in inserted(port)[0]


def test_a_write_waits_for_the_put_of_its_checkpoint_to_decide() -> None:
    port = ScriptedPort(("insert", []))
    with port.memory.input_in_flight(KEY) as in_flight:
        in_flight.digests = {digest(("bytes", DOCS)): ManifestEntry("__start__", V2, MB)}
        decided = threading.Timer(0.05, in_flight.done.set)
        decided.start()
        write(port, ("docs", DOCS))
        assert in_flight.done.is_set()
        decided.join()
    assert inserted(port)[0]["stored"]["version"] == V2


def test_a_put_of_an_input_is_waited_for_from_its_first_command_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = ScriptedPort(("find", AutoReconnect("gone")))
    known: list[bool] = []
    find = port.find

    async def find_meanwhile(*args: Any, **options: Any) -> list[Document]:
        known.append(port.memory.in_flight(KEY) is not None)
        return await find(*args, **options)

    monkeypatch.setattr(port, "find", find_meanwhile)
    with pytest.raises(AutoReconnect):
        put_input(port)
    assert known == [True]
    assert port.memory.in_flight(KEY) is None


def test_a_small_write_waits_for_nothing() -> None:
    port = ScriptedPort(("insert", []))
    with port.memory.input_in_flight(KEY):
        write(port, ("small", 1))
    assert len(inserted(port)) == 1


def test_a_write_beside_a_put_that_failed_holds_its_value() -> None:
    port = knowing(("insert", AutoReconnect("gone")))
    with pytest.raises(AutoReconnect):
        put_input(port)
    port.play_on(("insert", []))
    write(port, ("docs", DOCS))
    assert "stored" not in inserted(port)[0]
