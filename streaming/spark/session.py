"""The Spark session of the monitor, quick with small batches: local, or the one that spark-submit was asked for.

The reasons for each setting are measurements; docs/architecture.md, "Spark's settings", has the figures.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, Signals
from threading import Lock, Thread
from typing import IO, Any, ClassVar

from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.sql import SparkSession

from streaming.errors import UserError
from streaming.spark import class_archive
from streaming.spark.shard_keys import DEFAULT_SHARDS
from streaming.system import stop_signals
from streaming.system.jars import spark_jars
from streaming.system.java import find_java

_LOG_CONFIG = Path(__file__).with_name("spark-log4j2.properties")

# Three more tries for a task, so that a killed Python worker does not end the query; `local[N]` alone has one try.
_LOCAL_TRIES = 4
_LOOPBACK = "127.0.0.1"
# Whatever of an option's name or value looks like this is not shown. Spark's own pattern leaves JAAS to its luck.
_SECRET = r"(?i)secret|password|token|access[.]?key|jaas|credential|keystore[.]key"  # noqa: S105
_JVM_OPTIONS = (
    # No collector beside the batches: they take all cores.
    "-XX:+UseParallelGC",
    # Planning a batch is much code that runs a few times a second: compiling it as well as Java can would keep a core
    # busy for minutes and win little. So the second compiler waits for ten times its usual counts; what runs for each
    # record gets there all the same.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # By itself Java collects all of the heap when there are 21 and then 36 MiB of classes: 0.2 s each, in vain.
    "-XX:MetaspaceSize=256m",
)

# Arrow keeps what a task hands to its worker outside the heap: 4,000 values of up to 256 KiB, and as much again while
# that grows. By itself Java would allow all tasks together as much as the heap.
_DIRECT_MEMORY_PER_TASK_GIB = 2

# Settings for every master.
_SETTINGS = {
    "spark.redaction.regex": _SECRET,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # Batches only when there is data: the tick is data.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Spark's other limit, of bytes, would measure what it has after each record: a third of what reading costs.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # A stage's place in the plan is no reason to generate and compile its code again: a source without news leaves the
    # plan, and all stages behind it move up.
    "spark.sql.codegen.useIdInClassName": "false",
    # What a batch has shuffled is deleted when the batch is done. By itself Spark keeps it until the JVM collects its
    # oldest objects, every 30 minutes at the latest.
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    # What is shuffled is compressed already, see blocks.py.
    "spark.shuffle.compress": "false",
    # A TCP round trip to the Python worker costs an idle batch tens of milliseconds.
    "spark.python.unix.domain.socket.enabled": "true",
}

# Spark 4 asks for one, and Java warns of it before there is a log to filter.
_STDERR = 2  # also where there is no sys.stderr
_SAID_AT_EVERY_START = b"WARNING: Using incubator modules"
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def is_submitted() -> bool:
    """Whether spark-submit started this process: then the JVM, its class path and the master are spark-submit's."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(location: str) -> bool:
    """Whether a checkpoint location is a folder of this machine."""
    return "://" not in location or location.startswith("file:")


def shuffle_partitions(spark: SparkSession) -> int:
    """How many parts a shuffle has, and with them the state; a checkpoint keeps its number."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def class_path(spark: SparkSession) -> str:
    """The class path of Spark's JVM."""
    return str(spark.sparkContext._jvm.System.getProperty("java.class.path"))  # type: ignore[union-attr]


def local_jars(fetched: Iterable[Path]) -> list[Path]:
    """Names the jars that a JVM that is started here loads classes from: Spark's own, and those of `spark_jars`."""
    return [*(Path(_find_spark_home()) / "jars").glob("*.jar"), *fetched]


def create(checkpoint_location: str, driver_memory: str) -> SparkSession:
    """Starts Spark: as spark-submit was asked for if that has started this process, else local.

    Args:
        checkpoint_location: Where the checkpoint is; a local folder has a quicker file system.
        driver_memory: The heap of the JVM that is started here, such as `2g`.

    Raises:
        UserError: Java or the jars are missing, or the memory is none.
    """
    if _MEMORY.fullmatch(driver_memory) is None:
        raise UserError(f"--driver-memory {driver_memory}: write a number of mega- or gigabytes, such as 512m or 4g")
    return _create_submitted() if is_submitted() else _create_local(checkpoint_location, driver_memory)


def _create_submitted() -> SparkSession:
    """Starts Spark in spark-submit's JVM, with our settings where the user has none."""
    # Executors run the interpreter that the driver runs unless they are told another one; PySpark's python3 may lack
    # what is needed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    SparkContext._ensure_initialized()
    if not SparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable(_CONNECTOR):  # type: ignore[union-attr]
        raise UserError('Spark lacks the Kafka connector: spark-submit --jars "$(python -m streaming.system.jars)" ...')
    conf = SparkConf()
    # More parts than shards would be empty.
    partitions = conf.get("spark.sql.shuffle.partitions", conf.get("spark.cores.max", str(DEFAULT_SHARDS)))
    settings = _SETTINGS | {
        "spark.executor.extraJavaOptions": " ".join(_JVM_OPTIONS),
        # Fixed by the checkpoint.
        "spark.sql.shuffle.partitions": partitions,
        # What is read is spread over so many tasks. Spark's own number is that of the executors' cores so far, and the
        # query is planned before all of them are there.
        "spark.default.parallelism": partitions,
    }
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    return _session(SparkContext(conf=conf))


def _session(context: SparkContext) -> SparkSession:
    # Spark has just set a handler of its own for SIGINT, which would cancel the batch in progress.
    stop_signals.take_back()
    return SparkSession(context)


def silence() -> None:
    """Has Spark log nothing more: what it says while it ends is no news."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.setLogLevel("OFF")


def kill() -> None:
    """Ends the JVM that `create` has started, if it has, by force."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        # It leads a session, so its process group is its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)


def forward_signals(signals: Iterable[Signals]) -> None:
    """Lets the JVM of spark-submit hand signals on to this process, which stops in order, and not act on them itself.

    Whoever stops spark-submit knows the JVM's process only; without this the JVM would end at once, and cancel the
    batch in progress.
    """
    jvm = SparkContext._jvm
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
    for number in signals:
        java_signal = jvm.sun.misc.Signal(number.name.removeprefix("SIG"))  # type: ignore[union-attr]
        jvm.sun.misc.Signal.handle(java_signal, _SignalForwarder(number))  # type: ignore[union-attr]


class _SignalForwarder:
    """Java's handler of a signal."""

    def __init__(self, number: Signals) -> None:
        self._number = number

    def handle(self, _signal: JavaObject) -> None:
        """Sends this process the signal that the JVM got."""
        os.kill(os.getpid(), self._number)

    class Java:
        """What py4j reads: the interface that the class implements."""

        implements: ClassVar = ["sun.misc.SignalHandler"]


def _create_local(checkpoint_location: str, driver_memory: str) -> SparkSession:
    """Starts Spark in a JVM of this process.

    The JVM gets a session of its own: a signal to the process group would otherwise end it before the batch in
    progress. It ends when this process does, because its standard input is this process's.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    # Workers would otherwise be started with the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # nobody else needs to reach the driver
    jars = spark_jars()
    jvm_options = class_archive.jvm_options(java, local_jars(jars))
    conf = _conf(checkpoint_location, driver_memory, jars, jvm_options)
    with _launching():
        gateway = launch_gateway(conf=conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]
    return _session(SparkContext(conf=conf, gateway=gateway))


@contextmanager
def _launching() -> Iterator[None]:
    """Ends the JVM that `launch_gateway` starts if that fails or is broken off, and filters what it says.

    PySpark then removes the folder in which the JVM is about to say its port. The JVM fails to, and stays for ever.

    Raises:
        UserError: Java does not start.
    """
    started: list[subprocess.Popen[bytes]] = []
    outputs: list[_JavaOutput] = []

    def start(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        # Why it does not start Java says on its standard output.
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process: subprocess.Popen[bytes] = subprocess.Popen(command, **more)
        assert process.stdout is not None  # noqa: S101 - it is a pipe; told to the type checker
        started.append(process)
        outputs.append(_JavaOutput(process.stdout))
        return process

    java_gateway.Popen = start  # type: ignore[assignment, misc]
    try:
        yield
    except BaseException as error:
        for process in started:
            # It leads a session, so its process group is its own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            process.wait()
        if isinstance(error, PySparkRuntimeError) and outputs:
            raise UserError(f"Java does not start:\n{outputs[-1].held_back()}") from None
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[misc]
    for output in outputs:
        output.hand_on()


class _JavaOutput(Thread):
    """What the JVM and its workers write: held back until `hand_on`, then handed on to stderr as it comes.

    So a JVM that does not start, or is not to, says nothing by itself.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(name="output of Java", daemon=True)
        self._pipe = pipe
        self._lock = Lock()
        self._held_back: list[bytes] | None = []
        self.start()

    def run(self) -> None:
        """Reads until nobody can write any more."""
        for line in self._pipe:
            with self._lock:
                if _SAID_AT_EVERY_START in line:
                    continue
                if self._held_back is not None:
                    self._held_back.append(line)
                else:
                    _write(line)

    def hand_on(self) -> None:
        """Hands on from now on, and first what was held back."""
        with self._lock:
            for line in self._held_back or []:
                _write(line)
            self._held_back = None

    def held_back(self) -> str:
        """Returns what a JVM that has ended has said."""
        self.join(timeout=1.0)
        return b"".join(self._held_back or []).decode(errors="replace").strip() or "it says nothing"


def _write(line: bytes) -> None:
    with suppress(OSError):  # nobody may read it
        os.write(_STDERR, line)


def _conf(checkpoint_location: str, driver_memory: str, jars: Iterable[Path], jvm_options: Iterable[str]) -> SparkConf:
    cores = os.cpu_count() or 1
    conf = SparkConf().setAppName("queue-activation").setMaster(f"local[{cores},{_LOCAL_TRIES}]")
    settings = _SETTINGS | {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(
            (
                f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
                f"-XX:MaxDirectMemorySize={cores * _DIRECT_MEMORY_PER_TASK_GIB}g",
                # A heap that grows step by step is collected whole at each step.
                f"-Xms{driver_memory}",
                *_JVM_OPTIONS,
                *(f'"{option}"' for option in jvm_options),
            )
        ),
        "spark.driver.memory": driver_memory,
        # The workers' standard error is the terminal here.
        "spark.python.daemon.module": "streaming.spark.worker_daemon",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        # Other users of the machine could otherwise ask the driver's ports for a batch's plan, passwords in it.
        "spark.authenticate": "true",
        # Fixed by the checkpoint; more than one or two per core make a batch slow.
        "spark.sql.shuffle.partitions": str(cores),
        # What is shuffled never leaves the machine, and is gone before the disk would get it.
        "spark.shuffle.checksum.enabled": "false",
    }
    if is_local(checkpoint_location):
        # Hadoop's own local file system starts a `chmod` process for every file it writes.
        settings |= {
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
    return conf.setAll(list(settings.items()))
