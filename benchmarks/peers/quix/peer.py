"""Quix Streams: two processes of one consumer group, and a third for the timers that Quix Streams does not have.

A timer is a record of a compacted topic. The timer process reads that topic from its beginning, so timers survive the
process. When a timer is due, it writes a record to a third input topic.
"""

import multiprocessing
import signal
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from python_peers.clock import now_ms
from python_peers.command_line import Options, parse
from python_peers.committed import CommittedOffsets, partitions
from python_peers.processes import running
from python_peers.progress import EventCounter, print_progress, quiet_children, stop_event
from python_peers.rules import Monitor, decode, decode_record, encode
from python_peers.timers import Timers
from quixstreams import Application, State

PROCESSES = 2
PARTITIONS = 4
TIMER_POLL_S = 0.1
# A queue must be in the same partition of both inputs and of the checks. Quix Streams itself uses murmur2, too.
PARTITIONER = {"partitioner": "murmur2_random"}
CHECK = b"check"


def main() -> None:
    """Starts the processes, and prints their progress."""
    options = parse()
    is_stopping = stop_event()
    quiet_children(options.folder)
    create_topics(options)
    committed = CommittedOffsets(options)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_timers, args=(options,))]
    processes += [context.Process(target=run_application, args=(options, number)) for number in range(PROCESSES)]
    with running(processes) as are_alive:
        print_progress(options, committed.are_complete, are_alive, is_stopping)


def timers_topic(options: Options) -> str:
    """Returns the topic of timers. Key: queue. Value: when its timer is due, in milliseconds since 1970."""
    return f"{options.group}-timers"


def checks_topic(options: Options) -> str:
    """Returns the topic of checks. Key: a queue whose timer is due."""
    return f"{options.group}-checks"


def create_topics(options: Options) -> None:
    """Creates the topics for timers and checks."""
    compacted = {"cleanup.policy": "compact"}
    client = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    topics = [
        NewTopic(timers_topic(options), PARTITIONS, 1, config=compacted),
        NewTopic(checks_topic(options), PARTITIONS, 1),
    ]
    for future in client.create_topics(topics).values():
        future.result()


def run_application(options: Options, number: int) -> None:
    """Runs one process of the application."""
    application = Application(
        broker_address=options.bootstrap_servers,
        consumer_group=options.group,
        auto_offset_reset="earliest",
        state_dir=options.folder / f"state-{number}",
        consumer_extra_config={"fetch.queue.backoff.ms": 10, "queued.min.messages": 200_000},
        producer_extra_config=PARTITIONER,
        # A read ends after 10,000 records or after this time. The default of a second would be the latency.
        consumer_poll_timeout=0.05,
        loglevel="WARNING",
    )
    names = (*options.topics, checks_topic(options))
    arrivals, receives, checks = (application.topic(name, value_deserializer="bytes") for name in names)
    activations = application.topic(options.output_topic, value_serializer="bytes")
    timers = application.topic(timers_topic(options), value_serializer="json")
    counter = EventCounter(options.folder)

    def step(value: bytes, key: bytes, _timestamp: int, _headers: object, state: State) -> Iterator[bytes | int]:
        stored = state.get_bytes("monitor")
        monitor = Monitor() if stored is None else decode(stored)
        if value == CHECK:
            activation = monitor.on_timer(key.decode(), now_ms())
        else:
            activation = monitor.apply(decode_record(value), now_ms())
            counter.add()
        due_ms = monitor.new_timer_ms()
        state.set_bytes("monitor", encode(monitor))
        return [output for output in (activation, due_ms) if output is not None]

    frame = application.dataframe(arrivals).concat(application.dataframe(receives))
    frame = frame.concat(application.dataframe(checks))
    outputs = frame.apply(step, stateful=True, expand=True, metadata=True)
    outputs.to_topic(lambda value, *_: timers if isinstance(value, int) else activations)
    application.run()


def run_timers(options: Options) -> None:
    """Runs the timer process."""
    is_stopping = stop_event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kafka = {"bootstrap.servers": options.bootstrap_servers}
    consumer = Consumer({**kafka, "group.id": f"{options.group}-timers", "enable.auto.commit": False})
    all_partitions = partitions(consumer, (timers_topic(options),))
    for partition in all_partitions:
        partition.offset = OFFSET_BEGINNING
    consumer.assign(all_partitions)
    producer = Producer(kafka | PARTITIONER)
    timers = Timers()
    while not is_stopping.is_set():
        for message in consumer.consume(10_000, TIMER_POLL_S):
            timers.add(int(message.value()), message.key().decode())
        for queue in timers.pop_due(now_ms()):
            producer.produce(checks_topic(options), CHECK, queue)
        producer.poll(0)
    producer.flush()
    consumer.close()


if __name__ == "__main__":
    main()
