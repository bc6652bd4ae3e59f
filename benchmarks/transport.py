"""Deliveries per second of the transport, beside a plain loop that copies the same messages in transactions.

    .venv/bin/python benchmarks/transport.py [--messages 200000] [--runs 3] [--profile]

Both read the same messages of 1 KB and write them into topics of the same form, one process each in turn, with the
broker on the same machine. The transport also reads the decisions, and writes arrivals and marks. The best run counts.
"""

import argparse
import cProfile
import os
import pstats
import resource
import time
import uuid
from collections import Counter
from collections.abc import Callable

import copy_loop
import msgspec
from confluent_kafka.admin import NewTopic
from machine import machine

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.kinds import Kind
from streaming.daemons.transport.settings import TransportSettings
from streaming.daemons.transport.transport import Transport
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.system.embedded_broker import EmbeddedBroker
from streaming.wire.decision_fields import fields_of
from streaming.wire.service_decisions import DecisionRecord, encoder
from streaming.wire.topics import Topics

PARTITIONS = 4
CONVERSATIONS = 10_000
BODY = os.urandom(512).hex().encode()
QUEUES = tuple(f"queue-{number}" for number in range(3))
IN_RECORD = 100


def fill(cluster: Cluster, topics: Topics, count: int) -> None:
    """Writes the messages, and the decisions to deliver them, in the order of the messages."""
    admin = Admin(cluster)
    admin.create_topics(topics.service_specs(), PARTITIONS, 1)
    needed = topics.arrivals, topics.service_maintenance
    admin.create_topics([spec for spec in topics.specs() if spec.name in needed], PARTITIONS, 1)
    for future in admin.client.create_topics([NewTopic(queue, PARTITIONS, 1) for queue in (*QUEUES, "copy")]).values():
        future.result()
    producer = cluster.producer({"queue.buffering.max.messages": 1_000_000})
    offsets: Counter[int] = Counter()
    sequences: Counter[int] = Counter()
    begun: dict[int, int] = {}
    decisions: list[list[Deliver]] = [[] for _ in range(PARTITIONS)]
    for number in range(count):
        conversation = number * 7919 % CONVERSATIONS
        name, partition = f"conversation-{conversation:08d}", conversation % PARTITIONS
        envelope = {
            "type": "MESSAGE",
            "conversation_id": name,
            "is_initiator": True,
            "from_service": "//shop/orders",
            "from_database": "shop",
            "to_service": "//stock/reserve",
            "message_type_name": "//stock/Reserve",
        }
        headers = {"envelope": msgspec.json.encode(envelope)}
        producer.produce(topics.service_messages, BODY, name, partition, headers=dict(headers))
        queue = QUEUES[conversation % len(QUEUES)]
        decisions[partition].append(
            Deliver(
                kind=Kind.MESSAGE,
                conversation_id=name,
                is_initiator=True,
                sequence=sequences[conversation],
                round=1,
                offset=offsets[partition],
                queue=queue,
                service="//stock/reserve",
                from_service="//shop/orders",
                group_id=name,
                begun=begun.setdefault(conversation, offsets[partition]),
            )
        )
        offsets[partition] += 1
        sequences[conversation] += 1
        producer.poll(0)
    for partition, found in enumerate(decisions):
        for at in range(0, len(found), IN_RECORD):
            fields = [*map(fields_of, found[at : at + IN_RECORD])]
            number = at // IN_RECORD + 1
            record = DecisionRecord(1, number, number, (at, 0), fields)
            producer.produce(topics.service_decisions, encoder.encode(record), None, partition)
    producer.flush()


def copy(cluster: Cluster, topics: Topics, count: int) -> float:
    """Copies the messages; returns messages per second."""
    begin_s = 0.0

    def is_over(done: int) -> bool:
        nonlocal begin_s
        begin_s = begin_s if done else time.monotonic()
        return done >= count

    copy_loop.copy(cluster.bootstrap_servers, topics.service_messages, "copy", is_over)
    return count / (time.monotonic() - begin_s)


def deliver(cluster: Cluster, topics: Topics, count: int) -> float:
    """Carries out the decisions from their beginning; returns deliveries per second."""
    renew_marks(cluster, topics)
    settings = TransportSettings(cluster, lambda _: cluster, topics.prefix, f"transport-{uuid.uuid4()}")
    with Transport(settings, print) as transport:
        while not transport.counts.delivered.total():
            begin_s = time.monotonic()
            transport.step(0.1)
        while transport.counts.delivered.total() < count:
            transport.step(0.1)
        return count / (time.monotonic() - begin_s)


def renew_marks(cluster: Cluster, topics: Topics) -> None:
    """Deletes the marks, so that the next transport begins at the beginning."""
    admin = Admin(cluster)
    specs = [spec for spec in topics.service_specs() if spec.name == topics.service_marks]
    admin.delete_topic(topics.service_marks)
    while not admin.create_topics(specs, PARTITIONS, 1):
        time.sleep(0.1)


def main() -> None:
    """Measures both in turn, and prints the best rates, their ratio, and the CPU time for a message."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="profile the transport in one more run")
    arguments = parser.parse_args()
    topics = Topics("bench-")
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, {})
        fill(cluster, topics, arguments.messages)
        rates: dict[Callable[[Cluster, Topics, int], float], list[float]] = {copy: [], deliver: []}
        for _ in range(arguments.runs):
            for run, found in rates.items():
                begin_s = time.process_time()
                found.append(run(cluster, topics, arguments.messages))
                cpu_us = 1e6 * (time.process_time() - begin_s) / arguments.messages
                print(f"{run.__name__}: {found[-1]:,.0f} messages/s, {cpu_us:.1f} us of CPU time each", flush=True)
        if arguments.profile:
            profile = cProfile.Profile()
            profile.runcall(deliver, cluster, topics, arguments.messages)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    best = {run: max(found) for run, found in rates.items()}
    print(machine())
    print(f"copy {best[copy]:,.0f}, transport {best[deliver]:,.0f} messages/s: {best[deliver] / best[copy]:.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
