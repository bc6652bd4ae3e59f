"""The Spark session of the monitor: local, small, and quick with small batches.

The reasons for each setting are measurements; docs/architecture.md, "Spark's settings", has the figures.
"""

import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming.jars import spark_jars
from streaming.java import find_java

_LOG_CONFIG = Path(__file__).with_name("spark-log4j2.properties")

# Three more tries for a task, so that a killed Python worker does not end the query; `local[N]` alone has one try.
_LOCAL_TRIES = 4
_LOOPBACK = "127.0.0.1"
# Whatever of an option's name or value looks like this is not shown. Spark's own pattern leaves JAAS to its luck.
_SECRET = r"(?i)secret|password|token|access[.]?key|jaas|credential|keystore[.]key"  # noqa: S105
_JVM_OPTIONS = (
    # No collector beside the batches: they take all cores.
    "-XX:+UseParallelGC",
    # Planning a batch is much code that runs a few times a second: compiling it well keeps a core busy for minutes and
    # wins nothing. What runs for each record gets there all the same.
    "-XX:CompileThresholdScaling=10",
)


def is_local(location: str) -> bool:
    """Whether a checkpoint location is a folder of this machine."""
    return "://" not in location or location.startswith("file:")


def shuffle_partitions(spark: SparkSession) -> int:
    """How many parts a shuffle has, and with them the state; a checkpoint keeps its number."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def create(checkpoint_location: str) -> SparkSession:
    """Starts Spark in this process's JVM.

    The JVM gets a session of its own: a signal to the process group would otherwise end it before the batch in
    progress. It ends when this process does, because its standard input is this process's.

    Raises:
        UserError: Java or the jars are missing.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    # Workers would otherwise be started with the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # nobody else needs to reach the driver
    conf = _conf(checkpoint_location)
    gateway = launch_gateway(conf=conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _conf(checkpoint_location: str) -> SparkConf:
    cores = os.cpu_count() or 1
    conf = SparkConf().setAppName("queue-activation").setMaster(f"local[{cores},{_LOCAL_TRIES}]")
    settings = {
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in spark_jars()),
        "spark.driver.extraJavaOptions": " ".join(
            (f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}", *_JVM_OPTIONS)
        ),
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        # Other users of the machine could otherwise ask the driver's ports for a batch's plan, passwords in it.
        "spark.authenticate": "true",
        "spark.redaction.regex": _SECRET,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Fixed by the checkpoint; more than one or two per core make a batch slow.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        # Batches only when there is data: the tick is data.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Spark's other limit, of bytes, would measure what it has after each record: a third of what reading costs.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # A TCP round trip to the Python worker costs an idle batch tens of milliseconds.
        "spark.python.unix.domain.socket.enabled": "true",
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
