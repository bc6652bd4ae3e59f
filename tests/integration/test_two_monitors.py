"""Refusals with advice: a second monitor on a topic prefix, and a checkpoint whose identifying files are damaged."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess, own_environment
from tests.support.monitors import DEADLINE_S, Monitored, kill


@pytest.fixture(scope="module")
def monitored(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Monitored:
    return Monitored(broker.bootstrap_servers, tmp_path_factory.mktemp("two-monitors"), [])


@pytest.fixture(scope="module")
def first(monitored: Monitored) -> Iterator[ChildProcess]:
    """Runs the first monitor of the topics, for the tests before it has to end."""
    with monitored.running() as process:
        yield process


def test_a_second_monitor_with_another_checkpoint_is_refused_and_the_first_goes_on(
    monitored: Monitored, first: ChildProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, second = monitored.checkpoint, monitored.checkpoint.with_name("second")
    with monitored.activations() as activations:
        checkpoint_id = json.loads((checkpoint / "queue-activation.json").read_text())["id"]
        monkeypatch.setattr(monitored, "checkpoint", second)
        for options in ([], ["--continue-from", str(checkpoint)]):
            monkeypatch.setattr(monitored, "options", options)
            said = refuses(monitored, "Another monitor runs on the same topics")
            for part in (
                f"{socket.gethostname()}_{first.pid}_checkpoint at 127.0.0.1",
                checkpoint_id,
                "--topic-prefix",
            ):
                assert part in said
        assert not second.exists(), "a refused monitor leaves no checkpoint"
        monitored.arrive("Q")
        activations.wait_for("Q", 1)
        activations.read_all()
        assert len(activations.of("Q")) == 1
        assert first.poll() is None


def test_the_same_checkpoint_starts_at_once_after_a_kill_and_ends_a_monitor_that_still_runs(
    monitored: Monitored, first: ChildProcess
) -> None:
    with monitored.running() as second:
        assert first.wait(DEADLINE_S) == 2
        assert second.poll() is None
        kill(second)
    with monitored.running() as third:
        assert third.stop(60) == 0
    said = "".join(log.read_text() for log in monitored.folder.glob("monitor-*.log"))
    assert said.count("Another monitor was started on the same checkpoint") == 1
    assert "for it to end" not in said, "the third monitor waited for the session of the killed one"
    assert "Traceback" not in said


def test_a_damaged_file_that_identifies_the_checkpoint_is_one_clear_message(
    monitored: Monitored, first: ChildProcess
) -> None:
    if first.poll() is None:  # no other test has run before
        assert first.stop(60) == 0
    layout, metadata = monitored.checkpoint / "queue-activation.json", monitored.checkpoint / "metadata"
    content = layout.read_bytes()
    with opening(monitored) as problem:
        layout.write_bytes(content[:40])
        # Hadoop checks a file against the checksum beside it, if there is one.
        assert "queue-activation.json is corrupt. Restore the file from any backup" in problem()
        layout.with_name(".queue-activation.json.crc").unlink()
        assert "queue-activation.json is corrupt. Restore the file from any backup" in problem()
        layout.write_bytes(content)
        metadata.write_bytes(b"")
        assert "metadata is missing or corrupt. Restore the file from any backup" in problem()
        metadata.unlink()
        missing = problem()
    said = refuses(monitored, "metadata is missing or corrupt. Restore the file from any backup")
    # Each time with a new id for the query.
    assert re.sub('"id":"[^"]*"', "", missing) == re.sub('"id":"[^"]*"', "", said)
    metadata.write_text(said[said.index("{") : said.index("}") + 1])
    metadata.with_name(".metadata.crc").unlink()
    with monitored.running() as process, monitored.activations() as activations:
        monitored.arrive("afterwards")
        activations.wait_for("afterwards", 1)
        assert process.stop(60) == 0


# Opens a checkpoint as `monitor` does for each line of its input, and prints the error. One start of Java for all.
_OPENS = """
import sys
from streaming.errors import UserError
from streaming.spark import progress_files, session
from streaming.spark.activation import checkpoint_layout
_, location, prefix = sys.argv
spark = session.create(location, "512m")
for _ in sys.stdin:
    try:
        progress_files.require_whole(spark, location)
        checkpoint_layout.settle(spark, location, checkpoint_layout.Wanted(None, prefix, {}, None))
    except UserError as error:
        print(f"error: {error}", flush=True)
spark.stop()
"""


@contextmanager
def opening(monitored: Monitored) -> Iterator[Callable[[], str]]:
    """Yields a function that opens the checkpoint and returns the error."""
    command = [sys.executable, "-c", _OPENS, str(monitored.checkpoint), monitored.prefix]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own_environment()
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert answers is not None

        def problem() -> str:
            print(file=asked, flush=True)
            return answers.readline().strip()

        yield problem


def refuses(monitored: Monitored, advice: str) -> str:
    """Runs a monitor that must end with one message, which contains the advice; returns the message."""
    refused = monitored.fails()
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr
    [said] = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert advice in said
    return said
