"""Refusals with advice: a second monitor on a topic prefix, and a checkpoint whose identifying files are damaged."""

import json
import re
import socket
from pathlib import Path

import pytest

from tests.support.monitors import DEADLINE_S, Monitored, kill
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication


@pytest.fixture
def monitored(broker: SharedBroker, spark: SparkApplication, tmp_path: Path) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path, [], spark)


def test_a_second_monitor_with_another_checkpoint_is_refused_and_the_first_goes_on(
    monitored: Monitored, spark: SparkApplication
) -> None:
    first, second = monitored.checkpoint, monitored.checkpoint.with_name("second")
    with monitored.running() as process, monitored.activations() as activations:
        checkpoint_id = json.loads((first / "queue-activation.json").read_text())["id"]
        monitored.checkpoint = second
        for options in ([], ["--continue-from", str(first)]):
            monitored.options = options
            said = refuses(monitored, "Another monitor runs on the same topics")
            name = f"{socket.gethostname()}_{spark.pid}_checkpoint at 127.0.0.1"
            for part in (name, checkpoint_id, "--topic-prefix"):
                assert part in said
        assert not second.exists(), "a refused monitor leaves no checkpoint"
        monitored.arrive("Q")
        activations.wait_for("Q", 1)
        assert process.poll() is None
        assert process.stop(60) == 0
        assert len(activations.of("Q")) == 1


def test_the_same_checkpoint_is_refused_while_its_monitor_runs_and_starts_at_once_after_a_kill(
    monitored: Monitored, capsys: pytest.CaptureFixture[str]
) -> None:
    with monitored.running_process() as first:
        said = refuses(monitored, f"process {first.pid} on this machine")
        assert f"`kill {first.pid}`" in said
        assert "--take-over" in said
        assert first.poll() is None
        monitored.options = ["--take-over"]
        with monitored.running_process() as second:
            assert first.wait(DEADLINE_S) == 2
            kill(second)
        monitored.options = []
        with monitored.running() as third:
            assert third.stop(60) == 0
    said = capsys.readouterr().out
    assert said.count("has taken this one's place") == 1
    assert said.count("Taking the place of the monitor that has ended") == 1
    for sign in ("Traceback", "RejectedExecutionException", "NullPointerException", "is aborting"):
        assert sign not in said, said


def test_a_damaged_file_that_identifies_the_checkpoint_is_one_clear_message(monitored: Monitored) -> None:
    with monitored.running() as process:
        assert process.stop(60) == 0
    layout, metadata = monitored.checkpoint / "queue-activation.json", monitored.checkpoint / "metadata"
    content = layout.read_bytes()
    corrupt = "queue-activation.json is corrupt. Restore the file from any backup"
    layout.write_bytes(content[:40])
    # Hadoop checks a file against the checksum beside it, if there is one.
    refuses(monitored, corrupt)
    layout.with_name(".queue-activation.json.crc").unlink()
    refuses(monitored, corrupt)
    layout.write_bytes(content)
    metadata.write_bytes(b"")
    lost = "metadata is missing or corrupt. Restore the file from any backup"
    refuses(monitored, lost)
    metadata.unlink()
    missing, said = refuses(monitored, lost), refuses(monitored, lost)
    # Each time with a new id for the query.
    assert missing != said
    assert re.sub('"id":"[^"]*"', "", missing) == re.sub('"id":"[^"]*"', "", said)
    metadata.write_text(said[said.index("{") : said.index("}") + 1])
    metadata.with_name(".metadata.crc").unlink()
    with monitored.running() as process, monitored.activations() as activations:
        monitored.arrive("Q")
        activations.wait_for("Q", 1)
        assert process.stop(60) == 0


def refuses(monitored: Monitored, advice: str) -> str:
    """Runs a monitor that must end with one message, which contains the advice; returns the message."""
    refused = monitored.fails()
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    [said] = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert advice in said
    return said
