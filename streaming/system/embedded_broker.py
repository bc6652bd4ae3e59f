"""A real, single-node Kafka broker on this machine, without Docker: for the demo, tests and experiments."""

import base64
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Self

from streaming.errors import UserError
from streaming.system import start_progress, stop_signals
from streaming.system.file_lock import try_lock
from streaming.system.jars import broker_jars
from streaming.system.java import find_java
from streaming.system.os_errors import in_words
from streaming.system.ports import HOST, bind_free
from streaming.system.processes import ChildProcess
from streaming.system.relay import Relay
from streaming.system.stop_signals import STOP_SIGNALS, Stopped
from streaming.system.wrapped_text import fitted

# Measured on an otherwise idle machine with 2 cores and Java 17, with a new data directory: format 0.7 s with the JVM's
# defaults and 0.5 s with these options, start 1.7 s, stop 0.2 to 0.4 s. Other options for the broker, one run each:
# only C1 1.3 s, serial collector 1.75 s, both 2.0 s. The gain is too small, and too uneven, to give up C2 for a broker
# that keeps running. Throughput was not compared.
_FORMAT_JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_BROKER_JVM_OPTIONS = ("-Xmx512m",)
# The variable of Kafka's own scripts for compilers and collectors, and the value without it.
_JVM_OPTIONS_VARIABLE = "KAFKA_JVM_PERFORMANCE_OPTS"
_DEFAULT_JVM_OPTIONS = "-XX:+UseG1GC"
_LOG4J_FILE = Path(__file__).with_name("broker-log4j2.properties")

_SETTINGS_FILE = "server.properties"
_LOCK_FILE = "broker.lock"
_READY_LINE = b"Kafka Server started"
_TAKEN_LINES = (b"Address already in use", b"BindException")
# A hundred times the duration of a start: a busy machine may need twenty times as long.
_START_TIMEOUT_S = 300
_POLL_INTERVAL_S = 0.02
# Another process can take a free port before the broker binds it.
_MAX_PORT_ATTEMPTS = 3
_LOG_TAIL_LINES = 15

_SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners={listeners},CONTROLLER://{host}:{controller_port}
advertised.listeners={advertised}
listener.security.protocol.map={protocol}:{protocol},RELAYED:{protocol},CONTROLLER:PLAINTEXT
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
# Relative to the data directory, in which the broker runs. An absolute path would need Java's escapes.
log.dirs=kafka
# A single node can hold one replica only.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Kafka's default is 50. The first group, and the first transaction, wait until all are created.
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
share.coordinator.state.topic.num.partitions=1
# By default Kafka waits 3 s for further members of a new group. Readers here start one by one.
group.initial.rebalance.delay.ms=0
# A mistyped topic name must be an error, and the monitor's topics need settings of their own.
auto.create.topics.enable=false
# An open transaction hides all later records. Look for transactions past their time-out every second, not every 10 s.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
# After a broker is killed, the next one waits until the session of the killed one has ended: 4 s instead of 9 s.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# Kafka's default of 128 MiB would be a quarter of the heap.
log.cleaner.dedupe.buffer.size=8388608
# An idle controller writes a record at this interval. Kafka's default of 500 ms costs 0.01 of a core.
metadata.max.idle.interval.ms=5000
"""


@dataclass(frozen=True)
class BrokerSecurity:
    """Access control of the broker. By default every client may do everything.

    Attributes:
        protocol: Kafka's security protocol for the clients' port; also the name of the listener.
        settings: Further lines of server.properties.
        format_arguments: Further arguments of `StorageTool format`, for users that exist from the start.
    """

    protocol: str = "PLAINTEXT"
    settings: Mapping[str, str] = field(default_factory=dict)
    format_arguments: Sequence[str] = ()


class _PortTakenError(Exception):
    """The broker could not bind one of its ports."""


class EmbeddedBroker:
    """A Kafka broker that runs while the context is open, and never longer than this process.

    With a data directory, a later broker in that directory has the same topics and groups. Without a data directory,
    all data is deleted at the end.
    """

    def __init__(
        self,
        port: int = 0,
        data_dir: Path | None = None,
        security: BrokerSecurity | None = None,
        relay: Relay | None = None,
    ) -> None:
        """Stores the arguments; `with` starts the broker.

        Args:
            port: The port on 127.0.0.1; 0: any free port.
            data_dir: The folder for topics, settings and the log (broker.log); None for a temporary folder.
            security: Access control; None if every client may do everything.
            relay: A relay through which some clients reach the broker; None if there is none.
        """
        self._relay = relay
        self._security = security or BrokerSecurity()
        self._wanted_port = port
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        self._port = 0
        self._log_file = Path()
        self._process: ChildProcess  # while the context is open
        self._resources = contextlib.ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT`, for a client's `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._process.pid

    def wait(self) -> NoReturn:
        """Waits until the broker dies, which is an error.

        Raises:
            UserError: The broker has died; the message has the end of its log.
        """
        exit_code = self._process.wait()
        raise UserError(f"The Kafka broker ended with exit code {exit_code}. {_log_tail(self._log_file)}")

    def __enter__(self) -> Self:
        """Starts the broker and returns once it serves clients.

        Raises:
            UserError: Java or the jars are missing, the port is taken, the directory cannot be used, or the broker
                died.
        """
        with contextlib.ExitStack() as resources:
            self._start(resources)
            # Up to here, an error closes these resources. From here on, __exit__ closes them.
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _start(self, resources: contextlib.ExitStack) -> None:
        _free_ports(self._wanted_port)  # the looks at Java and at the jars may take long
        java, class_path = find_java(), ":".join(map(str, broker_jars()))
        folder = self._data_dir
        if folder is None:
            # A broker that was killed may still write a last file. That is not a failure.
            temporary = tempfile.TemporaryDirectory(prefix="queue-activation-broker-", ignore_cleanup_errors=True)
            folder = Path(resources.enter_context(temporary))
        self._log_file = folder / "broker.log"
        resources.enter_context(_lock(folder))
        _prepare(self._log_file)
        java_options: list[str | Path] = [f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}", "-cp", class_path]
        for _ in range(_MAX_PORT_ATTEMPTS):
            self._port, controller_port, relayed_port = _free_ports(self._wanted_port)
            listeners = {self._security.protocol: (self._port, self._port)}
            if self._relay is not None:
                # Kafka tells each client an address for further connections. Clients of the relay get the relay's.
                self._relay.target_port = relayed_port
                listeners["RELAYED"] = relayed_port, self._relay.port
            _write_settings(folder / _SETTINGS_FILE, listeners, controller_port, self._security)
            if not (folder / "kafka" / "meta.properties").exists():
                java_command = [java, *_FORMAT_JVM_OPTIONS, *java_options]
                _format(java_command, self._security.format_arguments, folder, self._log_file)
            tuning = shlex.split(os.environ.get(_JVM_OPTIONS_VARIABLE, _DEFAULT_JVM_OPTIONS))
            broker = [java, *_BROKER_JVM_OPTIONS, *tuning, *java_options, "kafka.Kafka", _SETTINGS_FILE]
            with contextlib.suppress(_PortTakenError):
                self._process = resources.enter_context(_run(broker, folder, self._log_file))
                return
        raise UserError(f"The Kafka broker found no free port. {_log_tail(self._log_file)}")


def run_broker_in_foreground(port: int = 0, data_dir: Path | None = None) -> int:
    """Runs a broker until SIGINT, SIGTERM or SIGHUP. Prints `broker ready HOST:PORT`, and returns the exit code.

    On the standard error, it prints that Kafka starts, and every few seconds that Kafka is still starting. Without a
    data directory, it warns that all records are lost at the end.

    Raises:
        UserError: The broker could not start, or it died.
    """
    numbers = (*STOP_SIGNALS, signal.SIGHUP)
    with contextlib.suppress(Stopped), stop_signals.taken(numbers), contextlib.ExitStack() as stack:
        with (
            start_progress.in_files_too(),
            start_progress.told("starting Kafka", "takes up to 10 s on an idle machine"),
        ):
            broker = stack.enter_context(EmbeddedBroker(port, data_dir))
        sys.stdout.write(f"broker ready {broker.bootstrap_servers}\n")
        sys.stdout.flush()
        if data_dir is None:
            warn("without --data-dir, all topics and records are lost when this broker stops")
        broker.wait()
    return 0


def warn(problem: str) -> None:
    """Prints a warning to the standard error."""
    sys.stderr.write(fitted(f"warning: {problem}", sys.stderr) + "\n")


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps a second broker out of a data directory. Kafka locks only a part of it, after reading the rest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK_FILE).open("ab")
    except OSError as error:
        raise _unusable(error) from error
    with file:
        if not try_lock(file):
            raise UserError(
                f"Another broker uses the data directory {folder}. Stop that broker, or choose another directory."
            )
        yield


def _unusable(error: OSError) -> UserError:
    return UserError(f"The broker's data directory cannot be used: {in_words(error)}. Choose a writable folder.")


def _prepare(log_file: Path) -> None:
    try:
        # The log of the previous run may say why that run ended. Older logs are of no use.
        with contextlib.suppress(FileNotFoundError):
            log_file.replace(log_file.with_suffix(".log.1"))
        log_file.touch()
    except OSError as error:
        raise _unusable(error) from error


def _free_ports(wanted_port: int) -> tuple[int, int, int]:
    """Returns ports for the broker (`wanted_port` unless it is 0), for its controller, and for a relay's clients."""
    with socket.socket() as broker, socket.socket() as controller, socket.socket() as relayed:
        # Java sets it too: connections of a broker that has just ended do not block the port.
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if wanted_port:
                broker.bind((HOST, wanted_port))
            port = wanted_port or bind_free(broker)
        except OSError as error:
            raise UserError(
                f"The broker cannot listen on {HOST}:{wanted_port}: {error.strerror}. "
                "End the program that listens there, or give the broker another port with --port (0 takes a free one)."
            ) from error
        return port, bind_free(controller), bind_free(relayed)


def _write_settings(
    path: Path, listeners: Mapping[str, tuple[int, int]], controller_port: int, security: BrokerSecurity
) -> None:
    """Writes server.properties; `listeners`: name -> the port that it binds, the port that it advertises."""
    text = _SETTINGS.format(
        protocol=security.protocol,
        host=HOST,
        listeners=",".join(f"{name}://{HOST}:{bound}" for name, (bound, _) in listeners.items()),
        advertised=",".join(f"{name}://{HOST}:{advertised}" for name, (_, advertised) in listeners.items()),
        controller_port=controller_port,
    )
    text += "".join(f"{name}={value}\n" for name, value in security.settings.items())
    # The file may have passwords in it. Other users must not be able to read it, even while it is being written.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")


def _format(java: list[str | Path], arguments: Sequence[str], folder: Path, log_file: Path) -> None:
    """Creates the data directory of a new cluster. Its meta.properties, written last, marks it as complete."""
    # The first bit is 0, so that the id cannot begin with a dash and look like an option.
    cluster_id = base64.urlsafe_b64encode(bytes([uuid.uuid4().bytes[0] & 0x7F]) + uuid.uuid4().bytes[1:])
    tool = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster_id.decode().rstrip("=")]
    with ChildProcess([*java, *tool, "--config", _SETTINGS_FILE, *arguments], log_file=log_file, cwd=folder) as process:
        try:
            exit_code = process.wait(_START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise _too_slow("The Kafka broker's data directory is not created", log_file) from None
    if exit_code != 0:
        raise UserError(f"The Kafka broker's data directory could not be created. {_log_tail(log_file)}")


@contextlib.contextmanager
def _run(command: list[str | Path], folder: Path, log_file: Path) -> Iterator[ChildProcess]:
    """Runs the broker. The context begins when the broker is ready."""
    begin = log_file.stat().st_size
    with ChildProcess(command, log_file=log_file, cwd=folder) as process:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            exit_code = process.poll()
            log = log_file.read_bytes()[begin:]
            if _READY_LINE in log:
                break
            if any(line in log for line in _TAKEN_LINES):
                raise _PortTakenError
            if exit_code is not None:
                raise UserError(f"The Kafka broker ended with exit code {exit_code}. {_log_tail(log_file)}")
            if time.monotonic() > deadline_s:
                raise _too_slow("The Kafka broker is not ready", log_file)
            time.sleep(_POLL_INTERVAL_S)
        yield process


def _too_slow(what: str, log_file: Path) -> UserError:
    return UserError(
        f"{what} after {_START_TIMEOUT_S} s. An idle machine needs a few seconds: most likely this one is short of CPU "
        f"time or memory. Try again when its other programs use less of them. {_log_tail(log_file)}"
    )


def _log_tail(log_file: Path) -> str:
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    # Stack traces would push the messages out of sight.
    telling = [f"  {line}" for line in lines if not line.startswith("\tat ")]
    return "\n".join(["The end of its log:", *telling[-_LOG_TAIL_LINES:]])
