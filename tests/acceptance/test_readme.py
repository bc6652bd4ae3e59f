"""The README's commands and programs, as a user types them: on a broker without a prefix, in a folder of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streaming.system.embedded_broker import EmbeddedBroker
from streaming.system.processes import ChildProcess, own_environment
from tests.support.command_lines import COMMAND, ROOT, fenced_blocks, shell_commands, split_assignments
from tests.support.waiting import wait_until

DEADLINE_S = 120.0
README = (ROOT / "README.md").read_text()
# The server of the README, in whose place the test's own broker is.
SERVERS = "localhost:9092"
PROGRAMS = ("monitor", "activator", "host", "run")


class Terminals:
    """The terminals in which a user types what a section of the README shows."""

    def __init__(self, folder: Path, bootstrap_servers: str, stack: ExitStack) -> None:
        self.folder = folder
        self._servers = bootstrap_servers
        self._stack = stack
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**own_environment(), "PATH": path}
        self.programs: dict[str, ChildProcess] = {}

    def type(self, section: str, block: int = 0) -> str:
        """Types the commands of a block of shell in a section; returns what those print that end by themselves."""
        return "".join(self.run(words) for words in shell_commands(fenced_blocks(of_section(section), "sh")[block]))

    def run(self, words: list[str]) -> str:
        """Runs a command; returns its output, or nothing if it is a program that runs until it is stopped."""
        assignments, command = split_assignments(words)
        self._environment |= {name: self._here(value) for name, value in assignments.items()}
        # The set-up is that of these tests.
        if not command or command[0] in ("make", "."):
            return ""
        if command[0] == COMMAND and command[1] in PROGRAMS and command[2:] != ["status"]:
            return self._start(command)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def run_python(self, block: str) -> str:
        """Runs a program; returns its output."""
        return self.run([sys.executable, "-c", self._here(block)])

    def start_python(self, name: str, block: str) -> ChildProcess:
        """Starts a program."""
        command = [sys.executable, "-c", self._here(block)]
        program = ChildProcess(command, log_file=self._log_file(name), env=self._environment, cwd=self.folder)
        return self._stack.enter_context(program)

    def wait_for_unread(self, queue: str, count: int) -> str:
        """Waits until a queue has so many unread messages; returns what `queue show` prints."""

        def shown() -> str:
            found = self.run([COMMAND, "queue", "show", queue])
            return found if f" {count} unread" in found else ""

        return wait_until(shown, DEADLINE_S, f"{count} unread messages in {queue}")

    def log(self, name: str) -> str:
        return self._log_file(name).read_text()

    def output_of(self, queue: str) -> str:
        """Returns what the programs of a queue have printed that the activator has started."""
        return (self.folder / "checkpoints" / "activator" / "logs" / f"{queue}.log").read_text()

    def wait_for_line(self, name: str, text: str) -> None:
        """Waits until a line of a program's log matches a pattern."""
        pattern = re.compile(text)
        wait_until(lambda: pattern.search(self.log(name)), DEADLINE_S, f"{text} in the log of {name}: {self.log(name)}")

    def _start(self, command: list[str]) -> str:
        """Starts a program. If it is typed again, it takes the place of the one that runs."""
        name = command[1]
        if name in self.programs:
            assert self.programs[name].stop(60) == 0, self.log(name)
            self._log_file(name).unlink()
        program = ChildProcess(command, log_file=self._log_file(name), env=self._environment, cwd=self.folder)
        self.programs[name] = self._stack.enter_context(program)
        program.wait_until_said(f"{name} ready")
        return ""

    def _log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _here(self, text: str) -> str:
        return text.replace(SERVERS, self._servers)


def of_section(title: str) -> str:
    """Returns the text of a section."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def terminals(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminals]:  # noqa: ARG001
    folder = tmp_path_factory.mktemp("user")
    (folder / "examples").symlink_to(ROOT / "examples")
    with EmbeddedBroker() as broker, ExitStack() as stack:
        yield Terminals(folder, broker.bootstrap_servers, stack)


def test_a_plain_consumer_is_started_for_a_message_reads_it_and_exits(terminals: Terminals) -> None:
    terminals.type("With your own Kafka")
    terminals.type("With your own Kafka", 1)
    said = terminals.type("With your own Kafka", 2)
    assert "sent to parcels: 1" in said
    assert "activator" in said
    terminals.wait_for_line("run", r"parcel-readers: .*started")
    terminals.wait_for_line("run", r"parcel-readers: exited .*exit code 0")
    assert terminals.output_of("parcel-readers") == "a message\n"
    assert "one more: no" in terminals.run([COMMAND, "groups", "parcel-readers"])
    assert "INACTIVE" in terminals.wait_for_unread("parcel-readers", 0)


def test_a_message_activates_its_queue_and_a_program_is_started_reads_it_and_exits(terminals: Terminals) -> None:
    said = terminals.type("The activator")
    assert "topic queue-1: created" in said
    assert "1 message sent to queue-1" in said
    assert "activator" in said
    terminals.wait_for_line("run", r"queue-1: .*started")
    terminals.wait_for_line("run", r"queue-1: exited .*exit code 0")
    assert terminals.output_of("queue-1") == "a message\n"
    assert "INACTIVE" in terminals.wait_for_unread("queue-1", 0)


def test_a_message_activates_its_queue_and_a_task_is_started_reads_it_and_exits(terminals: Terminals) -> None:
    terminals.type("Internal activation")
    terminals.run([COMMAND, "send", "payments", "a payment"])
    terminals.wait_for_line("host", "a payment\n")
    terminals.wait_for_line("host", r"payments: read_payments, task \S+: exited with code 0")
    as_of, *tasks = terminals.run([COMMAND, "tasks"]).splitlines()
    assert as_of.startswith("as of ")
    assert tasks == ["no task is running"]


def test_the_programs_in_python_send_and_read(terminals: Terminals) -> None:
    send, read = fenced_blocks(of_section("In Python"), "python")
    terminals.run_python(send)
    assert terminals.run_python(read) == "order 1\n"
    terminals.wait_for_unread("orders", 0)  # so that its topic can be deleted without a question


def test_definitions_can_be_changed_shown_and_dropped(terminals: Terminals) -> None:
    said = terminals.type("Definitions")
    assert "queue orders: altered" in said
    assert "start-orders" in said
    assert "topic orders: deleted" in said


def test_a_service_answers(terminals: Terminals) -> None:
    for command in ("topics", "run"):
        assert f"`queue-activation {command}`" in of_section("Services")
        terminals.run([COMMAND, command])
    terminals.type("Services")
    [order] = fenced_blocks(of_section("Services"), "python")
    ordering = terminals.start_python("order", order)
    terminals.wait_for_unread("stock", 1)
    terminals.run([sys.executable, "examples/services/stock.py", "stock"])
    assert ordering.wait(DEADLINE_S) == 0
    assert terminals.log("order") == "MESSAGE reserved: 3 chairs\nEND \n"
