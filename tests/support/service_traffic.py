"""Conversations of two services that both send, while a test causes faults; and the count of faults."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.support.differential import Outcome
from tests.support.service_scene import ServiceScene, new_id, seen
from tests.support.waiting import wait_until

CONVERSATIONS = 40


class Traffic:
    """Both sides of some conversations send numbers, at a rate that leaves time for the tested programs.

    Attributes:
        sent: Conversation, and whether the initiator sends -> number of messages.
    """

    def __init__(self, scene: ServiceScene, random: Random, far: ServiceScene | None = None) -> None:
        """Begins the conversations.

        Args:
            scene: The instance of the initiators.
            random: The source of randomness.
            far: The instance of the targets; None: the same.
        """
        self._scene, self._far, self._random = scene, far or scene, random
        self.ids = [new_id() for _ in range(CONVERSATIONS)]
        self.sent: Counter[tuple[str, bool]] = Counter()
        for name in self.ids:
            self._send(name, True, begin=True)
        scene.flush()
        self._far.read(self._far.reserve, CONVERSATIONS)

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
        self._far.flush()

    def settle(self, deadline_s: float) -> None:
        """Waits until each message is in a queue or a dead letter."""
        topics = [(self._far, self._far.reserve), (self._scene, self._scene.orders)]
        topics += [(each, each.topics.service_dead_letters) for each in {id(each): each for each, _ in topics}.values()]

        def is_settled() -> bool:
            return sum(len(scene.read(topic, 0)) for scene, topic in topics) >= self.sent.total()

        wait_until(is_settled, deadline_s, "all messages")

    def faults(self) -> Outcome:
        """Compares the queues with the messages that were sent."""
        lost = invented = repeated = 0
        sides = ((True, self._far, self._far.reserve), (False, self._scene, self._scene.orders))
        for is_initiator, scene, queue in sides:
            found = seen(scene.read(queue, 0))
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
        scene = self._scene if is_initiator else self._far
        scene.say("MESSAGE", name, b"%d" % number, is_initiator=is_initiator, **more)
