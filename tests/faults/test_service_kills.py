"""kill -9 of router, workers, transport and broker at random moments: each message comes once, and in order.

FAULTS_MOMENTS sets the number of kills. FAULTS_SEED replays a plan.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.differential import Outcome
from tests.support.fault_scene import SCENE_VARIABLE, KillableBroker, Report, kill_with_java, python_workers
from tests.support.seeds import fresh_seed
from tests.support.service_scene import ServiceScene, new_id, seen
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until

MOMENTS = int(os.environ.get("FAULTS_MOMENTS") or 4)
VICTIMS = ("router", "worker", "transport", "broker")
CONVERSATIONS = 40
DEADLINE_S = 90.0


class Traffic:
    """Both sides of some conversations send numbers, as fast as it makes sense beside what is tested."""

    def __init__(self, scene: ServiceScene, random: Random) -> None:
        """Begins the conversations."""
        self._scene, self._random = scene, random
        self.ids = [new_id() for _ in range(CONVERSATIONS)]
        # Conversation and whether the initiator sends -> number of messages.
        self.sent: Counter[tuple[str, bool]] = Counter()
        for name in self.ids:
            self._send(name, True, begin=True)
        scene.flush()
        scene.read(scene.reserve, CONVERSATIONS)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Sends during the block."""
        ends = threading.Event()

        def send() -> None:
            while not ends.wait(0.02):
                for _ in range(self._random.randrange(8)):
                    self._send(self._random.choice(self.ids), self._random.random() < 0.7)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            ends.set()
            sender.join()
        self._scene.flush()

    def faults(self) -> Outcome:
        """Compares the queues with what was sent."""
        lost = invented = repeated = 0
        for is_initiator, queue in ((True, self._scene.reserve), (False, self._scene.orders)):
            found = seen(self._scene.read(queue, 0))
            for name in {*found, *self.ids}:
                expected = [(str(n), b"%d" % n) for n in range(self.sent[name, is_initiator])]
                got = found.get(name, [])
                lost += len(set(expected) - set(got))
                invented += len(set(got) - set(expected))
                repeated += len(got) - len(set(got))
                assert got == expected or set(got) != set(expected) or len(got) != len(set(got)), "out of order"
        return Outcome(due=self.sent.total(), lost=lost, invented=invented, repeated=repeated)

    def _send(self, name: str, is_initiator: bool, **more: bool) -> None:
        number = self.sent[name, is_initiator]
        self.sent[name, is_initiator] += 1
        self._scene.say("MESSAGE", name, b"%d" % number, is_initiator=is_initiator, **more)


def settle(scene: ServiceScene, traffic: Traffic) -> None:
    """Waits until each message is in a queue or a dead letter."""

    def is_settled() -> bool:
        topics = (scene.reserve, scene.orders, scene.topics.service_dead_letters)
        return sum(len(scene.read(topic, 0)) for topic in topics) >= traffic.sent.total()

    wait_until(is_settled, DEADLINE_S, "all messages")


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
        settle(scene, traffic)
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
