"""Consumers that report nothing and never exit, as processes of the activator. The tests write the monitors view."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.core.times import iso_time
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from tests.support.activating import DEADLINE_S, Activating, Start
from tests.support.shared_broker import SharedBroker
from tests.support.waiting import is_running, wait_until

GROUP = {"group": "orders", "startup_grace": "1ms", "idle_stop": "1s"}
# Notes the signal, finishes its work when a file says so, and ends with an exit code that means a crash.
FINISHES = """
trap 'touch "$FOLDER/asked"; until [ -e "$FOLDER/done" -o -e "$FOLDER/end" ]; do sleep 0.05; done; exit 3' TERM
echo "$$ $QUEUE_ACTIVATION_SESSION_ID" >> "$FOLDER/$1.starts"
until [ -e "$FOLDER/end" ]; do sleep 0.05; done
"""


@pytest.fixture
def activating(broker: SharedBroker, tmp_path: Path) -> Iterator[Activating]:
    with Activating(broker.bootstrap_servers, tmp_path) as its:
        yield its


def show_idle(activating: Activating, members: int) -> None:
    """Writes the row of a group that has been idle for a minute, as the observer and the monitor just say."""
    now_ms = time.time_ns() // 1_000_000
    times = {"update_time": iso_time(now_ms), "idle_since": iso_time(now_ms - 60_000)}
    activating.show("orders", 9, "INACTIVE", 0, members=members, one_more=False, **times)


def wait_while_idle(activating: Activating, text: str, count: int = 1) -> None:
    """Writes the row again and again, as the monitor does, until the log has a text so often."""

    def has_text() -> bool:
        show_idle(activating, 3)
        return activating.log().count(text) == count

    wait_until(has_text, DEADLINE_S, f"{count} times {text!r} in the log")


def started(activating: Activating, count: int) -> list[Start]:
    for sequence in range(1, count + 1):
        activating.notify("orders", sequence, "MESSAGES_ACCUMULATING")
        activating.wait_for_starts("orders", sequence)
    return activating.starts("orders")


def test_consumers_of_an_idle_group_get_sigterm_one_at_a_time_down_to_min(activating: Activating) -> None:
    activating.write_config("orders", max=3, **GROUP)
    with activating.running():
        oldest, *younger = started(activating, 3)
        activating.write_config("orders", max=3, min=1, **GROUP)
        activating.wait_for_log("config: reloaded")
        wait_while_idle(activating, "ended as it was asked to, killed by signal 15", 2)
        show_idle(activating, 1)
        activating.wait_for_ended(*(each.session_id for each in younger), interrupted=True)
        asked = [line for line in activating.log().splitlines() if "orders: stopping" in line]
        assert [f"(process {each.pid})" in line for each, line in zip(younger[::-1], asked, strict=True)] == [True] * 2
        assert "because the group has had nothing unread and has committed nothing for 1 s (`idle_stop`)" in asked[0]
        assert is_running(oldest.pid)
        assert len(activating.starts("orders")) == 3


def test_a_consumer_finishes_its_work_even_if_the_activator_is_killed_meanwhile(activating: Activating) -> None:
    (activating.folder / "program.sh").write_text(FINISHES)
    activating.write_config("orders", **GROUP)
    with activating.running() as process:
        [start] = started(activating, 1)
        wait_while_idle(activating, "orders: stopping")
        asked = activating.folder / "asked"
        wait_until(asked.exists, DEADLINE_S, "the signal")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
    asked.unlink()
    with activating.running():
        activating.wait_for_log("still running, started by an earlier run")
        show_idle(activating, 1)
        assert is_running(start.pid)
        (activating.folder / "done").touch()
        wait_while_idle(activating, "ended as it was asked to, exit code unknown")
        activating.wait_for_ended(start.session_id, interrupted=True)
        assert not asked.exists(), "it was asked twice"
        assert (len(activating.starts("orders")), "crash" in activating.log()) == (1, False)


def test_kafka_says_how_long_it_keeps_the_offsets_of_groups(broker: SharedBroker) -> None:
    assert Admin(Cluster(broker.bootstrap_servers)).offsets_retention_ms(DEADLINE_S) == 7 * 24 * 3_600_000
