"""PyFlink: a KeyedProcessFunction with timers, its state in RocksDB, two subtasks."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Configuration, Row, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment
from python_peers.clock import now_ms
from python_peers.command_line import Options, parse
from python_peers.committed import CommittedOffsets
from python_peers.progress import EventCounter, print_progress, quiet_children, stop_event
from python_peers.rules import Monitor, decode, decode_queue, decode_record, encode

JAR = Path(__file__).with_name(".build") / "flink-sql-connector-kafka-5.0.0-2.2.jar"
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    # RocksDB and the Python processes share this memory. The default of a local cluster is 128 MB.
    "taskmanager.memory.managed.size": "1 gb",
    # At the end of a bundle, the Python processes write each changed state by a separate call. So a bundle should have
    # many records of a queue. A bundle ends after a second at the latest. Its default size is 1,000.
    "python.fn-execution.bundle.size": "100000",
    # States that Python keeps between bundles. The default of 1,000 is less than the number of queues.
    "python.state.cache-size": "100000",
}


class MonitorFunction(KeyedProcessFunction):
    """The monitor of a queue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, context: RuntimeContext) -> None:
        """Declares the state."""
        self._state = context.get_state(ValueStateDescriptor("monitor", BYTES))
        self._counter = EventCounter(self._folder)

    def process_element(self, value: str, context: KeyedProcessFunction.Context) -> Iterator[Row]:
        """Applies a record; yields the activation to write, if one is due."""
        record = decode_record(value)
        monitor = self._load()
        activation = monitor.apply(record, now_ms())
        self._counter.add()
        yield from self._after(record.queue, monitor, activation, context)

    def on_timer(self, timestamp: int, context: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:  # noqa: ARG002
        """Checks the queue because its timer is due; yields the activation to write, if one is due."""
        queue = context.get_current_key()
        monitor = self._load()
        yield from self._after(queue, monitor, monitor.on_timer(queue, now_ms()), context)

    def _load(self) -> Monitor:
        stored = self._state.value()
        return Monitor() if stored is None else decode(stored)

    def _after(
        self, queue: str, monitor: Monitor, activation: bytes | None, context: KeyedProcessFunction.Context
    ) -> Iterator[Row]:
        due_ms = monitor.new_timer_ms()
        if due_ms is not None:
            context.timer_service().register_processing_time_timer(due_ms)
        self._state.update(encode(monitor))
        if activation is not None:
            yield Row(queue, activation.decode())


def main() -> None:
    """Runs the job in a cluster that this process starts, and prints its progress."""
    options = parse()
    is_stopping = stop_event()
    quiet_children(options.folder)
    os.environ["FLINK_LOG_DIR"] = str(options.folder)
    settings = {
        **SETTINGS,
        "pipeline.jars": JAR.as_uri(),
        "execution.checkpointing.dir": (options.folder / "checkpoints").as_uri(),
        "io.tmp.dirs": str(options.folder),
    }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    records = environment.from_source(source(options), WatermarkStrategy.no_watermarks(), "records")
    activations = records.key_by(decode_queue, Types.STRING()).process(
        MonitorFunction(options.folder), Types.ROW_NAMED(["queue", "activation"], [Types.STRING(), Types.STRING()])
    )
    sink(environment, activations, options)
    jvm = get_gateway().jvm.java.lang.ProcessHandle.current().pid()
    job = environment.execute_async("peer")
    committed = CommittedOffsets(options)
    try:
        print_progress(
            options, committed.are_complete, lambda: not job.get_job_status().result().is_terminal_state(), is_stopping
        )
    finally:
        job.cancel().result()
        # Otherwise py4j logs errors once the JVM has ended.
        logging.disable()
        os.kill(jvm, signal.SIGTERM)
        os.waitpid(jvm, 0)


def source(options: Options) -> KafkaSource:
    """Returns a source of both topics, which commits their offsets with each checkpoint."""
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(options.bootstrap_servers)
        .set_topics(*options.topics)
        .set_group_id(options.group)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )


def sink(environment: StreamExecutionEnvironment, activations: DataStream, options: Options) -> None:
    """Adds a sink of the Table API. PyFlink's other sinks cannot write a key that differs from the value."""
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(
        f"""
        CREATE TABLE activations (queue STRING, activation STRING) WITH (
            'connector' = 'kafka',
            'topic' = '{options.output_topic}',
            'properties.bootstrap.servers' = '{options.bootstrap_servers}',
            'key.format' = 'raw',
            'key.fields' = 'queue',
            'value.format' = 'raw',
            'value.fields-include' = 'EXCEPT_KEY'
        )"""
    )
    statements = tables.create_statement_set()
    statements.add_insert("activations", tables.from_data_stream(activations))
    statements.attach_as_datastream()


if __name__ == "__main__":
    main()
