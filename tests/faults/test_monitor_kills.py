"""kill -9 of the driver, of Python workers and of the broker at random moments, most of them during a batch.

FAULTS_MOMENTS sets the number of kills; `make test-all` has one of each kind. FAULTS_SEED replays a plan and a history.
"""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.fault_scene import KillableBroker, Report, Scene
from tests.support.seeds import fresh_seed

MOMENTS = int(os.environ.get("FAULTS_MOMENTS") or 3)
VICTIMS = ("driver", "worker", "broker")


@pytest.mark.timeout(60 + 30 * MOMENTS)
def test_the_pipeline_writes_what_the_core_writes_whatever_is_killed(
    killable_broker: KillableBroker, tmp_path: Path, report: Report
) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} FAULTS_MOMENTS={MOMENTS} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    with Scene(killable_broker, tmp_path, seed) as scene:
        # All kinds nearly equally often, in random order.
        victims = [VICTIMS[number % len(VICTIMS)] for number in range(MOMENTS)]
        scene.random.shuffle(victims)
        with scene.history.going_on():
            for victim in victims:
                time.sleep(scene.random.uniform(1, 4))  # a moment by the plan; this does not wait for a result
                kill(victim, scene)
            time.sleep(scene.random.uniform(1, 4))
        counts = Counter(victims)
        fault = "kill -9: " + ", ".join(f"{victim} {counts[victim]}" for victim in VICTIMS)
        outcome = scene.finish(fault, MOMENTS, report)
    assert outcome.due > 2 * MOMENTS, "the history brought hardly any notifications"


def kill(victim: str, scene: Scene) -> None:
    """Kills the victim, and starts it again if nothing else does."""
    if victim == "driver":
        scene.kill_driver()
        scene.start()
    elif victim == "worker":
        scene.kill_worker()
    else:
        scene.broker.kill()
        time.sleep(scene.random.uniform(0, 3))  # the length of the outage
        scene.broker.start()
