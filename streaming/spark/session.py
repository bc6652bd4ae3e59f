"""The Spark session of the monitor, tuned for small batches: local, or in the JVM of spark-submit.

The settings were chosen by measurement. docs/tuning.md has the figures.
"""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from signal import SIG_IGN, SIGKILL, SIGTERM, Signals, signal
from threading import Lock, Thread
from typing import Any, ClassVar

import pyspark
from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from streaming.errors import UserError
from streaming.spark import class_archive
from streaming.spark.shard_keys import DEFAULT_SHARDS
from streaming.system import hints, nameless_user, stop_signals
from streaming.system.jars import spark_jars
from streaming.system.java import find_java

# The Spark of PySpark. A SPARK_HOME in the environment may name another version, whose jars do not fit.
_SPARK_HOME = Path(pyspark.__file__).parent
_LOG_CONFIG = Path(__file__).with_name("spark-log4j2.properties")

# Three more attempts for a task, so that a killed Python worker does not end the query. `local[N]` alone has one.
_LOCAL_TRIES = 4
_LOOPBACK = "127.0.0.1"
# Spark starts another JVM for 0.15 s, which prints the command of the driver's JVM.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark hides options whose name or value matches this. Its own pattern does not name JAAS.
_SECRET = r"(?i)secret|password|token|access[.]?key|jaas|credential|keystore[.]key"  # noqa: S105
_JVM_OPTIONS = (
    # No concurrent collector, because the batches take all cores.
    "-XX:+UseParallelGC",
    # Planning a batch runs much code a few times a second. Java's second compiler would keep a core busy with it for
    # minutes and gain little. So it waits for ten times its usual counts, which the code for each record still reaches.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # By default Java collects the whole heap at 21 and at 36 MiB of classes: 0.2 s each, for nothing.
    "-XX:MetaspaceSize=256m",
)

# Arrow keeps the records that a task hands to its worker outside the heap: 4,000 values of up to 256 KiB, and as much
# again while their buffer grows. By default Java would allow all tasks together as much as the heap.
_DIRECT_MEMORY_PER_TASK_GIB = 2

# Settings for every master.
_SETTINGS = {
    "spark.redaction.regex": _SECRET,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Streaming does not support adaptive execution, and Spark would warn about it at each start.
    "spark.sql.adaptive.enabled": "false",
    # Batches only when there is data. The tick is data.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A restart needs only the newest batches, and there is one per second.
    "spark.sql.streaming.minBatchesToRetain": "20",
    # The limit of bytes is off. With it Spark measures its buffer after each record: a third of the cost of reading.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # A source without new records leaves the plan, and all stages after it move up. With a stage's number in the names
    # of its classes, Spark would then generate and compile their code again.
    "spark.sql.codegen.useIdInClassName": "false",
    # Deletes a batch's shuffle files when the batch is done. By default Spark keeps them until the JVM collects its
    # oldest objects, at least every 30 minutes.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    # Blocks are compressed already; see blocks.py.
    "spark.shuffle.compress": "false",
    # A TCP round trip to the Python worker costs an idle batch tens of milliseconds.
    "spark.python.unix.domain.socket.enabled": "true",
}

# The system may still be ending a JVM that no longer answers.
_END_TIMEOUT_S = 1.0
_STDERR = 2  # also where there is no sys.stderr
# Spark 4 asks for an incubator module, and Java warns about that before there is a log that could filter the warning.
_SAID_AT_EVERY_START = b"WARNING: Using incubator modules"
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def is_submitted() -> bool:
    """Returns whether spark-submit started this process, and so provides the JVM, its class path and the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def shuffle_partitions(spark: SparkSession) -> int:
    """Returns the number of partitions of a shuffle, and so of the state. The checkpoint fixes this number."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def class_path(spark: SparkSession) -> str:
    """Returns the class path of Spark's JVM."""
    return str(spark.sparkContext._jvm.System.getProperty("java.class.path"))  # type: ignore[union-attr]


def local_jars(fetched: Iterable[Path]) -> list[Path]:
    """Returns the jars from which a JVM started here loads classes: Spark's own jars, and the jars of `spark_jars`."""
    return [*(_SPARK_HOME / "jars").glob("*.jar"), *fetched]


def create(checkpoint_locations: Sequence[str], driver_memories: Sequence[str]) -> SparkSession:
    """Starts Spark: in the JVM of spark-submit if spark-submit has started this process, else locally.

    Args:
        checkpoint_locations: The locations of the checkpoints. Local folders get a faster file system.
        driver_memories: Sizes such as `2g`. The largest becomes the heap of the JVM that is started here.

    Raises:
        UserError: Java or the jars are missing, or a size is invalid.
    """
    driver_memory = max(driver_memories, key=_bytes)
    for handler in logging.root.handlers:
        handler.addFilter(_is_not_of_py4j)
    return _create_submitted() if is_submitted() else _create_local(checkpoint_locations, driver_memory)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Returns whether a line of the log is not by py4j, which logs errors with tracebacks and also raises them."""
    return "/py4j/" not in record.pathname


def _bytes(size: str) -> int:
    if _MEMORY.fullmatch(size) is None:
        raise UserError(
            f"{hints.option('--driver-memory')}: '{size}' is not a size. Write a number and m or g, such as 4g."
        )
    return int(size[:-1]) * (2**20 if size.endswith("m") else 2**30)


def _create_submitted() -> SparkSession:
    """Starts Spark in spark-submit's JVM. The settings of the user replace the settings of this project."""
    # Executors run the driver's interpreter unless the user names another one. PySpark's default, python3, may lack the
    # packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    SparkContext._ensure_initialized()
    if not SparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable(_CONNECTOR):  # type: ignore[union-attr]
        raise UserError(
            "Spark lacks the Kafka connector. Start it with: "
            'spark-submit --jars "$(python -m streaming.system.jars)" ...'
        )
    conf = SparkConf()
    # More partitions than shards would be empty.
    partitions = conf.get("spark.sql.shuffle.partitions", conf.get("spark.cores.max", str(DEFAULT_SHARDS)))
    settings = _SETTINGS | {
        "spark.executor.extraJavaOptions": " ".join(_JVM_OPTIONS),
        # Fixed by the checkpoint.
        "spark.sql.shuffle.partitions": partitions,
        # The number of tasks that read. Spark's default is the number of the executors' cores so far, and the query is
        # planned before all executors are there.
        "spark.default.parallelism": partitions,
    }
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    return _session(SparkContext(conf=conf))


def _session(context: SparkContext) -> SparkSession:
    # Spark has just set its own handler for SIGINT, which would cancel the batch in progress.
    stop_signals.take_back()
    server = context._accumulatorServer
    server.handle_error = partial(_report_unless_closed, server.handle_error)  # type: ignore[method-assign]
    return SparkSession(context)


def _report_unless_closed(report: Callable[..., None], *request: object) -> None:
    """Reports the exception in progress, unless Java has closed the connection, as it does when it ends."""
    if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
        report(*request)


def silence() -> None:
    """Turns Spark's log and Java's error output off, because Java's messages while it ends do not help the user."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.setLogLevel("OFF")
        # A thread of a query that ends after its application prints a stack trace.
        java = SparkContext._jvm.java  # type: ignore[union-attr]
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def how_java_ended() -> str | None:
    """Returns how the JVM that `create` has started has ended; None if the JVM runs, or was not started here."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    return f"with exit code {code}" if code >= 0 else f"by {Signals(-code).name}"


def kill() -> None:
    """Kills the JVM that `create` has started, if it has started a JVM."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        _kill(process)


def _kill(jvm: "subprocess.Popen[bytes]") -> None:
    # The JVM leads a session, so its process group is its own.
    with suppress(ProcessLookupError):
        os.killpg(jvm.pid, SIGKILL)


def forward_signals(signals: Iterable[Signals]) -> None:
    """Makes spark-submit's JVM forward signals to this process, instead of acting on the signals.

    A user who stops spark-submit signals the JVM's process. Without a forwarder the JVM would end at once, and cancel
    the batch in progress.
    """
    jvm = SparkContext._jvm
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
    for number in signals:
        java_signal = jvm.sun.misc.Signal(number.name.removeprefix("SIG"))  # type: ignore[union-attr]
        jvm.sun.misc.Signal.handle(java_signal, _SignalForwarder(number))  # type: ignore[union-attr]


class _SignalForwarder:
    """A handler of a signal, for Java."""

    def __init__(self, number: Signals) -> None:
        self._number = number

    def handle(self, _signal: JavaObject) -> None:
        """Sends this process the signal that the JVM has received."""
        os.kill(os.getpid(), self._number)

    class Java:
        """Names the Java interface that the class implements, for py4j."""

        implements: ClassVar = ["sun.misc.SignalHandler"]


def _create_local(checkpoint_locations: Sequence[str], driver_memory: str) -> SparkSession:
    """Starts Spark in a JVM that this process starts.

    The JVM gets its own session, and ignores SIGTERM, as its workers do: otherwise a signal to the process group, or to
    all processes of a service at once, would end the JVM before the batch in progress. The JVM ends when this process
    does, because its standard input is a pipe from this process.
    """
    java = find_java()
    os.environ["SPARK_HOME"] = str(_SPARK_HOME)
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    # Otherwise Spark would start workers with the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # no other machine needs to reach the driver
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_OPTIONS)
    jars = spark_jars()
    jvm_options = [*class_archive.jvm_options(java, local_jars(jars)), *nameless_user.jvm_options()]
    conf = _conf(checkpoint_locations, driver_memory, jars, jvm_options)
    with _launching():
        gateway = launch_gateway(conf=conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]
    nameless_user.log_in(gateway.jvm)
    return _session(SparkContext(conf=conf, gateway=gateway))


@contextmanager
def _launching() -> Iterator[None]:
    """Ends the JVM that `launch_gateway` starts if the launch fails or is interrupted, and filters the JVM's output.

    If the launch fails, PySpark removes the folder in which the JVM is about to write its port. The JVM would fail to
    write the port, and run forever.

    Raises:
        UserError: Java does not start.
    """
    started: list[_JavaOutput] = []

    def start(command: list[str], *, preexec_fn: Callable[[], object], **more: Any) -> subprocess.Popen[bytes]:
        def ignore_stop_signals() -> None:
            preexec_fn()
            signal(SIGTERM, SIG_IGN)  # the JVM leaves what was ignored before it started

        # If Java does not start, it writes the reason to its standard output.
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "preexec_fn": ignore_stop_signals}
        # A signal that interrupts Popen itself would leave a process that is not in `started`.
        with stop_signals.deferred():
            started.append(_JavaOutput(subprocess.Popen(command, **more)))
        return started[-1].jvm

    java_gateway.Popen = start  # type: ignore[assignment, misc]
    try:
        yield
    except BaseException as error:
        for output in started:
            _kill(output.jvm)
            output.jvm.wait()
        if isinstance(error, PySparkRuntimeError) and started:
            raise UserError(f"Java does not start:\n{started[-1].held_back()}") from None
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[misc]
    for output in started:
        output.hand_on()


class _JavaOutput(Thread):
    """The output of the JVM and its workers: held back until `hand_on`, then passed on to stderr as it arrives.

    So a JVM that does not start, or whose start is interrupted, prints nothing by itself.
    """

    def __init__(self, jvm: "subprocess.Popen[bytes]") -> None:
        super().__init__(name="output of Java", daemon=True)
        self.jvm = jvm
        self._lock = Lock()
        self._held_back: list[bytes] | None = []
        self.start()

    def run(self) -> None:
        """Reads until no process has the pipe open for writing."""
        for line in self.jvm.stdout or ():
            with self._lock:
                if _SAID_AT_EVERY_START in line:
                    continue
                if self._held_back is not None:
                    self._held_back.append(line)
                else:
                    _write(line)

    def hand_on(self) -> None:
        """Passes on the output that was held back, and from now on all output."""
        with self._lock:
            for line in self._held_back or []:
                _write(line)
            self._held_back = None

    def held_back(self) -> str:
        """Returns the output of a JVM that has ended."""
        self.join(timeout=1.0)
        return b"".join(self._held_back or []).decode(errors="replace").strip() or "Java printed nothing"


def _write(line: bytes) -> None:
    with suppress(OSError):  # stderr may be closed
        os.write(_STDERR, line)


def _conf(
    checkpoint_locations: Sequence[str], driver_memory: str, jars: Iterable[Path], jvm_options: Iterable[str]
) -> SparkConf:
    cores = os.cpu_count() or 1
    conf = SparkConf().setAppName("queue-activation").setMaster(f"local[{cores},{_LOCAL_TRIES}]")
    settings = _SETTINGS | {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(
            (
                f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
                f"-XX:MaxDirectMemorySize={cores * _DIRECT_MEMORY_PER_TASK_GIB}g",
                # A heap that grows in steps is collected completely at each step.
                f"-Xms{driver_memory}",
                *_JVM_OPTIONS,
                *(f'"{option}"' for option in jvm_options),
            )
        ),
        "spark.driver.memory": driver_memory,
        # In local mode the workers' standard error is the terminal.
        "spark.python.daemon.module": "streaming.spark.worker_daemon",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        # Without this, other users of the machine could ask the driver's ports for a batch's plan, which has passwords.
        "spark.authenticate": "true",
        # Also the longest time for the answer to a heartbeat. A busy machine may exceed the default of 10 s. Then Spark
        # registers its only executor again, and logs stack traces.
        "spark.executor.heartbeatInterval": "30s",
        # Fixed by the checkpoint; more than one or two per core make a batch slow.
        "spark.sql.shuffle.partitions": str(cores),
        # Shuffled blocks never leave the machine, and are deleted before they would reach the disk.
        "spark.shuffle.checksum.enabled": "false",
    }
    if all("://" not in location or location.startswith("file:") for location in checkpoint_locations):
        # Hadoop's own local file system starts a `chmod` process for every file it writes.
        settings |= {
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
    return conf.setAll(list(settings.items()))
