"""The bare loop, the least that any engine could do: one process, a dictionary, no fault tolerance."""

import threading

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from python_peers.clock import now_ms
from python_peers.command_line import Options, parse
from python_peers.committed import partitions
from python_peers.progress import EventCounter, print_progress, stop_event
from python_peers.rules import Monitor, decode_record
from python_peers.timers import Timers

BATCH = 10_000
POLL_S = 0.01


class Loop:
    """Reads records, applies them, and writes activations."""

    def __init__(self, options: Options) -> None:
        self._monitors: dict[str, Monitor] = {}
        self._timers = Timers()
        self._counter = EventCounter(options.folder)
        self._output_topic = options.output_topic
        self.producer = Producer({"bootstrap.servers": options.bootstrap_servers, "linger.ms": 5})
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap_servers,
                "group.id": options.group,
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 10,
                "queued.min.messages": 200_000,
            }
        )
        all_partitions = partitions(self._consumer, options.topics)
        for partition in all_partitions:
            partition.offset = OFFSET_BEGINNING
        self._consumer.assign(all_partitions)

    def run(self, is_stopping: threading.Event) -> None:
        """Runs until the event is set."""
        while not is_stopping.is_set():
            self._step()
        self.producer.flush()
        self._consumer.close()

    def _step(self) -> None:
        messages = self._consumer.consume(BATCH, POLL_S)
        now = now_ms()
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            record = decode_record(message.value())
            monitor = self._monitors.get(record.queue)
            if monitor is None:
                monitor = self._monitors[record.queue] = Monitor()
            self._after(record.queue, monitor, monitor.apply(record, now))
        for queue in self._timers.pop_due(now):
            self._after(queue, self._monitors[queue], self._monitors[queue].on_timer(queue, now))
        self._counter.add(len(messages))
        self.producer.poll(0)

    def _after(self, queue: str, monitor: Monitor, activation: bytes | None) -> None:
        if activation is not None:
            self.producer.produce(self._output_topic, activation, queue)
        due_ms = monitor.new_timer_ms()
        if due_ms is not None:
            self._timers.add(due_ms, queue)


def main() -> None:
    """Runs the loop in a thread, and prints its progress."""
    options = parse()
    is_stopping = stop_event()
    loop = Loop(options)
    thread = threading.Thread(target=loop.run, args=(is_stopping,))
    thread.start()
    print_progress(options, lambda: loop.producer.flush(1) == 0, thread.is_alive, is_stopping)
    thread.join()


if __name__ == "__main__":
    main()
