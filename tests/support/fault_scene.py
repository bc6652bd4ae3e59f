"""The scene of a fault: a broker that can be killed, and a monitor that gets a history of records meanwhile."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from streaming.spark import worker_daemon
from streaming.system.embedded_broker import BrokerSecurity, EmbeddedBroker
from streaming.system.processes import THIS_COMMAND
from streaming.system.relay import Relay
from tests.support.differential import OPTIONS, History, Outcome, compare
from tests.support.killable_programs import Program
from tests.support.monitors import Monitored
from tests.support.waiting import children_of, is_running, processes_with, wait_until

# Several times the longest time to catch up on two busy cores.
DEADLINE_S = 120.0

# The environment variable by which a scene finds its Python workers, whichever process has started them.
SCENE_VARIABLE = "FAULTS_SCENE"

Report = Callable[[str, int, Outcome], None]


class KillableBroker:
    """A broker that can be killed, and started again on the same port with the same data."""

    def __init__(self, folder: Path, relay: Relay | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Stores the folder of its data, the way to it for some clients, and further lines of server.properties."""
        self._relay = relay
        self._settings = BrokerSecurity(settings=settings or {})
        self._data_dir = folder / "broker"
        self._port = 0
        self._stack = ExitStack()
        self._broker: EmbeddedBroker | None = None

    @property
    def bootstrap_servers(self) -> str:
        assert self._broker is not None
        return self._broker.bootstrap_servers

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> None:
        self._broker = self._stack.enter_context(
            EmbeddedBroker(self._port, self._data_dir, self._settings, self._relay)
        )
        self._port = int(self.bootstrap_servers.rpartition(":")[2])

    def kill(self) -> None:
        assert self._broker is not None
        pid = self._broker.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_running(pid), 10, "the end of the broker")
        self._stack.close()


def python_workers(scene: str) -> list[int]:
    """Returns the process ids of Spark's Python workers, and of their daemon, whose SCENE_VARIABLE is `scene`."""
    daemon = f"-m\0{worker_daemon.__name__}\0"  # the name alone would also find the JVM, which has it in a setting
    return [pid for pid in processes_with(daemon) if _has_variable(pid, SCENE_VARIABLE, scene)]


def kill_with_java(program: Program) -> None:
    """Kills a driver, as a crash does. The JVM and the workers end by themselves."""
    assert program.process is not None
    java = children_of(program.pid)
    program.kill()
    wait_until(lambda: not any(map(is_running, java)), DEADLINE_S, "the end of the JVM")


class Scene:
    """A monitor on its own topics that gets a random history while a test causes faults.

    Attributes:
        random: The random numbers from the scene's seed.
        broker: The broker of the scene.
        monitored: The topics of the scene.
        history: The records that are sent.
        monitor: The monitor's process.
    """

    def __init__(self, broker: KillableBroker, folder: Path, seed: int, within: Sequence[str] = ()) -> None:
        """Prepares the scene. `with` starts the monitor, through the command `within` if there is one."""
        self.random = Random(seed)  # noqa: S311  (no secret)
        self.broker = broker
        self.monitored = Monitored(broker.bootstrap_servers, folder, OPTIONS)
        self.history = History(self.monitored, Random(seed))  # noqa: S311
        self._name = self.monitored.prefix
        self.monitor = Program(
            name="monitor",
            options=self.monitored.command()[len(THIS_COMMAND) + 1 :],
            ready="monitor ready",
            folder=folder,
            within=within,
            environment={SCENE_VARIABLE: self._name},
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.monitor.stop()

    @property
    def checkpoint(self) -> Path:
        return self.monitored.checkpoint

    def start(self) -> None:
        """Starts the monitor; returns when it is ready."""
        self.monitor.start()
        self.monitor.wait_until_ready()

    def kill_driver(self) -> None:
        """Kills the driver; see `kill_with_java`."""
        kill_with_java(self.monitor)

    def workers(self) -> list[int]:
        """Returns the process ids of the Python workers and of their daemon."""
        return python_workers(self._name)

    def kill_worker(self) -> None:
        """Kills a random Python worker, busy or idle, or their daemon."""
        workers = wait_until(self.workers, DEADLINE_S, "a Python worker")
        os.kill(self.random.choice(sorted(workers)), signal.SIGKILL)

    def wait_until_all_is_read(self) -> None:
        def is_read() -> bool:
            self.monitor.check()
            return self.history.is_read()

        wait_until(is_read, DEADLINE_S, "all records in the log of batches")

    def finish(self, fault: str, moments: int, report: Report) -> Outcome:
        """Lets the monitor read everything, stops it, compares its output with the core's, and reports the outcome."""
        self.wait_until_all_is_read()
        assert self.monitor.stop() == 0
        comparison = compare(self.monitored, self.history.sent)
        report(fault, moments, comparison.outcome)
        comparison.check()
        return comparison.outcome

    def ends_by_itself(self) -> str:
        """Waits until the monitor ends with an error; returns the line with the error."""
        process = self.monitor.process
        assert process is not None
        code = wait_until(process.poll, DEADLINE_S, "the end of the monitor")
        text = self.monitor.log_file.read_text()
        assert code in (1, 2), text[-3000:]
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, f"not one clear message: {text[-3000:]}"
        return errors[0]


def _has_variable(pid: int, name: str, value: str) -> bool:
    try:
        return f"{name}={value}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
