"""The demos as `make demo-services`, `make demo-instances` and `make demo-observe` run them."""

import os
import re
import signal
from pathlib import Path

import pytest

from streaming.system.processes import THIS_COMMAND, ChildProcess
from tests.support.demos import TIMEOUT_S, run_demo
from tests.support.waiting import processes_with


@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_services_ends_by_itself_with_everything_answered(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "services")
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


@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_instances_ends_by_itself_with_everything_answered(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "instances")
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


@pytest.mark.usefixtures("java_and_jars")
def test_the_demo_of_plain_consumers_ends_by_itself_with_each_started_one_useful(tmp_path: Path) -> None:
    output = run_demo(tmp_path, "observe")
    assert re.search(r"messages sent, read\s+(\d+), \1\b", output), output
    assert re.search(r"aborted or expired\s+50; 0 of them read", output), output
    assert re.search(r"readers started\s+\d+; each has received messages", output), output
    # A second reader for the queue for which one is too slow; elsewhere one, and none where nothing can be read.
    assert re.search(r"most readers at a time\s+orders 2, invoices 1, payments 1, audit 1, archive 0", output), output
    assert re.search(r"a lag rule wanted\s+orders 2, invoices \d, payments 6, audit 3, archive 3", output), output
    for group in ("orders", "invoices", "payments", "audit"):
        assert re.search(rf"{group}\s+\*\*  activation 1  MESSAGE_ARRIVED_ON_EMPTY_QUEUE", output), output
    assert re.search(r"orders\s+\*\*  activation 2  MESSAGES_ACCUMULATING", output), output
    activations = output.count("  **  activation ")
    assert len(re.findall(r"\*\*  activation .*\n.*  ~~  a lag rule would want \d+ reader", output)) == activations


@pytest.mark.usefixtures("java_and_jars")
def test_ctrl_c_ends_the_demo_of_plain_consumers_with_all_that_it_has_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with ChildProcess([*THIS_COMMAND, "demo", "observe"], log_file=log, env=environment) as demo:
        demo.wait_until_said("reader 1 started")
        os.kill(demo.pid, signal.SIGINT)
        assert demo.wait(TIMEOUT_S) == 128 + signal.SIGINT
    assert "Traceback" not in log.read_text()
    assert log.read_text().count("stopping all programs") == 1
    assert not processes_with(str(tmp_path), "environ"), "the demo left a process behind"
    assert list(tmp_path.iterdir()) == [log]
