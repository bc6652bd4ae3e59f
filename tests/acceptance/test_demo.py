"""The demos as `make demo`, `make demo-services` and `make demo-instances` run them."""

import re
import subprocess

import pytest

from streaming.cli.demo.demo import QUEUES
from streaming.system.processes import THIS_COMMAND
from tests.support.waiting import processes_with

# A demo takes up to two minutes; the rest is for a busy machine.
TIMEOUT_S = 240


def run_demo(*words: str) -> str:
    """Runs a demo, which must end with exit code 0 and leave nothing behind; returns its output."""
    demo = subprocess.run(
        [*THIS_COMMAND, "demo", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip
    assert demo.returncode == 0, demo.stdout + demo.stderr
    started = len(re.findall(r"reader \d+ started", demo.stdout))
    assert started == len(re.findall(r"reader \d+ exited", demo.stdout))
    assert bool(started) == (words != ("instances",)), "readers of several instances are threads"
    assert not processes_with("queue-activation-demo-"), "the demo left a process behind"
    return demo.stdout


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.usefixtures("java_and_jars")
def test_demo_ends_by_itself_with_everything_read() -> None:
    output = run_demo()
    sent = sum(count for queue in QUEUES for _, count in queue.sendings)
    assert re.search(rf"messages sent, read\s+{sent}, {sent}\b", output), output
    for queue in QUEUES:
        activations = re.findall(rf"{queue.name}\s+\*\*  activation (\d+)", output)
        assert activations == [str(number + 1) for number in range(len(activations))]
        # Each queue is activated again after its reader has exited.
        assert len(activations) >= 2, output
    assert "MESSAGES_ACCUMULATING" in output  # a second reader, for the queue for which one is too slow
    assert "arrival -> activation" in output
    assert "polling the lag" in output


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.short_lived_java
@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_services_ends_by_itself_with_everything_answered() -> None:
    output = run_demo("services")
    assert re.search(r"sent, delivered, answered\s+(\d+), \1, \1\b", output), output
    assert re.search(r"lost, twice, out of order\s+0, 0, 0\b", output), output
    for story in (
        ("ALTER ROUTE", "held (9796)", "CREATE SERVICE", "invoices  ->"),
        ("a timer is set", "DialogTimer", "->  1 reminder"),
    ):
        places = [output.find(text) for text in story]
        assert -1 not in places, output
        assert places == sorted(places), output
    for queue in ("north", "south", "answers", "invoices"):
        assert re.search(rf"{queue}\s+\*\*  activation 1  MESSAGE_ARRIVED_ON_EMPTY_QUEUE", output), output


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.short_lived_java
@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_instances_ends_by_itself_with_everything_answered() -> None:
    output = run_demo("instances")
    assert re.search(r"sent, delivered, answered\s+(\d+), \1, \1\b", output), output
    assert re.search(r"lost, twice, out of order\s+0, 0, 0\b", output), output
    story = (
        *("is cut for 20 s", "3 messages to //stock/audit", "in queue audit", "wait to be acknowledged"),
        "the link is mended",
        *("has everything that waited", "becomes a MIRROR", "in queue mirror", "has taken over: 5 conversations"),
    )
    places = [output.find(text) for text in story]
    assert -1 not in places, output
    assert places == sorted(places), output
    assert re.search(r"forwarded by west\s+3 messages\b", output), output
