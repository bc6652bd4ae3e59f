"""The name that a monitor shows to others, and what it tells of it.

tests/integration/test_sole_monitor.py has the other tests.
"""

import os
import socket
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError

from streaming.daemons.monitor.sole_monitor import MONITOR
from streaming.daemons.observer.sole_observer import OBSERVER
from streaming.daemons.query import sole_program
from streaming.daemons.query.sole_program import Kind, SoleProgram
from streaming.daemons.router.sole_router import ROUTER
from streaming.errors import UserError
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import runs
from streaming.system.client_ids import client_id, has_ended, running_here
from streaming.system.runs import State
from tests.support.named_process import named_process
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/data/checkpoints/monitor", "monitor"),
        ("s3a://bucket/for orders/", "for-orders"),
        ("hdfs://host/größe", "gr-e"),
        ("/" + "x" * 300, "x" * 64),
    ],
)
def test_a_monitors_name_has_host_process_and_checkpoint_in_characters_that_kafka_takes(
    location: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "db 1.example")
    assert client_id(location) == f"db-1.example_{os.getpid()}_{name}"


def test_a_process_of_this_host_has_ended_if_it_is_not_there_or_waits_to_be_collected() -> None:
    host = client_id("/monitor").partition(f"_{os.getpid()}_")[0]
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert not has_ended(f"{host}_{process.pid}_monitor")
        process.kill()
        wait_until(lambda: has_ended(f"{host}_{process.pid}_monitor"), 10, "the end, although nobody has waited for it")
    assert has_ended(f"{host}_{process.pid}_monitor")


def test_this_process_is_not_its_own_predecessor() -> None:
    # As in a container that starts again, whose first process has the number of the one before.
    assert has_ended(client_id("/monitor"))


@pytest.mark.parametrize("name", ["other-host_1_monitor", "monitor", "", "{host}_x_monitor", "{host}_monitor"])
def test_nothing_is_known_of_processes_of_other_hosts_or_names(name: str) -> None:
    host = client_id("/monitor").partition(f"_{os.getpid()}_")[0]
    assert not has_ended(name.replace("{host}", host))


def test_a_program_is_known_to_run_on_this_host_by_its_process_and_its_command() -> None:
    host = client_id("/monitor").partition(f"_{os.getpid()}_")[0]
    with named_process("monitor") as process:
        name = f"{host}_{process.pid}_checkpoint"
        assert running_here(name, "monitor") == process.pid
        assert running_here(name, "router") is None, "the process of another container with the same host name"
        assert running_here(name.replace(host, "other-host"), "monitor") is None
    assert running_here(name, "monitor") is None
    assert running_here(client_id("/monitor"), "pytest") is None, "this process is not another one"


def told_of_a_successor(monkeypatch: pytest.MonkeyPatch, client: str) -> str:
    """Returns the error of a monitor that a member with this client id has replaced."""
    monkeypatch.setattr(sole_program, "_NEW_ID_TIMEOUT_S", 0.0)
    successor = GroupMember("checkpoint", client, "/127.0.0.1", 1, "member-2")
    admin = SimpleNamespace(members=lambda *_: [successor])
    consumer = SimpleNamespace(
        memberid=lambda: "member-1",
        poll=lambda _: SimpleNamespace(error=lambda: KafkaError(KafkaError._FATAL, "Static consumer fenced")),
        subscribe=lambda *_, **__: None,
        close=lambda: None,
    )
    cluster = SimpleNamespace(consumer=lambda _: consumer, bootstrap_servers="k:1")
    place = SoleProgram(cast("Cluster", cluster), cast("Admin", admin), MONITOR, "", "queue-ticks", 1)
    with place:
        place.join("checkpoint", client_id("/monitor"), takes_over=True)
        wait_until(place.has_problem, 10, "the loss of the place")
    with pytest.raises(UserError) as lost:
        place.check()
    return str(lost.value)


@pytest.mark.parametrize(("kind", "is_noted"), [(MONITOR, True), (ROUTER, True), (OBSERVER, False)])
def test_one_that_starts_leaves_a_note_unless_it_may_wait_for_days(kind: Kind, is_noted: bool) -> None:
    cluster = SimpleNamespace(bootstrap_servers="k:1")
    with SoleProgram(cast("Cluster", cluster), cast("Admin", None), kind, "p-", "queue-ticks", 1) as place:
        note = runs.last("k:1", "p-", kind.name)
        assert (note is not None and note.is_starting) == is_noted
        place.note_ready()
        note = runs.last("k:1", "p-", kind.name)
        assert (note is not None and note.state is State.READY) == is_noted
    note = runs.last("k:1", "p-", kind.name)
    assert (note is not None and note.state is State.ENDED) == is_noted


def test_one_that_has_lost_its_place_names_its_successor_and_says_each_thing_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = client_id("/monitor").partition(f"_{os.getpid()}_")[0]
    with named_process("monitor") as process:
        said = told_of_a_successor(monkeypatch, f"{host}_{process.pid}_monitor")
    assert f"has taken this one's place: process {process.pid} on this machine ({host}_{process.pid}_monitor at" in said
    assert "--take-over" in said
    assert "fenced" not in said
