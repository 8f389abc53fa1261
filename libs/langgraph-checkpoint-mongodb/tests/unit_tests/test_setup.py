from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pymongo.errors import OperationFailure
from pymongo.operations import IndexModel

from langgraph.checkpoint.mongodb._database.port import Role, run
from langgraph.checkpoint.mongodb._layout.indexes import INDEXES, TTL_KEYS, Index
from langgraph.checkpoint.mongodb._layout.keys import VALUE_KEY, WRITE_KEY, Document
from langgraph.checkpoint.mongodb._operations.setup import setup
from tests.unit_tests.scripted import ScriptedPort

Keys = tuple[tuple[str, int], ...]
UNIQUE: dict[Role, Keys] = {
    role: next(index.keys for index in indexes if index.unique) for role, indexes in INDEXES.items()
}
ROLES: list[Role] = ["checkpoints", "writes", "values"]


class IndexPort(ScriptedPort):
    """A server's indexes: creates what it is asked to, but for keys that it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.present: dict[Role, dict[str, Document]] = {role: {} for role in ROLES}
        self.refused: set[Keys] = set()
        self.created: list[tuple[Role, list[Keys]]] = []
        self.changed: list[tuple[Role, str, int]] = []
        self.dropped: list[tuple[Role, str]] = []
        self.can_change = True

    def add(self, role: Role, keys: Keys, name: str = "made before", **options: Any) -> None:
        self.present[role][name] = {"key": list(keys), **options}

    async def indexes(self, role: Role) -> dict[str, Document]:
        return dict(self.present[role])

    async def create_indexes(self, role: Role, models: Sequence[IndexModel]) -> None:
        wanted = [tuple(model.document["key"].items()) for model in models]
        self.created.append((role, wanted))
        if self.refused & set(wanted):
            raise OperationFailure("refused", code=85)
        for model, keys in zip(models, wanted, strict=True):
            options = {
                name: value for name, value in model.document.items() if name not in ("key", "name")
            }
            self.add(role, keys, model.document["name"], **options)

    async def drop_index(self, role: Role, name: str) -> None:
        self.dropped.append((role, name))
        del self.present[role][name]

    async def expire_after(self, role: Role, name: str, seconds: int) -> None:
        if not self.can_change:
            raise NotImplementedError("collMod")
        self.changed.append((role, name, seconds))
        self.present[role][name]["expireAfterSeconds"] = seconds


@pytest.fixture
def port() -> IndexPort:
    return IndexPort()


def ttl_of(port: IndexPort, role: Role) -> Any:
    return [
        one.get("expireAfterSeconds")
        for one in port.present[role].values()
        if tuple(one["key"]) == TTL_KEYS
    ]


def keys_of(port: IndexPort, role: Role) -> set[Keys]:
    return {tuple(one["key"]) for one in port.present[role].values()}


# ------------------------------------------------------------------ which there are


@pytest.mark.parametrize("role", ["writes", "values"])
def test_every_unique_index_begins_with_the_thread(role: Role) -> None:
    assert UNIQUE[role][0] == ("thread_id", 1)


def test_the_unique_keys_are_those_of_the_documents() -> None:
    assert {name for name, _ in UNIQUE["checkpoints"]} == {
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
    }
    assert [name for name, _ in UNIQUE["writes"]] == list(WRITE_KEY)
    assert [name for name, _ in UNIQUE["values"]] == list(VALUE_KEY)


def test_an_empty_database_gets_all_of_them_one_command_a_collection(port: IndexPort) -> None:
    run(setup(port, None))
    for role, indexes in INDEXES.items():
        assert keys_of(port, role) == {index.keys for index in indexes}
    assert [role for role, _ in port.created] == ROLES


def test_a_second_time_nothing_is_done(port: IndexPort) -> None:
    run(setup(port, 60))
    port.created.clear()
    run(setup(port, 60))
    assert (port.created, port.changed, port.dropped) == ([], [], [])


def test_only_what_is_missing_is_made(port: IndexPort) -> None:
    port.add("writes", UNIQUE["writes"], unique=True)
    run(setup(port, None))
    assert "writes" not in [role for role, _ in port.created]


def test_an_index_counts_whatever_its_name(port: IndexPort) -> None:
    port.add("values", UNIQUE["values"], name="someone's", unique=True)
    run(setup(port, None))
    assert list(port.present["values"]) == ["someone's"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unique": False},
        {"unique": True, "sparse": True},
        {"unique": True, "partialFilterExpression": {}},
    ],
)
def test_an_index_that_does_not_hold_every_document_once_does_not_serve(
    options: Mapping[str, Any],
) -> None:
    index = Index((("a", 1),), unique=True)
    assert not index.is_met_by({"key": [("a", 1)], **options})


def test_keys_in_another_order_are_another_index() -> None:
    index = Index((("a", 1), ("b", 1)))
    assert not index.is_met_by({"key": [("b", 1), ("a", 1)]})
    assert not index.is_met_by({"key": [("a", 1), ("b", -1)]})


def test_an_index_of_all_documents_serves_for_some() -> None:
    index = Index((("a", 1),), partial={"a": {"$exists": True}})
    assert index.is_met_by({"key": [("a", 1)]})
    assert index.is_met_by({"key": [("a", 1)], "partialFilterExpression": index.partial})
    assert not index.is_met_by({"key": [("a", 1)], "partialFilterExpression": {"b": 1}})


def test_other_indexes_of_a_collection_stay(port: IndexPort) -> None:
    port.add("checkpoints", (("theirs", 1),), name="theirs")
    run(setup(port, 60))
    assert "theirs" in port.present["checkpoints"]
    assert port.dropped == []


# ------------------------------------------------------------------ refusals


def test_one_refused_index_does_not_keep_the_others_from_being_made(port: IndexPort) -> None:
    slow = next(index.keys for index in INDEXES["checkpoints"] if not index.unique)
    port.refused = {slow}
    run(setup(port, None))
    wanted = {index.keys for index in INDEXES["checkpoints"]}
    assert keys_of(port, "checkpoints") == wanted - {slow}


def test_an_index_for_speed_that_is_refused_is_a_warning_that_names_it(
    port: IndexPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.refused = {(("run_id", 1),)}
    run(setup(port, None))
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "db.checkpoints" in record.message
    assert "run_id" in record.message


def test_a_unique_index_that_is_refused_is_an_error_with_advice(port: IndexPort) -> None:
    port.refused = {UNIQUE["values"]}
    with pytest.raises(OperationFailure, match="refused") as failed:
        run(setup(port, None))
    (note,) = failed.value.__notes__
    assert "db.values needs a unique index" in note
    assert "create_indexes=False" in note


def test_beside_an_index_that_is_not_unique_the_saver_works_and_warns_with_its_name(
    port: IndexPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.add("checkpoints", UNIQUE["checkpoints"], name="of the other saver")
    port.refused = {UNIQUE["checkpoints"]}
    run(setup(port, None))
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "of the other saver" in record.message
    assert "drop that index" in record.message


def test_an_index_that_another_process_made_meanwhile_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: dict[str, Document] = {"theirs": {"key": list(UNIQUE["writes"]), "unique": True}}
    theirs = {
        f"{n}": {"key": list(index.keys), "unique": index.unique}
        for n, index in enumerate(INDEXES["checkpoints"])
    }
    values: dict[str, Document] = {"v": {"key": list(UNIQUE["values"]), "unique": True}}
    port = ScriptedPort(
        ("indexes", theirs),
        ("indexes", {}),
        ("create_indexes", OperationFailure("already exists", code=86)),
        ("indexes", made),
        ("indexes", values),
    )
    run(setup(port, None))
    assert caplog.records == []


# ------------------------------------------------------------------ the TTL


@pytest.mark.parametrize("role", ROLES)
def test_a_ttl_has_an_index_in_every_collection(port: IndexPort, role: Role) -> None:
    run(setup(port, 60))
    assert ttl_of(port, role) == [60]


def test_without_a_ttl_there_is_no_such_index(port: IndexPort) -> None:
    run(setup(port, None))
    assert [ttl_of(port, role) for role in ROLES] == [[], [], []]


def test_a_changed_ttl_changes_the_index(port: IndexPort) -> None:
    run(setup(port, 60))
    run(setup(port, 3600))
    assert [ttl_of(port, role) for role in ROLES] == [[3600]] * 3
    assert port.dropped == []


def test_a_ttl_given_up_leaves_what_is_stamped_expiring(port: IndexPort) -> None:
    run(setup(port, 60))
    run(setup(port, None))
    assert [ttl_of(port, role) for role in ROLES] == [[60]] * 3


def test_an_index_on_the_stamps_that_expires_nothing_gets_the_ttl(port: IndexPort) -> None:
    port.add("values", TTL_KEYS, name="plain")
    run(setup(port, 60))
    assert ("values", "plain", 60) in port.changed


def test_a_server_that_cannot_change_the_ttl_gets_a_new_index(port: IndexPort) -> None:
    run(setup(port, 60))
    port.can_change = False
    run(setup(port, 3600))
    assert [ttl_of(port, role) for role in ROLES] == [[3600]] * 3


def test_a_ttl_index_that_another_process_made_meanwhile_gets_this_ttl() -> None:
    ready = {
        role: {
            str(n): {"key": list(index.keys), "unique": index.unique}
            for n, index in enumerate(indexes)
        }
        for role, indexes in INDEXES.items()
    }
    theirs = {"ttl": {"key": list(TTL_KEYS), "expireAfterSeconds": 5}}
    script: list[tuple[str, Any]] = []
    for role in ROLES:
        script += [
            ("indexes", ready[role]),
            ("indexes", ready[role]),
            ("create_indexes", OperationFailure("exists with other options", code=85)),
            ("indexes", {**ready[role], **theirs}),
            ("expire_after", None),
        ]
    port = ScriptedPort(*script)
    run(setup(port, 60))
    changed = [one.options["seconds"] for one in port.asked if one.method == "expire_after"]
    assert changed == [60, 60, 60]


def test_a_refused_ttl_index_is_an_error(port: IndexPort) -> None:
    port.refused = {TTL_KEYS}
    with pytest.raises(OperationFailure):
        run(setup(port, 60))
