"""The demo as `make demo` runs it."""

import re
from pathlib import Path

import pytest

from streaming.cli.demo.demo import FIRST, QUEUES
from tests.support.demos import run_demo


@pytest.mark.usefixtures("java_and_jars")
def test_demo_ends_by_itself_with_everything_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # With the settings of Java that a user has, not with those for short lives.
    for name in ("SPARK_SUBMIT_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS"):
        monkeypatch.delenv(name, raising=False)
    output = run_demo(tmp_path)
    sent = sum(FIRST * len(queue.bursts) + sum(count for _, count in queue.sendings) for queue in QUEUES)
    [(arrived, read)] = re.findall(r"messages sent, read\s+(\d+), (\d+)\b", output)
    assert int(arrived) == int(read) >= sent, "where readers start slowly, a burst goes on"
    # A second reader has had work in a burst, however slowly it has started.
    for name in {queue.name for queue in QUEUES if queue.bursts}:
        request = rf"{name}\s+\*\*  activation \d+  .* unread\n(?:.*\n)*?.*{name}\s+>>  reader (\d+) started"
        seconds = re.findall(request, output)
        assert any(re.search(rf"reader {number} exited, [1-9]", output) for number in seconds), output
    for queue in QUEUES:
        activations = re.findall(rf"{queue.name}\s+\*\*  activation (\d+)", output)
        assert activations == [str(number + 1) for number in range(len(activations))]
        # Each queue is activated again after its reader has exited.
        assert len(activations) >= 2, output
    assert "MESSAGES_ACCUMULATING" in output  # a second reader, for the queue for which one is too slow
    assert "arrival -> activation" in output
    assert "polling the lag" in output
