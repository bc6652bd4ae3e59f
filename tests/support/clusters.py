"""A Spark standalone cluster of processes on this machine: a master and two workers with one core each."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from streaming.system.java import find_java
from streaming.system.processes import ChildProcess
from tests.support.command_lines import ROOT
from tests.support.monitors import Monitored
from tests.support.waiting import children_of, is_running, wait_until

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
START_TIMEOUT_S = 60.0
LOOPBACK = "127.0.0.1"
LOG_CONFIG = "streaming/spark/spark-log4j2.properties"

SECRET = "a-secret-of-this-test"  # noqa: S105
# Spark's processes authenticate each other, and encrypt their traffic and their files.
SECURITY = f"""
spark.authenticate true
spark.authenticate.secret {SECRET}
spark.network.crypto.enabled true
spark.io.encryption.enabled true
"""


@dataclass
class SparkCluster:
    """A running cluster.

    Attributes:
        url: The value for `--master`.
        environment: The variables that spark-submit needs: Spark's folder, and the folder of the cluster's settings.
        workers: The processes that start executors.
    """

    url: str
    environment: dict[str, str]
    workers: list[ChildProcess]

    def executors(self) -> set[int]:
        """Returns the process ids of the executors, without ended children of the shell that became a worker."""
        return set(filter(is_running, set().union(*(children_of(worker.pid) for worker in self.workers))))


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Runs a cluster whose processes do not see this checkout: they have another folder and another environment."""
    environment = {
        "PATH": os.defpath,
        "JAVA_HOME": str(find_java().parent.parent),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_MEMORY": "256m",
        # For all processes of the cluster, also the executors. They live for seconds; see tests/conftest.py.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(SECURITY)
    with ExitStack() as processes:

        def start(name: str, program: str, *arguments: str) -> tuple[ChildProcess, Path]:
            log_file = folder / f"{name}.log"
            options = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
            process = ChildProcess([*command, *options, *arguments], log_file=log_file, env=environment, cwd=folder)
            return processes.enter_context(process), log_file

        _, log_file = start("master", "master.Master")
        url = _wait_for(log_file, r"Starting Spark master at (spark://\S+)")
        workers = []
        for number in range(WORKERS):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
            worker, log_file = start(f"worker-{number}", "worker.Worker", *work, url)
            workers.append((worker, log_file))
        for _, log_file in workers:
            _wait_for(log_file, r"(Successfully registered with master)")
        kept = {name: environment[name] for name in ("SPARK_HOME", "SPARK_CONF_DIR")}
        yield SparkCluster(url, kept, [worker for worker, _ in workers])


def _wait_for(log_file: Path, pattern: str) -> str:
    found = wait_until(lambda: re.search(pattern, log_file.read_text()), START_TIMEOUT_S, f"{pattern} in {log_file}")
    assert found is not None
    return found[1]


def python_with_dependencies_only(folder: Path) -> Path:
    """Makes an interpreter with the project's dependencies but without the project, as on a node of a cluster."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Python searches a folder named in a .pth file, but does not read its .pth files, such as an editable install's.
    (folder / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "bin" / "python"
    lookup = subprocess.run(
        [python, "-E", "-c", "import msgspec, streaming"], capture_output=True, cwd=folder, check=False
    )
    assert b"No module named 'streaming'" in lookup.stderr
    return python


@dataclass
class SubmittedMonitor(Monitored):
    """A monitor that spark-submit starts on a cluster, as docs/operations.md describes."""

    master: str = ""
    executor_python: Path = Path()

    def command(self) -> list[str]:
        package = self.folder / "queue-activation.zip"
        if not package.exists():
            _output_of("-m", "zipfile", "-c", package, "streaming", "producers")
        settings = {
            "spark.pyspark.python": self.executor_python,
            "spark.pyspark.driver.python": sys.executable,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
        }
        options = [
            *("--master", self.master),
            *("--jars", _output_of("-m", "streaming.system.jars")),
            *("--py-files", package),
            *("--driver-java-options", f"-Dlog4j2.configurationFile={(ROOT / LOG_CONFIG).as_uri()}"),
            *("--executor-memory", "512m"),
            *("--total-executor-cores", WORKERS),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        ]
        _, _, _, *command = super().command()
        program = [SPARK_HOME / "bin" / "spark-submit", *options, ROOT / "streaming" / "__main__.py"]
        return [*map(str, program), *command]


def _output_of(*arguments: str | Path) -> str:
    """Returns the output of one of the documented Python commands."""
    result = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True, text=True)
    return result.stdout.strip()
