"""The start of the embedded broker, when it takes too long."""

from pathlib import Path

import pytest

from streaming.errors import UserError
from streaming.system import embedded_broker

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
