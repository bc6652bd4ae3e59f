"""Fills the topics of the monitor with recorded input, once for each set, seeded.

    .venv/bin/python benchmarks/generate.py --set main --bootstrap-servers localhost:9092

Each set's answer is the same however its records are batched and its two topics interleaved, so that engines can be
compared: the first record of a queue is an arrival of more messages than are ever received, and windows and time-outs
are longer than any run. So each queue is activated exactly once, by rule A.
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
# More than any queue's receives together.
FIRST_COUNT = 1_000_000


@dataclass(frozen=True)
class InputSet:
    """A recorded input: so many events over so many queues."""

    name: str
    events: int
    queues: int

    @property
    def prefix(self) -> str:
        """The prefix of its topics."""
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
    """(whether it is an arrival, queue, value) in the order in which they happen.

    Two thirds arrivals, one third receives: of messages, empty with WHERE, and waits.
    """
    random = Random(seed)  # noqa: S311  (no secret)
    is_known = bytearray(of.queues)
    unseen = of.queues
    for number in range(of.events):
        # Every queue occurs: towards the end only those are chosen that have not yet.
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
    """What one of three readers of a queue reports."""
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
    # Idempotent: a batch that is sent again, as right after the creation of a topic, must not land behind later ones.
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
    """Raises RuntimeError unless all is there, and each queue's first arrival is the great one."""
    seen: set[bytes] = set()
    counts = {topics.arrivals: 0, topics.receives: 0}
    with TopicFollower(cluster, [*counts], Start.BEGINNING) as follower:
        for message in follower.to_end():
            topic, key = message.topic() or "", message.key() or b""
            counts[topic] += 1
            if topic == topics.arrivals and key not in seen:
                seen.add(key)
                if json.loads(message.value() or b"").get("count") != FIRST_COUNT:
                    raise RuntimeError(f"{key!r}: its first arrival is not the great one")
    if len(seen) != of.queues or sum(counts.values()) != of.events:
        raise RuntimeError(f"{sum(counts.values())} events of {len(seen)} queues")


def main() -> None:
    """Fills one set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--set", choices=SETS, default="main")
    arguments = parser.parse_args()
    of = SETS[arguments.set]
    fill(Cluster(arguments.bootstrap_servers, {}), of)
    print(f"{of.events:,} events of {of.queues:,} queues in {of.prefix}queue-arrivals and {of.prefix}queue-receives")


if __name__ == "__main__":
    main()
