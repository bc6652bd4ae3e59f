"""The demo as `make demo` runs it."""

import re
import subprocess

import pytest

from streaming.cli.demo.demo import QUEUES
from streaming.system.processes import THIS_COMMAND
from tests.support.waiting import processes_with

# The demo takes up to two minutes; the rest is for a busy machine.
TIMEOUT_S = 180


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.usefixtures("java_and_jars")
def test_demo_ends_by_itself_with_everything_read() -> None:
    demo = subprocess.run(
        [*THIS_COMMAND, "demo"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    assert demo.returncode == 0, demo.stdout + demo.stderr
    sent = sum(count for queue in QUEUES for _, count in queue.sendings)
    assert re.search(rf"messages sent, read\s+{sent}, {sent}\b", demo.stdout), demo.stdout
    for queue in QUEUES:
        activations = re.findall(rf"{queue.name}\s+\*\*  activation (\d+)", demo.stdout)
        assert activations == [str(number + 1) for number in range(len(activations))]
        # Each queue is activated again after its reader has exited.
        assert len(activations) >= 2, demo.stdout
    started = len(re.findall(r"reader \d+ started", demo.stdout))
    assert started == len(re.findall(r"reader \d+ exited", demo.stdout)) > 0
    assert "MESSAGES_ACCUMULATING" in demo.stdout  # a second reader, for the queue for which one is too slow
    assert "arrival -> activation" in demo.stdout
    assert "polling the lag" in demo.stdout
    assert not processes_with("queue-activation-demo-"), "the demo left a process behind"
