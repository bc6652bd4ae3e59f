"""Queue readers in their own processes, led step by step: the test decides when each receives, commits and dies.

Commands go to the program's standard input. Answers come in a file, which stays whole after a kill -9. Both have one
JSON value per line.
"""

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from producers import reader as reader_module
from producers.reader import QueueReader
from streaming.kafka.errors import ReceiveRolledBackError
from streaming.kafka.transactions import TransactionalProducer
from tests.support.monitor_topics import DEADLINE_S, KafkaAdminClient, MemberToRemove, MonitorTopics
from tests.support.waiting import wait_until

_ROOT = Path(__file__).parents[2]

# The least that Kafka allows. After each kill of a reader the test waits this long; the reader's default is 10 s.
_SESSION_TIMEOUT_MS = "6000"
# After a reader is killed while it commits, all others wait this long. The reader's default is 10 s.
_TRANSACTION_TIMEOUT_MS = 5_000


class End(StrEnum):
    """The ways to end a receive block.

    In the last three the reader is killed while it commits, after the step of `TransactionalProducer` that the value
    names. If Kafka refuses the commit before that step, the reader is killed then.
    """

    COMMIT = "commit"
    ROLL_BACK = "roll back"
    CLOSE = "close"
    KILL = "kill"
    KILL_AFTER_REPORT = "produce"
    KILL_AFTER_OFFSETS = "send_offsets"
    KILL_AFTER_COMMIT = "transaction"


KILLS_IN_COMMIT = (End.KILL_AFTER_REPORT, End.KILL_AFTER_OFFSETS, End.KILL_AFTER_COMMIT)


class Outcome(StrEnum):
    """The reader's answer about its block; UNKNOWN if the reader was killed before it could answer."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a reader received."""

    partition: int
    offset: int
    value: str


@dataclass(slots=True)
class Block:
    """A receive block with messages.

    Attributes:
        session_id: The session of the reader.
        messages: The received messages.
        outcome: The outcome; None while the block is open.
    """

    session_id: str
    messages: list[Taken]
    outcome: Outcome | None = None


class ReaderProgram:
    """A queue reader in its own process, as the test sees it."""

    def __init__(self, topics: MonitorTopics, queue: str, session_id: str, folder: Path) -> None:
        """Starts the program and waits until its reader is open.

        Args:
            topics: The monitor's topics.
            queue: The queue that it reads.
            session_id: Its session, and its client id, which identifies its member of the consumer group.
            folder: The folder for the files with its answers and errors.
        """
        self.session_id = session_id
        self.blocks: list[Block] = []
        self.is_assigned = False
        self._answers, self._errors = folder / f"{session_id}.answers", folder / f"{session_id}.errors"
        self._answers_taken = 0
        with self._answers.open("wb") as answers, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-m",
                    __name__,
                    topics.bootstrap_servers,
                    topics.prefix,
                    queue,
                    session_id,
                ],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=answers,
                stderr=errors,
                bufsize=0,
            )
        self._answer("to be ready")

    @property
    def block(self) -> Block | None:
        """Returns the open block; None if there is none."""
        return self.blocks[-1] if self.blocks and self.blocks[-1].outcome is None else None

    @property
    def is_killed(self) -> bool:
        """Returns whether SIGKILL has ended the program."""
        return self._process.returncode == -signal.SIGKILL

    def begin_receive(self, max_messages: int, timeout_s: float) -> None:
        """Lets the reader begin a receive block."""
        self._command({"max_messages": max_messages, "timeout_s": timeout_s})

    def end_receive(self) -> Block | None:
        """Waits for the result of the receive. Without messages the block is over, and None is returned."""
        answer = self._answer("to receive")
        self.is_assigned = answer["is_assigned"]
        if answer["received"]:
            self.blocks.append(Block(self.session_id, [Taken(*row) for row in answer["received"]]))
        return self.block

    def end_block(self, how: End) -> Outcome:
        """Ends the open block."""
        block = self.block
        assert block is not None
        if how is End.KILL:
            self.kill()
        else:
            self._command(how)
            if how in KILLS_IN_COMMIT:
                assert self._wait() == -signal.SIGKILL, self._errors.read_text()
                block.outcome = Outcome(self._next_answer() or Outcome.UNKNOWN)
            else:
                block.outcome = Outcome(self._answer(f"to {how}"))
            if how is End.CLOSE:
                assert self._wait() == 0, self._errors.read_text()
        assert block.outcome is not None
        return block.outcome

    def close(self) -> None:
        """Closes the reader outside of a block."""
        self._command(End.CLOSE)
        assert self._wait() == 0, self._errors.read_text()

    def kill(self) -> None:
        """Kills the program with SIGKILL, wherever it is. A second call does nothing."""
        self._process.kill()
        self._wait()
        if self.block is not None:
            self.block.outcome = Outcome.UNKNOWN

    def _wait(self) -> int:
        """Waits for the end of the program; returns its exit code."""
        self._wait_until(lambda: self._process.poll() is not None, "to end")
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait()

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for the condition. At the deadline, aborts the program and adds its stack traces to the error."""
        try:
            wait_until(condition, DEADLINE_S, f"reader {self.session_id} {what}")
        except AssertionError as error:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            error.add_note(self._errors.read_text())
            raise

    def _command(self, command: Any) -> None:
        assert self._process.stdin is not None
        # If the program has died, `_answer` fails with its errors.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def _answer(self, what: str) -> Any:
        self._wait_until(lambda: self._next_answer(takes=False) is not None or self._process.poll() is not None, what)
        answer = self._next_answer()
        assert answer is not None, f"reader {self.session_id} died: {self._errors.read_text()}"
        return answer

    def _next_answer(self, *, takes: bool = True) -> Any:
        """Returns the next answer; None if there is none yet."""
        lines = self._answers.read_bytes().split(b"\n")[self._answers_taken : -1]
        if not lines:
            return None
        self._answers_taken += takes
        return json.loads(lines[0])


def expel(bootstrap_servers: str, queue: str, session_ids: Sequence[str] | None = None) -> None:
    """Removes some sessions, or all, from the queue's consumer group. For a dead session this replaces the time-out."""
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as admin:
        members = [
            MemberToRemove(member_id=member["member_id"])
            for member in admin.describe_groups([queue])[queue]["members"]
            if session_ids is None or member["client_id"] in session_ids
        ]
        if members:
            admin.remove_group_members(queue, members)


# The program


class _LeaveBlockError(Exception):
    """Raised in a block that the test wants to be rolled back."""


def _say(answer: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


def _commands() -> Iterator[Any]:
    """Returns an iterator over the test's commands, which ends when the test has ended."""
    return map(json.loads, iter(sys.stdin.readline, ""))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_after(method: Callable[..., Any]) -> Callable[..., Any]:
    def call_and_die(*arguments: Any, **options: Any) -> None:
        method(*arguments, **options)
        _die()

    return call_and_die


@contextmanager
def _transaction_and_die(producer: TransactionalProducer) -> Iterator[None]:
    with _TRANSACTION(producer):
        yield
    _die()


_TRANSACTION = TransactionalProducer.transaction


def _end_block(reader: QueueReader, how: End) -> None:
    """Prepares the end of the block: raises, closes the reader, or sets the step after which the program dies."""
    match how:
        case End.ROLL_BACK:
            raise _LeaveBlockError
        case End.CLOSE:
            reader.close()
        case End.KILL_AFTER_REPORT | End.KILL_AFTER_OFFSETS:
            setattr(TransactionalProducer, how, _dies_after(getattr(TransactionalProducer, how)))
        case End.KILL_AFTER_COMMIT:
            TransactionalProducer.transaction = _transaction_and_die  # type: ignore[method-assign, assignment]


def _receive(reader: QueueReader, commands: Iterator[Any], max_messages: int, timeout_s: float) -> bool:
    """Runs one receive block; returns whether there may be another."""
    how = None
    try:
        with reader.receive(max_messages, timeout_s) as messages:
            received = [(each.partition, each.offset, each.value.decode()) for each in messages]
            _say({"received": received, "is_assigned": reader.is_assigned})
            if not messages:
                return True
            how = End(next(commands))
            _end_block(reader, how)
        _say(Outcome.COMMITTED)
    except _LeaveBlockError:
        _say(Outcome.ROLLED_BACK)
    except ReceiveRolledBackError:
        _say(Outcome.REFUSED)
        if how in KILLS_IN_COMMIT:
            _die()  # the commit was refused before the step at which the program was to die
    return how is not End.CLOSE


def _main(bootstrap_servers: str, prefix: str, queue: str, session_id: str) -> None:
    reader_module.TransactionalProducer = functools.partial(  # type: ignore[misc, assignment]
        TransactionalProducer, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
    )
    kafka_config = {"client.id": session_id, "session.timeout.ms": _SESSION_TIMEOUT_MS}
    commands = _commands()
    with QueueReader(
        bootstrap_servers, queue, topic_prefix=prefix, session_id=session_id, kafka_config=kafka_config
    ) as reader:
        _say("ready")
        for command in commands:
            if command == End.CLOSE or not _receive(reader, commands, **command):
                return


if __name__ == "__main__":
    _main(*sys.argv[1:])
