"""The senders of the demo of plain consumers. They wait for conditions, so that a slow machine changes no result."""

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from streaming.cli.demo import observe_plan as plan
from streaming.cli.demo.observe_plan import DemoGroup, spread
from streaming.cli.demo.observe_story import ObserveStory
from streaming.cli.demo.stage import Actor
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster, Settings
from streaming.kafka.group_coordinator import wait_for_coordinator

# A new broker that is slow takes a while to make the topic of all groups.
_COORDINATOR_S = 60.0
# The pauses make the timeline readable.
_BEGIN_S = {plan.ORDERS: 0.5, plan.INVOICES: 1.5, plan.PAYMENTS: 4.0, plan.AUDIT: 7.0}
_SEEN_S = 3.0
# A burst that must go on gets more messages when a partition has so few.
_FEW, _MORE = 30, 60
_LOOK_S = 0.5
# The observer says this of offsets without content.
_IS_TESTED = "holds only offsets without content"


def prepare(cluster: Cluster) -> None:
    """Creates the topics, and the groups as if their consumers had read everything.

    The messages of ARCHIVE are deleted unread, as `retention.ms` deletes messages.
    """
    admin = Admin(cluster)
    new = [NewTopic(group.name, group.partitions, 1) for group in plan.GROUPS]
    for created in admin.client.create_topics(new).values():
        admin.client.result(created)
    for group in plan.GROUPS:
        places = [TopicPartition(group.name, partition, 0) for partition in range(group.partitions)]
        wait_for_coordinator(cluster, group.name, _COORDINATOR_S)
        consumer = cluster.consumer({"group.id": group.name})
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    messages = {f"expired {number}": number % plan.ARCHIVE.partitions for number in range(plan.EXPIRED)}
    _produce(cluster.producer(), plan.ARCHIVE, messages)
    to_end = [TopicPartition(plan.ARCHIVE.name, partition, -1) for partition in range(plan.ARCHIVE.partitions)]
    for deleted in admin.client.delete_records(to_end).values():
        admin.client.result(deleted)


def senders(cluster: Cluster, story: ObserveStory, observer_log: Path) -> list[Actor]:
    """Returns the senders. No messages are sent to ARCHIVE."""
    return [
        _Bursts(cluster, story, plan.ORDERS),
        _Trickle(cluster, story, plan.INVOICES),
        _HotPartition(cluster, story, plan.PAYMENTS),
        _Aborted(cluster, story, plan.AUDIT, observer_log),
    ]


class _Sender(Actor):
    """Sends to the topic of one group."""

    def __init__(self, cluster: Cluster, story: ObserveStory, group: DemoGroup, config: Settings | None = None) -> None:
        super().__init__(f"sender of {group.name}")
        self._story = story
        self._group = group
        self._sent = 0
        self._producer = cluster.producer(config)

    def _act(self) -> None:
        self.pause(_BEGIN_S[self._group])
        self._send_all()

    def _send_all(self) -> None:
        raise NotImplementedError

    def _send(self, counts: Mapping[int, int]) -> None:
        """Sends messages; `counts` has the number for each partition."""
        messages = self._numbered(counts)
        with self._story.sending(self._group.name, messages):
            self._produce(messages)

    def _produce(self, messages: Mapping[str, int]) -> None:
        _produce(self._producer, self._group, messages)

    def _numbered(self, counts: Mapping[int, int]) -> dict[str, int]:
        """Returns new messages -> partition."""
        partitions = [partition for partition, count in counts.items() for _ in range(count)]
        first, self._sent = self._sent + 1, self._sent + len(partitions)
        return {f"{self._group.name} {first + at}": partition for at, partition in enumerate(partitions)}

    def _rest(self) -> None:
        """Waits until everything is read and all readers have exited."""
        self.wait_until(lambda: self._story.is_at_rest(self._group.name))


class _Bursts(_Sender):
    """Sends a burst for which one reader is too slow, and later a small burst."""

    def _send_all(self) -> None:
        name, partitions = self._group.name, self._group.partitions
        self._send(spread(plan.BURST, partitions))
        while self._story.receiving[name] < plan.CONSUMERS_OF_BURST:
            self.pause(_LOOK_S)
            few = [place for place in range(partitions) if self._story.unread(name, place) < _FEW]
            if few:
                self._send(dict.fromkeys(few, _MORE))
        self._rest()
        self.pause(1.0)
        self._send(spread(plan.SMALL_BURST, partitions))


class _Trickle(_Sender):
    """Sends messages at intervals, and another message when the reader has left."""

    def _send_all(self) -> None:
        for number in range(plan.TRICKLE):
            self._send({number % self._group.partitions: 1})
            self.pause(plan.TRICKLE_INTERVAL_S)
        self._rest()
        self.pause(_SEEN_S)
        self._send({0: 1})


class _HotPartition(_Sender):
    """Sends all messages to one partition."""

    def _send_all(self) -> None:
        self._send({plan.HOT_PARTITION: plan.PAID})


class _Aborted(_Sender):
    """Sends messages in a transaction that it aborts, and later messages in committed transactions."""

    def __init__(self, cluster: Cluster, story: ObserveStory, group: DemoGroup, observer_log: Path) -> None:
        super().__init__(cluster, story, group, {"transactional.id": f"sender of {group.name}"})
        self._observer_log = observer_log

    def _send_all(self) -> None:
        self._producer.init_transactions()
        self._producer.begin_transaction()
        super()._produce({f"aborted {number}": number % self._group.partitions for number in range(plan.ABORTED)})
        self._producer.abort_transaction()
        self.wait_until(lambda: _IS_TESTED in self._observer_log.read_text(errors="replace"))
        self._story.cannot_be_read(self._group.name, f"a transaction of {plan.ABORTED} messages was aborted")
        self.pause(_SEEN_S)
        self._send(spread(plan.COMMITTED, self._group.partitions))

    def _produce(self, messages: Mapping[str, int]) -> None:
        self._producer.begin_transaction()
        super()._produce(messages)
        self._producer.commit_transaction()


def _produce(producer: Producer, group: DemoGroup, messages: Mapping[str, int]) -> None:
    """Sends messages, each to its partition."""
    for message, partition in messages.items():
        producer.produce(group.name, message, partition=partition)
    producer.flush()
