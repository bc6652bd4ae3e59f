"""kill -9 of the observer at random moments: while nothing is unread, after messages were sent, while a reader reads.

Each time that messages come to the group, which has no members then, exactly one activation is due. FAULTS_MOMENTS sets
the number of kills, FAULTS_SEED replays the plan.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.differential import Outcome
from tests.support.fault_scene import KillableBroker, Report
from tests.support.monitors import Monitored
from tests.support.observing import Observing, Reports
from tests.support.plain_consumers import librdkafka_member
from tests.support.seeds import fresh_seed

MOMENTS = int(os.environ.get("FAULTS_MOMENTS") or 3)
PHASES = ("idle", "sent", "reading")
# No notification is repeated while the test runs.
OPTIONS = ["--external-activation-timeout", "1h"]


class Watched:
    """The observer, which is killed and started again."""

    def __init__(self, observing: Observing, random: Random) -> None:
        self._observing = observing
        self._random = random
        self._process = observing.process()

    def kill(self) -> None:
        """Kills the observer within the next seconds, ready or not, and starts another one."""
        time.sleep(self._random.uniform(0, 3))  # a moment by the plan; this does not wait for a result
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.stop()
        self._process = self._observing.process()

    def stop(self) -> None:
        self._process.stop()


@contextmanager
def watched(observing: Observing, random: Random) -> Iterator[Watched]:
    found = Watched(observing, random)
    try:
        yield found
    finally:
        found.stop()


@pytest.mark.timeout(120 + 90 * MOMENTS)
def test_each_message_to_a_group_that_nobody_reads_is_notified_once_whenever_the_observer_is_killed(
    killable_broker: KillableBroker, tmp_path: Path, report: Report
) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} FAULTS_MOMENTS={MOMENTS} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    random = Random(seed)  # noqa: S311  (no secret)
    monitored = Monitored(killable_broker.bootstrap_servers, tmp_path, OPTIONS)
    observing = Observing(killable_broker.bootstrap_servers, tmp_path, monitored.prefix)
    topic = observing.topic(1)
    observing.commit(topic, 0)
    with (
        monitored.running(),
        monitored.activations() as activations,
        Reports(observing) as reports,
        watched(observing, random) as observer,
    ):
        reports.wait_for(unread=0, one_more=False, members=0)
        for number in range(1, MOMENTS + 1):
            phase = random.choice(PHASES)
            if phase == "idle":
                observer.kill()
            observing.send(topic, *[0] * random.randint(1, 3))
            if phase == "sent":
                observer.kill()
            activations.wait_for(observing.group, number)
            with librdkafka_member(observing.bootstrap_servers, observing.group, [topic]):
                if phase == "reading":
                    observer.kill()
                reports.wait_for(unread=0, one_more=False, members=1)
            reports.wait_for(unread=0, one_more=False, members=0)
        activations.read_all()
        found = len(activations.of(observing.group))
    outcome = Outcome(MOMENTS, max(0, MOMENTS - found), max(0, found - MOMENTS), 0)
    report(f"kill -9: observer {MOMENTS}", MOMENTS, outcome)
    assert (outcome.lost, outcome.invented) == (0, 0)
