"""The start of the embedded broker: with its port taken, and when it takes long."""

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from streaming.errors import UserError
from streaming.system import embedded_broker, start_progress
from tests.support.shell import run_command
from tests.support.waiting import wait_until

SLOW = ["sh", "-c", "echo the last line; exec sleep 60"]
ADVICE = (
    "An idle machine needs a few seconds: most likely this one is short of CPU time or memory. Try again when its "
    "other programs use less of them. The end of its log:\n  the last line"
)


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(embedded_broker, "_START_TIMEOUT_S", 1)
    path = tmp_path / "broker.log"
    path.touch()
    return path


def test_a_broker_that_is_not_ready_in_time_says_what_to_do(log_file: Path) -> None:
    with pytest.raises(UserError) as error, embedded_broker._run([*SLOW], log_file.parent, log_file):
        pass
    assert str(error.value) == f"The Kafka broker is not ready after 1 s. {ADVICE}"


def test_a_data_directory_that_is_not_created_in_time_says_so_and_what_to_do(log_file: Path) -> None:
    with pytest.raises(UserError) as error:
        embedded_broker._format([*SLOW], [], log_file.parent, log_file)
    assert str(error.value) == f"The Kafka broker's data directory is not created after 1 s. {ADVICE}"


@pytest.mark.parametrize("address", ["127.0.0.1", ""], ids=["here", "everywhere"])
def test_a_taken_port_is_told_before_anything_that_takes_long(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slow in ("find_java", "broker_jars"):
        monkeypatch.setattr(embedded_broker, slow, lambda: pytest.fail("looks at Java first"))
    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        said = run_command("broker", "--port", str(port), "--data-dir", str(tmp_path / "data"), code=2)
    assert " ".join(said.split()).endswith(
        f"The broker cannot listen on 127.0.0.1:{port}: Address already in use. End the program that listens there, or "
        "give the broker another port with --port (0 takes a free one)."
    )
    assert not (tmp_path / "data").exists()


def test_a_start_is_told_from_its_beginning_until_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start() -> NoReturn:
        assert capsys.readouterr().err == "starting Kafka; takes up to 10 s on an idle machine\n"
        said = ""

        def is_told_again() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return "still starting Kafka after " in said

        wait_until(is_told_again, 20, "the line")
        raise UserError("no Java")

    monkeypatch.setattr(start_progress, "AGAIN_S", 0.01)
    monkeypatch.setattr(embedded_broker, "find_java", start)
    with pytest.raises(UserError, match="no Java"):
        embedded_broker.run_broker_in_foreground()
