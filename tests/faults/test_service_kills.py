"""kill -9 of router, workers, transport and broker at random moments: each message comes once, and in order.

FAULTS_MOMENTS sets the number of kills. FAULTS_SEED replays a plan.
"""

import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.support.fault_scene import SCENE_VARIABLE, KillableBroker, Report, kill_with_java, python_workers
from tests.support.seeds import fresh_seed
from tests.support.service_scene import ServiceScene
from tests.support.service_traffic import Traffic
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until

MOMENTS = int(os.environ.get("FAULTS_MOMENTS") or 4)
VICTIMS = ("router", "worker", "transport", "broker")
DEADLINE_S = 90.0


@pytest.mark.timeout(180 + 40 * MOMENTS)
def test_each_message_comes_once_and_in_order_whatever_is_killed(
    killable_broker: KillableBroker, tmp_path: Path, report: Report
) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} FAULTS_MOMENTS={MOMENTS} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    random = Random(seed)  # noqa: S311  (no secret)
    scene = ServiceScene(killable_broker.bootstrap_servers, tmp_path)
    scene.define()
    router, transport = scene.program("router"), scene.program("transport")
    router.environment = {SCENE_VARIABLE: scene.prefix}
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(MOMENTS)]
    random.shuffle(victims)

    def kill(victim: str) -> None:
        if victim == "router":
            kill_with_java(router)
            router.start()
            router.wait_until_ready()
        elif victim == "worker":
            workers = wait_until(lambda: python_workers(scene.prefix), DEADLINE_S, "a Python worker")
            os.kill(random.choice(sorted(workers)), signal.SIGKILL)
        elif victim == "transport":
            transport.kill()
            transport.start()
            transport.wait_until_ready()  # a start fails while the broker is away
        else:
            killable_broker.kill()
            time.sleep(random.uniform(0, 3))  # the length of the outage
            killable_broker.start()

    with scene.running(router, transport):
        traffic = Traffic(scene, random)
        with traffic.going_on():
            for victim in victims:
                time.sleep(random.uniform(1, 4))  # a moment by the plan; this does not wait for a result
                kill(victim)
            time.sleep(random.uniform(1, 4))
        traffic.settle(DEADLINE_S)
        router.check()
        transport.check()
    counts = Counter(victims)
    outcome = traffic.faults()
    fault = "services, kill -9: " + ", ".join(f"{victim} {counts[victim]}" for victim in VICTIMS)
    report(fault, MOMENTS, outcome)
    letters = scene.read(scene.topics.service_dead_letters, 0)
    assert not letters, [headers_of(letter) for letter in letters[:3]]
    assert (outcome.lost, outcome.invented, outcome.repeated) == (0, 0, 0)
    assert scene.arrivals(outcome.due).total() == outcome.due
