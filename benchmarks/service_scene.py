"""The scene of the benchmarks of services: a shop that sends messages of 1 KB to 100 services, each with its queue.

10,000 conversations take turns, 100 for each service. A body begins with the time at which it was sent, its
conversation and its number in the conversation, so that a reader can tell whether all came, once and in order.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from streaming.kafka.admin import Admin
from streaming.kafka.clients import CLIENT_TIMEOUT_S, Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.system.processes import ChildProcess
from streaming.wire.notifications import Activation
from streaming.wire.topics import Topics

PARTITIONS = 8
SERVICES = 100
CONVERSATIONS = 10_000
# The first services get one message each in turn, so that each of these messages comes to an empty queue. All other
# messages go to the other services.
QUIET_SERVICES = 50
# One message in this many goes to a quiet service: with 1,000 messages/s, one in 10 s to each.
QUIET_EVERY = 200
_BODY = b"x" * 970
_HEAD_BYTES = 60
_AT_ONCE = 5_000
_LAST_MESSAGE_S = 300.0
_LAST_NOTIFICATION_S = 10.0
_STEP_S = 0.005
# Longer than a backlog takes to write.
_TRANSACTION_MS = 300_000


class Scene:
    """A shop with its services on a broker, under a topic prefix.

    Attributes:
        cluster: The broker.
        topics: The topics.
        queues: The queues of the services, which are also the names of their topics.
        producer: Sends messages and reports.
        sent: The number of messages sent.
        quiet_sent_s: Queue of a quiet service -> when its last message was sent.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        """Creates the topics and the services."""
        self.cluster = cluster
        self.topics = topics = Topics(prefix)
        self.queues = [f"{prefix}queue-{number}" for number in range(SERVICES)]
        admin = Admin(cluster)
        admin.create_topics(topics.specs(), 2, 1)
        admin.create_topics(topics.service_specs(), PARTITIONS, 1)
        # One partition, as `queue create` makes.
        self.create_topics(self.queues, 1)
        settings = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
        self.producer = cluster.producer(settings)
        transactional = {"transactional.id": f"{prefix}backlog", "transaction.timeout.ms": _TRANSACTION_MS}
        self._backlogs = cluster.producer(settings | transactional)
        self._backlogs.init_transactions()
        self._sequences: Counter[int] = Counter()
        self._sent_at_rate = 0
        self.sent = 0
        self.quiet_sent_s: dict[str, float] = {}
        self.command("CREATE_DATABASE", broker_instance="7f6d3c1e-0000-4000-8000-000000000001")
        self.command("CREATE_SERVICE", service="//shop/orders", queue="orders")
        for service, queue in self.queue_of_service.items():
            self.command("CREATE_SERVICE", service=service, queue=queue)
        self.producer.flush()

    @property
    def queue_of_service(self) -> dict[str, str]:
        """Service -> its queue."""
        return {_service(number): queue for number, queue in enumerate(self.queues)}

    def move_services(self, cluster: Cluster, there: str, back: str) -> Topics:
        """Moves the services into another instance. Returns its topics.

        Args:
            cluster: Its broker.
            there: The host and port by which messages go there.
            back: Those by which acknowledgements come back.
        """
        far = Topics(f"{self.topics.prefix}far-")
        admin = Admin(cluster)
        admin.create_topics(far.specs(), 2, 1)
        admin.create_topics(far.service_specs(), PARTITIONS, 1)
        if cluster is not self.cluster:
            self.create_topics(self.queues, 1, cluster)
        self.command("CREATE_ROUTE", route="far", address=f"tcp://{there}/{far.prefix}")
        for service in self.queue_of_service:
            self.command("DROP_SERVICE", service=service)
        producer = cluster.producer({"linger.ms": 5})
        way = {"address": f"tcp://{back}/{self.topics.prefix}", "service_name": "//shop/orders"}
        for command in (
            {"type": "CREATE_DATABASE", "broker_instance": "7f6d3c1e-0000-4000-8000-000000000002"},
            {"type": "CREATE_ROUTE", "route": "back", **way},
            *(
                {"type": "CREATE_SERVICE", "service": service, "queue": queue}
                for service, queue in self.queue_of_service.items()
            ),
        ):
            producer.produce(far.service_commands, json.dumps({"database": "stock", **command}), b"stock")
        producer.flush()
        self.producer.flush()
        return far

    def create_topics(self, names: Sequence[str], partitions: int, cluster: Cluster | None = None) -> None:
        """Creates topics for messages; `cluster`: on another broker than the scene's."""
        admin = (cluster or self.cluster).admin_client()
        for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            future.result()

    def command(self, kind: str, **fields: Any) -> None:
        """Writes a statement; the caller flushes."""
        value = json.dumps({"type": kind, "database": "shop", **fields})
        self.producer.produce(self.topics.service_commands, value, b"shop")

    def send_backlog(self, count: int) -> float:
        """Sends messages that all become readable at once. Returns when they did, by time.monotonic()."""
        self._backlogs.begin_transaction()
        for number in range(count):
            self._send(self._backlogs, number % CONVERSATIONS)
        self._backlogs.flush()
        begin_s = time.monotonic()
        self._backlogs.commit_transaction()
        return begin_s

    def send_at_rate(self, rate: int, seconds: float) -> None:
        """Sends messages at a rate, and reports that the quiet services' messages were received half a turn later."""
        # Goes on where the last call has ended. Otherwise a quiet queue could get two messages with no report between.
        first = self._sent_at_rate
        self._sent_at_rate += int(rate * seconds)
        begin_s = time.monotonic()
        for number in range(first, self._sent_at_rate):
            while time.monotonic() < begin_s + (number - first) / rate:
                time.sleep(_STEP_S)
                self.producer.poll(0)
            turn, is_other = divmod(number, QUIET_EVERY)
            if is_other:
                busy = SERVICES - QUIET_SERVICES
                self._send(self.producer, QUIET_SERVICES + number % busy + SERVICES * (number // busy % SERVICES))
                continue
            service = turn % QUIET_SERVICES
            self.quiet_sent_s[self.queues[service]] = time.monotonic()
            self._send(self.producer, service + SERVICES * (turn // QUIET_SERVICES % SERVICES))
            self._report_received(self.queues[(turn + QUIET_SERVICES // 2) % QUIET_SERVICES])
        self.producer.flush()

    def _report_received(self, queue: str) -> None:
        event = {
            "type": "RECEIVE",
            "queue": queue,
            "session_id": "reader",
            "result": "MESSAGES",
            "messages": 1,
            "unread": 0,
        }
        self.producer.produce(self.topics.receives, json.dumps(event), queue)

    def _send(self, producer: Producer, conversation: int) -> None:
        name = b"7f6d3c1e-0000-4000-8000-%012d" % conversation
        sequence = self._sequences[conversation]
        self._sequences[conversation] += 1
        envelope = {
            "type": "MESSAGE",
            "conversation_id": name.decode(),
            "is_initiator": True,
            "from_service": "//shop/orders",
            "from_database": "shop",
            "to_service": _service(conversation % SERVICES),
            "begin": not sequence,
        }
        body = b"%d %d %d " % (time.monotonic_ns(), conversation, sequence) + _BODY
        headers: list[tuple[str, str | bytes | None]] = [("envelope", json.dumps(envelope).encode())]
        producer.produce(self.topics.service_messages, body, name, headers=headers)
        producer.poll(0)
        self.sent += 1


def _service(number: int) -> str:
    return f"//stock/{number}"


class Reader:
    """Reads the topics into which messages are put, as a reader of committed records does, in a thread of its own.

    Attributes:
        count: The number of messages read.
        last_s: When the last one was read, by time.monotonic().
    """

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        """Connects.

        Args:
            cluster: The broker.
            topics: The topics, which must exist.
        """
        self.count = 0
        self.last_s = 0.0
        # Decoded later, because this process shares the cores with the programs that it measures.
        self._read: list[tuple[float, list[bytes]]] = []
        self._next: Counter[int] = Counter()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._consumer = cluster.consumer(
            {
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
            }
        )
        # A broker may name a topic only a moment after it was created.
        while not set(topics) <= (partitions := self._consumer.list_topics(timeout=CLIENT_TIMEOUT_S).topics).keys():
            time.sleep(_STEP_S)
        places = [TopicPartition(topic, number, 0) for topic in topics for number in partitions[topic].partitions]
        self._consumer.assign(places)

    @contextmanager
    def reading(self) -> Iterator["Reader"]:
        """Reads during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()
            self._consumer.close()

    def wait_for(self, count: int, programs: Iterable[ChildProcess]) -> None:
        """Waits until so many messages were read, while the programs run."""
        deadline_s = time.monotonic() + _LAST_MESSAGE_S
        while self.count < count:
            if time.monotonic() > deadline_s or any(program.poll() is not None for program in programs):
                raise SystemExit(f"only {self.count:,} of {count:,} messages came")
            time.sleep(0.02)

    def take_latencies(self) -> list[tuple[float, float]]:
        """Returns (when it was sent, time until it was read) of each message since the last call, in seconds.

        Raises:
            SystemExit: A message is missing, came twice or is out of order.
        """
        read, self._read = self._read, []
        found = []
        for at_s, heads in read:
            for head in heads:
                sent_ns, conversation, sequence = map(int, head.split(b" ", 3)[:3])
                if sequence != self._next[conversation]:
                    raise SystemExit(
                        f"conversation {conversation}: message {sequence} came instead of {self._next[conversation]}"
                    )
                self._next[conversation] += 1
                found.append((sent_ns / 1e9, at_s - sent_ns / 1e9))
        return found

    def _run(self) -> None:
        while not self._is_over.is_set():
            first = self._consumer.poll(0.1)
            if first is None:
                continue
            now_s = time.monotonic()
            messages = [first, *self._consumer.consume(_AT_ONCE, 0)]
            heads = [(each.value() or b"")[:_HEAD_BYTES] for each in messages if each.error() is None]
            self._read.append((now_s, heads))
            self.last_s = now_s
            self.count += len(heads)


class Notifications:
    """Reads the notifications of the quiet services' queues, in a thread of its own.

    Attributes:
        latencies_s: (when the message was sent, time until the notification was read) for each notification.
    """

    def __init__(self, scene: Scene) -> None:
        self.latencies_s: list[tuple[float, float]] = []
        self._scene = scene
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def reading(self) -> Iterator["Notifications"]:
        """Reads during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()

    def wait(self) -> None:
        """Waits until each message to a quiet service has its notification, but not for ever."""
        deadline_s = time.monotonic() + _LAST_NOTIFICATION_S
        while self._scene.quiet_sent_s and time.monotonic() < deadline_s:
            time.sleep(0.02)

    def _run(self) -> None:
        decode = msgspec.json.Decoder(Activation).decode
        with TopicFollower(self._scene.cluster, [self._scene.topics.activations], Start.END) as follower:
            while not self._is_over.is_set():
                message = follower.poll(0.1)
                if message is not None:
                    now_s = time.monotonic()
                    sent_s = self._scene.quiet_sent_s.pop(decode(message.value() or b"").queue, None)
                    if sent_s is not None:
                        self.latencies_s.append((sent_s, now_s - sent_s))
