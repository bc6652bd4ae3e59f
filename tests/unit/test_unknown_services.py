"""A program that names a service which the router does not know is told what to do."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from producers import services
from producers.services import queue_of
from streaming.errors import UserError
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import runs
from streaming.system.client_ids import client_id
from streaming.system.runs import Run
from streaming.wire.topics import Topics


class Message:
    def __init__(self, key: bytes | None, row: Any) -> None:
        self._key = key
        self._row = row

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return None if self._row is None else json.dumps(self._row).encode()


def of_service(database: str, name: str, row: Any) -> Message:
    return Message(json.dumps(["service", database, name]).encode(), row)


RECORDS = [
    Message(b'["database","shop"]', {}),
    Message(b"no JSON", {}),
    Message(None, {}),
    of_service("shop", "//shop/orders", {"queue": "first"}),
    of_service("shop", "//shop/orders", {"queue": "orders"}),
    of_service("stock", "//stock/reserve", {"queue": "stock"}),
    of_service("shop", "//shop/gone", {"queue": "gone"}),
    of_service("shop", "//shop/gone", None),
]


class Follower:
    def __init__(self, *_: Any) -> None:
        """Takes what the real one takes."""

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        """Closes nothing."""

    def to_end(self) -> Iterator[Message]:
        yield from RECORDS


def asked(monkeypatch: pytest.MonkeyPatch, database: str, service: str, members: Any) -> str:
    """Asks for the queue of a service, and returns the answer, or the error."""

    def members_of(_admin: Admin, group: str, _timeout_s: float) -> Any:
        if group != "p-queue-activation-router":
            return []
        if isinstance(members, Exception):
            raise members
        return members

    monkeypatch.setattr(services, "TopicFollower", Follower)
    monkeypatch.setattr(Admin, "members", members_of)
    try:
        return queue_of(Cluster("localhost:9092"), Topics("p-"), database, service)
    except UserError as error:
        return str(error)


def test_a_service_that_is_known_needs_no_router(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "shop", "//shop/orders", []) == "orders"


def test_without_a_router_the_commands_that_start_one_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = asked(monkeypatch, "shop", "//shop/bills", [])
    assert "'//shop/bills' of database 'shop' is not known, and no router is in the consumer group p-queue" in said
    place = "--bootstrap-servers localhost:9092 --topic-prefix p-"
    assert said.index(f"`queue-activation run {place}`") < said.index(f"`queue-activation router {place}`")


@pytest.mark.parametrize("members", [[object()], RightMissingError("no right")])
@pytest.mark.parametrize(
    ("database", "service", "advice"),
    [
        ("shop", "//shop/odrers", "Did you mean '//shop/orders'?"),
        ("shop", "//stock/reserve", "It is a service of database 'stock'."),
        ("shpo", "//shop/bills", "It knows no service of this database at all."),
        ("shop", "//shop/gone", "`queue-activation service list --bootstrap-servers localhost:9092 --topic-prefix p-`"),
    ],
)
def test_what_was_meant_is_told(
    monkeypatch: pytest.MonkeyPatch, members: Any, database: str, service: str, advice: str
) -> None:
    said = asked(monkeypatch, database, service, members)
    assert said.startswith(f"The router knows no service '{service}' of database '{database}'.")
    assert advice in said
    assert "no router" not in said


@pytest.mark.parametrize("members", [[], [GroupMember("id", client_id("/router"), "127.0.0.1", 1)]])
def test_while_run_starts_it_is_not_known_yet(monkeypatch: pytest.MonkeyPatch, members: Any) -> None:
    note = Run(
        process=runs.of_this_process(),
        namespace=runs.namespace(),
        servers="localhost:9092",
        prefix="p-",
        programs=["router", "transport", "monitor"],
        state_directory="/srv/checkpoints/activator",
    )
    with runs.noted(note):
        said = asked(monkeypatch, "shop", "//shop/bills", members)
    assert said == (
        f"Service '//shop/bills' of database 'shop' is not known yet: `run` (process {os.getpid()}) is starting. Try "
        "again when it is ready."
    )
