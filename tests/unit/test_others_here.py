"""A second monitor or router on one machine is refused before Spark starts, with the process in its way."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from streaming.daemons.query import others_here
from streaming.errors import UserError
from streaming.kafka.admin import Admin, GroupMember
from streaming.spark import session
from streaming.system import runs
from streaming.system.client_ids import client_id
from streaming.system.process_identity import identity_of
from streaming.wire.topics import Topics
from tests.support.named_process import named_process
from tests.support.shell import run_command


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for a Kafka that has all topics, and for a Spark that would start."""
    monkeypatch.setattr(others_here, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(Admin, "require_topics", lambda *_: dict.fromkeys(Topics().names(), 1))
    for name in ("require_group", "topic_ids", "other_settings"):
        monkeypatch.setattr(Admin, name, lambda *_: {})
    monkeypatch.setattr(session, "create", start)


def start(*_: object) -> None:
    raise UserError("Spark starts")


@pytest.fixture(params=["monitor", "router"])
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[True, False], ids=["alone", "under run"])
def other(request: pytest.FixtureRequest, program: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Runs a process that looks like the program, and is a member of its group; yields its id."""
    with named_process(program if request.param else "run") as process:
        host = client_id("/").partition(f"_{os.getpid()}_")[0]
        member = GroupMember("id", f"{host}_{process.pid}_checkpoint", "127.0.0.1", 1)
        group = f"queue-activation-{program}"
        monkeypatch.setattr(Admin, "members", lambda _, group_id, *__: [member] if group_id == group else [])
        yield process.pid


def test_a_second_one_is_refused_at_once_and_told_how_to_end_the_first(
    program: str, other: int, tmp_path: Path
) -> None:
    said = " ".join(run_command(program, "--checkpoint-location", str(tmp_path / "new"), code=2).split())
    assert f"A {program} works on these topics already, so nothing was started: process {other} on this" in said
    assert f"end it with Ctrl-C or `kill {other}` and try again" in said
    assert "--take-over" in said
    assert "Spark starts" not in said


@pytest.mark.usefixtures("other")
def test_one_that_takes_over_starts(program: str) -> None:
    assert "Spark starts" in run_command(program, "--take-over", code=2)


def test_beside_a_run_that_is_about_to_start_one_it_is_refused_at_once(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Admin, "members", lambda *_: pytest.fail("waits for Kafka"))
    with named_process("run") as process:
        identity = identity_of(process.pid)
        assert identity is not None
        note = runs.Run(
            process=identity,
            namespace=runs.namespace(),
            servers="localhost:9092",
            prefix="",
            programs=[program],
            state_directory=str(tmp_path),
        )
        runs._write(note)
        said = " ".join(run_command(program, "--checkpoint-location", str(tmp_path / "new"), code=2).split())
        assert f"`run` (process {process.pid}) is starting on these topics already, so nothing was started." in said
        assert f"`kill {process.pid}`" in said
        for harmless in (
            msgspec.structs.replace(note, programs=["transport"]),
            msgspec.structs.replace(note, process=runs.of_this_process()),
        ):
            runs._write(harmless)
            monkeypatch.setattr(Admin, "members", lambda *_: [])
            assert "Spark starts" in run_command(program, "--checkpoint-location", str(tmp_path / "new"), code=2)
