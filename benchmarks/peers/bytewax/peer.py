"""Bytewax: a dataflow of two processes with one worker each, and recovery in a local folder."""

import multiprocessing
import pickle
import signal
import socket
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main
from python_peers.clock import now_ms
from python_peers.command_line import Options, parse
from python_peers.processes import running
from python_peers.progress import EventCounter, print_progress, quiet_children, stop_event
from python_peers.rules import Monitor, decode, decode_record, encode

PROCESSES = 2
# Records of a partition in one batch; 1,000 by default.
BATCH = 5_000
SNAPSHOT_INTERVAL = timedelta(seconds=10)

# It has the queue's name, because a timer may come before a record does.
Snapshot = tuple[str, bytes]


class MonitorLogic(StatefulBatchLogic[bytes, bytes, Snapshot]):
    """The monitor of one queue."""

    def __init__(self, counter: EventCounter, snapshot: Snapshot | None) -> None:
        self._counter = counter
        if snapshot is None:
            self._queue, self._monitor = "", Monitor()
        else:
            self._queue, self._monitor = snapshot[0], decode(snapshot[1])
        self._due_ms: int | None = None
        self._due: datetime | None = None

    def on_batch(self, values: list[bytes]) -> tuple[list[bytes], bool]:
        """Applies records; returns the activations to write."""
        now = now_ms()
        activations = []
        for value in values:
            record = decode_record(value)
            self._queue = record.queue
            activation = self._monitor.apply(record, now)
            if activation is not None:
                activations.append(activation)
        self._counter.add(len(values))
        return activations, False

    def on_notify(self) -> tuple[list[bytes], bool]:
        """Checks the queue because its timer is due; returns the activations to write."""
        activation = self._monitor.on_timer(self._queue, now_ms())
        return [] if activation is None else [activation], False

    def notify_at(self) -> datetime | None:
        """Returns the time of the next check."""
        due_ms = self._monitor.next_check_ms()
        if due_ms != self._due_ms:
            self._due_ms = due_ms
            self._due = None if due_ms is None else datetime.fromtimestamp(due_ms / 1000, UTC)
        return self._due

    def snapshot(self) -> Snapshot:
        """Returns the snapshot that recovery keeps."""
        return self._queue, encode(self._monitor)


def main() -> None:
    """Starts the processes, and prints their progress."""
    options = parse()
    is_stopping = stop_event()
    quiet_children(options.folder)
    recovery = recovery_folder(options)
    recovery.mkdir()
    init_db_dir(recovery, PROCESSES)
    addresses = free_addresses()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_dataflow, args=(options, number, addresses)) for number in range(PROCESSES)]
    with running(processes) as are_alive:
        print_progress(options, lambda: recoverable_events(recovery) >= options.events, are_alive, is_stopping)


def recovery_folder(options: Options) -> Path:
    """Returns the folder in which Bytewax keeps its recovery partitions."""
    return options.folder / "recovery"


def free_addresses() -> list[str]:
    """Returns a free address for each process."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(PROCESSES)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def run_dataflow(options: Options, number: int, addresses: list[str]) -> None:
    """Runs one process of the dataflow."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cli_main(
        build_flow(options),
        process_id=number,
        addresses=addresses,
        epoch_interval=SNAPSHOT_INTERVAL,
        recovery_config=RecoveryConfig(recovery_folder(options), timedelta(0)),
    )


def build_flow(options: Options) -> Dataflow:
    """Builds the dataflow: Kafka -> by queue -> monitor -> Kafka."""
    brokers = [options.bootstrap_servers]
    fetching = {"fetch.queue.backoff.ms": "10", "queued.min.messages": "200000"}
    counter = EventCounter(options.folder)
    flow = Dataflow("peer")
    records = op.input("records", flow, KafkaSource(brokers, options.topics, add_config=fetching, batch_size=BATCH))
    by_queue = op.flat_map_batch("by_queue", records, keyed)
    activations = op.stateful_batch("monitor", by_queue, lambda snapshot: MonitorLogic(counter, snapshot))
    messages = op.map("message", activations, lambda item: KafkaSinkMessage(item[0].encode(), item[1]))
    op.output("activations", messages, KafkaSink(brokers, options.output_topic))
    return flow


def keyed(messages: list[KafkaSourceMessage[bytes, bytes]]) -> list[tuple[str, bytes]]:
    """Returns (queue, value) of records. The worker that applies a value decodes it, so decoding uses both cores."""
    return [(message.key.decode(), message.value) for message in messages]


def recoverable_events(recovery: Path) -> int:
    """Returns the number of records before Kafka's offsets in the newest epoch that all workers have closed.

    Recovery would resume there.
    """
    offsets: dict[str, tuple[int, int]] = {}
    frontiers = []
    for path in recovery.glob("*.sqlite3"):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            frontiers += [row[0] for row in database.execute("SELECT worker_frontier FROM fronts")]
            query = "SELECT state_key, snap_epoch, ser_change FROM snaps WHERE step_id LIKE 'peer.records%'"
            for key, epoch, pickled in database.execute(query):
                offset = pickle.loads(pickled)  # noqa: S301  (this peer wrote the file)
                offsets[key] = max(offsets.get(key, (0, 0)), (epoch, offset))
    # The offset of a partition without records is OFFSET_BEGINNING, which is negative.
    closed = min(frontiers, default=0)
    return sum(max(offset, 0) for epoch, offset in offsets.values() if epoch < closed)


if __name__ == "__main__":
    main()
