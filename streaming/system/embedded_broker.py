"""A real Kafka broker of one node on this machine, without Docker: for the demo, for tests, for trying things out."""

import base64
import contextlib
import fcntl
import shutil
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
from types import TracebackType
from typing import NoReturn, Self

from streaming.errors import UserError
from streaming.system import stop_signals
from streaming.system.jars import broker_jars
from streaming.system.java import find_java
from streaming.system.processes import ChildProcess
from streaming.system.stop_signals import STOP_SIGNALS, Stopped

HOST = "127.0.0.1"

# 2 cores, Java 17, a new data directory, otherwise idle: format 0.7 s with the JVM's defaults and 0.5 s with these
# options, start 1.7 s, stop 0.2 to 0.4 s. One run of each for the broker: only C1 1.3 s, serial collector 1.75 s, both
# 2.0 s. That is too little, and too uneven, to give up C2 for a broker that runs on; its throughput was not compared.
_FORMAT_JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_BROKER_JVM_OPTIONS = ("-Xmx512m", "-XX:+UseG1GC")
_LOG4J_FILE = Path(__file__).with_name("broker-log4j2.properties")

_SETTINGS_FILE = "server.properties"
_LOCK_FILE = "broker.lock"
_READY_LINE = b"Kafka Server started"
_TAKEN_LINES = (b"Address already in use", b"BindException")
# Twenty times what a start takes, for a machine with much else to do.
_START_TIMEOUT_S = 60
_POLL_INTERVAL_S = 0.02
# A port that was free can be taken before the broker binds it.
_MAX_PORT_ATTEMPTS = 3
_LOG_TAIL_LINES = 15

_SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners={protocol}://{host}:{port}
listener.security.protocol.map={protocol}:{protocol},CONTROLLER:PLAINTEXT
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
# Relative to the data directory, in which the broker runs: a path here would need Java's escapes.
log.dirs=kafka
# One node has one replica of everything.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Kafka's 50 partitions are made when the first group or transaction comes, which waits for them.
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
share.coordinator.state.topic.num.partitions=1
# Kafka waits 3 s for further members of a new group; readers here start one by one.
group.initial.rebalance.delay.ms=0
# A mistyped topic is an error, and our topics have settings of their own.
auto.create.topics.enable=false
# An open transaction hides all later records: look for those over their time-out each second, not each ten.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
# After a broker that was killed, the next one waits until its session has ended: 4 s, not 9.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# Kafka's 128 MiB would be a quarter of the heap.
log.cleaner.dedupe.buffer.size=8388608
"""


@dataclass(frozen=True)
class BrokerSecurity:
    """Who may do what on the broker; by default everybody may do everything.

    Attributes:
        protocol: Kafka's security protocol of the port for clients, which is also the name of its listener.
        settings: Further lines of server.properties.
        format_arguments: Further arguments of `StorageTool format`, for the users there are from the start.
    """

    protocol: str = "PLAINTEXT"
    settings: Mapping[str, str] = field(default_factory=dict)
    format_arguments: Sequence[str] = ()


class _PortTakenError(Exception):
    """The broker could not bind one of its ports."""


class EmbeddedBroker:
    """A Kafka broker that runs as long as the context lasts, and no longer than this process.

    With a data directory a later broker finds the topics and groups of this one again; without, everything is gone
    afterwards.
    """

    def __init__(self, port: int = 0, data_dir: Path | None = None, security: BrokerSecurity | None = None) -> None:
        """Only takes note; `with` starts it.

        Args:
            port: Where it listens on 127.0.0.1; 0: on a free port.
            data_dir: Where topics, settings and log (broker.log) are kept; None: in a temporary folder.
            security: Who may do what; None: everybody everything.
        """
        self._security = security or BrokerSecurity()
        self._wanted_port = port
        self._data_dir = data_dir.absolute() if data_dir is not None else None
        self._port = 0
        self._log_file = Path()
        self._process: ChildProcess | None = None
        self._resources = contextlib.ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT`, for a client's `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._running().pid

    def wait(self) -> NoReturn:
        """Waits until the broker dies, which is an error.

        Raises:
            UserError: It has died; the message has the end of its log.
        """
        exit_code = self._running().wait()
        raise UserError(f"The Kafka broker ended with exit code {exit_code}. {_log_tail(self._log_file)}")

    def __enter__(self) -> Self:
        """Starts the broker and returns once it serves clients.

        Raises:
            UserError: Java or the jars are missing, the port is taken, the directory cannot be used, or it died.
        """
        with contextlib.ExitStack() as resources:
            self._start(resources, find_java(), broker_jars())
            # Until here an error undoes what was done; from here on __exit__ does.
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process = None
        self._resources.close()

    def _running(self) -> ChildProcess:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _start(self, resources: contextlib.ExitStack, java: Path, jars: list[Path]) -> None:
        folder = self._data_dir or Path(resources.enter_context(_temporary_folder()))
        self._log_file = folder / "broker.log"
        resources.enter_context(_lock(folder))
        _prepare(self._log_file)
        java_options: list[str | Path] = [
            f"-Dlog4j2.configurationFile={_LOG4J_FILE.as_uri()}",
            "-cp",
            ":".join(map(str, jars)),
        ]
        for _ in range(_MAX_PORT_ATTEMPTS):
            self._port, controller_port = _free_ports(self._wanted_port)
            _write_settings(folder / _SETTINGS_FILE, self._port, controller_port, self._security)
            if not (folder / "kafka" / "meta.properties").exists():
                java_command = [java, *_FORMAT_JVM_OPTIONS, *java_options]
                _format(java_command, self._security.format_arguments, folder, self._log_file)
            broker = [java, *_BROKER_JVM_OPTIONS, *java_options, "kafka.Kafka", _SETTINGS_FILE]
            with contextlib.suppress(_PortTakenError):
                self._process = resources.enter_context(_run(broker, folder, self._log_file))
                return
        raise UserError(f"The Kafka broker found no free port. {_log_tail(self._log_file)}")


def run_broker_in_foreground(port: int = 0, data_dir: Path | None = None) -> int:
    """Runs a broker until SIGINT, SIGTERM or SIGHUP; prints `broker ready HOST:PORT` and returns the exit code.

    Raises:
        UserError: It could not start, or it died.
    """
    numbers = (*STOP_SIGNALS, signal.SIGHUP)
    with contextlib.suppress(Stopped), stop_signals.taken(numbers), EmbeddedBroker(port, data_dir) as broker:
        sys.stdout.write(f"broker ready {broker.bootstrap_servers}\n")
        sys.stdout.flush()
        broker.wait()
    return 0


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="queue-activation-broker-")
    try:
        yield folder
    finally:
        # A file that a broker ended by force still wrote is no reason to fail.
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps a second broker from a data directory: Kafka locks a part of it, and only after it has read the rest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / _LOCK_FILE).open("ab")
    except OSError as error:
        raise _unusable(error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another broker uses the data directory {folder}. Stop it, or choose another one."
            ) from None
        yield


def _unusable(error: OSError) -> UserError:
    return UserError(f"The broker's data directory cannot be used: {error}. Choose a folder that can be written.")


def _prepare(log_file: Path) -> None:
    try:
        # The log of the run before may say why it ended; older ones are of no use.
        with contextlib.suppress(FileNotFoundError):
            log_file.replace(log_file.with_suffix(".log.1"))
        log_file.touch()
    except OSError as error:
        raise _unusable(error) from error


def _free_ports(wanted_port: int) -> tuple[int, int]:
    """The broker's port and one for its controller."""
    with socket.socket() as broker, socket.socket() as controller:
        # As Java does: connections of a broker that has just ended do not keep the port taken.
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            broker.bind((HOST, wanted_port))
        except OSError as error:
            raise UserError(
                f"The broker cannot listen on {HOST}:{wanted_port}: {error.strerror}. "
                "Stop what listens there, or choose another port (0 takes a free one)."
            ) from error
        controller.bind((HOST, 0))
        return broker.getsockname()[1], controller.getsockname()[1]


def _write_settings(path: Path, port: int, controller_port: int, security: BrokerSecurity) -> None:
    text = _SETTINGS.format(protocol=security.protocol, host=HOST, port=port, controller_port=controller_port)
    text += "".join(f"{name}={value}\n" for name, value in security.settings.items())
    # There may be passwords in it: nobody else may ever read it, not even while it is written.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="ascii")


def _format(java: list[str | Path], arguments: Sequence[str], folder: Path, log_file: Path) -> None:
    """Makes the data directory of a new cluster; its meta.properties, written last, says that it is complete."""
    # A first bit of 0, so that the id does not begin with a dash and look like an option.
    cluster_id = base64.urlsafe_b64encode(bytes([uuid.uuid4().bytes[0] & 0x7F]) + uuid.uuid4().bytes[1:])
    tool = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster_id.decode().rstrip("=")]
    with ChildProcess([*java, *tool, "--config", _SETTINGS_FILE, *arguments], log_file=log_file, cwd=folder) as process:
        try:
            exit_code = process.wait(_START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            exit_code = process.stop()
    if exit_code != 0:
        raise UserError(f"The Kafka broker's data directory could not be made. {_log_tail(log_file)}")


@contextlib.contextmanager
def _run(command: list[str | Path], folder: Path, log_file: Path) -> Iterator[ChildProcess]:
    """Runs the broker; the context begins when it is ready."""
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
                raise UserError(f"The Kafka broker is not ready after {_START_TIMEOUT_S} s. {_log_tail(log_file)}")
            time.sleep(_POLL_INTERVAL_S)
        yield process


def _log_tail(log_file: Path) -> str:
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    # Stack traces would push the messages out of sight.
    telling = [f"  {line}" for line in lines if not line.startswith("\tat ")]
    return "\n".join(["The end of its log:", *telling[-_LOG_TAIL_LINES:]])
