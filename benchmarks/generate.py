"""Fills the monitor's topics with the recorded input of one set, from a seed.

    .venv/bin/python benchmarks/generate.py --set main --bootstrap-servers localhost:9092

The first record of a queue is an arrival of more messages than its readers ever receive, and windows and time-outs are
longer than any run. So each queue is activated exactly once, by rule A, however an engine batches the records and
interleaves the two topics. All engines must therefore give the same answer.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.topics import Topics

PARTITIONS = 4
SEED = 1
# More messages than all receives of a queue take.
FIRST_COUNT = 1_000_000


@dataclass(frozen=True)
class InputSet:
    """A recorded input: a number of events over a number of queues."""

    name: str
    events: int
    queues: int

    @property
    def prefix(self) -> str:
        """Returns the prefix of the set's topics."""
        return f"{self.name}-"


SETS = {
    one.name: one
    for one in (
        InputSet("main", 3_000_000, 10_000),
        InputSet("many", 200_000, 50_000),
        InputSet("million", 1_000_000, 1_000_000),
        InputSet("quick", 1_000_000, 10_000),
    )
}


def events(of: InputSet, seed: int = SEED) -> Iterator[tuple[bool, str, dict[str, object]]]:
    """Yields the events in order, as (whether it is an arrival, queue, value).

    Two thirds are arrivals. The rest are results of RECEIVE: messages, nothing found with WHERE, and waits.
    """
    random = Random(seed)  # noqa: S311  (no secret)
    is_known = bytearray(of.queues)
    unseen = of.queues
    for number in range(of.events):
        # Every queue must occur. Towards the end, only queues that have not occurred yet are chosen.
        index = number if of.events == of.queues else random.randrange(of.queues)
        if unseen and of.events - number <= unseen:
            index = is_known.find(0)
        queue = f"queue-{index}"
        if not is_known[index]:
            is_known[index] = 1
            unseen -= 1
            yield True, queue, {"type": "MESSAGE_ARRIVED", "queue": queue, "count": FIRST_COUNT}
        elif random.random() < 2 / 3:
            group = f"group-{random.randrange(100)}"
            yield True, queue, {"queue": queue, "message_id": f"m-{number}", "conversation_group_id": group}
        else:
            yield False, queue, receive(queue, random)


def receive(queue: str, random: Random) -> dict[str, object]:
    """Returns a report of one of the queue's three readers."""
    record: dict[str, object] = {"type": "RECEIVE", "queue": queue, "session_id": f"{queue}-{random.randrange(3)}"}
    kind = random.random()
    if kind < 0.8:
        return record | {"result": "MESSAGES", "messages": random.randint(1, 5)}
    if kind < 0.9:
        return record | {"result": "EMPTY", "where": True}
    return record | {"result": "WAITING", "timeout_ms": 3_600_000}


def fill(cluster: Cluster, of: InputSet) -> None:
    """Creates the set's topics and writes its records."""
    topics = Topics(of.prefix)
    Admin(cluster).create_topics(topics.specs(), partitions=PARTITIONS, replication_factor=1)
    # Idempotent: a retried batch must not land behind later ones. Retries occur right after a topic is created.
    settings = {"linger.ms": 50, "batch.size": 500_000, "enable.idempotence": True}
    producer = cluster.producer(settings)
    for is_arrival, queue, value in events(of):
        topic = topics.arrivals if is_arrival else topics.receives
        text = json.dumps(value, separators=(",", ":"))
        while True:
            try:
                producer.produce(topic, key=queue, value=text)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    _check(cluster, topics, of)


def _check(cluster: Cluster, topics: Topics, of: InputSet) -> None:
    """Checks that all events are in the topics, and that each queue's first arrival has FIRST_COUNT messages.

    Raises:
        RuntimeError: Events are missing, or a first arrival has another count.
    """
    seen: set[bytes] = set()
    counts = {topics.arrivals: 0, topics.receives: 0}
    with TopicFollower(cluster, [*counts], Start.BEGINNING) as follower:
        for message in follower.to_end():
            topic, key = message.topic() or "", message.key() or b""
            counts[topic] += 1
            if topic == topics.arrivals and key not in seen:
                seen.add(key)
                if json.loads(message.value() or b"").get("count") != FIRST_COUNT:
                    raise RuntimeError(f"Queue {key!r}: the first arrival does not have {FIRST_COUNT:,} messages")
    if len(seen) != of.queues or sum(counts.values()) != of.events:
        raise RuntimeError(
            f"The topics have {sum(counts.values()):,} events of {len(seen):,} queues instead of {of.events:,} events "
            f"of {of.queues:,} queues"
        )


def main() -> None:
    """Fills the topics of one set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--set", choices=SETS, default="main")
    arguments = parser.parse_args()
    of = SETS[arguments.set]
    fill(Cluster(arguments.bootstrap_servers, {}), of)
    print(f"{of.events:,} events of {of.queues:,} queues in {of.prefix}queue-arrivals and {of.prefix}queue-receives")


if __name__ == "__main__":
    main()
