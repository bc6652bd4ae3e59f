"""Reader programs of one queue in memory, and the truth about its messages: who has them, and which have failed.

A program has some sessions, which share its id and end with it. They behave as `QueueReader` does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streaming.core.activation.events import Event, Receive, ReceiveResult
from streaming.core.activation.session_ids import session_id_of
from tests.support.agenda import Agenda
from tests.support.histories import ALIVE, COMMIT, ENDED, ROLLBACK, SECOND

ALIVE_INTERVAL_MS = 10 * SECOND
KILLED, STOPPED, CRASHED = -9, -15, 1


@dataclass(frozen=True)
class Habits:
    """Describes the readers.

    Attributes:
        failures: The share of the blocks that fail.
        sessions: The greatest number of sessions in a program.
        session_timeout_ms: How long Kafka leaves its partitions to a reader that has become silent.
        count: Whether readers report how many messages are left.
    """

    failures: float = 0.0
    sessions: int = 1
    session_timeout_ms: int = 45 * SECOND
    count: bool = False


@dataclass(eq=False)
class Program:
    """A reader program.

    Attributes:
        session_id: The id that its sessions begin with.
        held: The session and the id of an open transaction -> its messages.
        reported: The transactions whose RECEIVE is reported.
        blocks: How many blocks have begun and not ended.
        members: How many of its sessions are members of the consumer group.
        frozen_until_ms: Until when the process does not run.
        exit_code: Its exit code; None while it runs.
        ends_with: The exit code with which it is going to end.
        has_received: Whether it has received messages.
        is_to_blame: Whether it has ended within a block, without a request to end.
    """

    session_id: str
    held: dict[tuple[str, str], int] = field(default_factory=dict)
    reported: set[tuple[str, str]] = field(default_factory=set)
    blocks: int = 0
    members: int = 0
    frozen_until_ms: int = 0
    exit_code: int | None = None
    ends_with: int = 0
    has_received: bool = False
    is_to_blame: bool = False

    @property
    def is_running(self) -> bool:
        return self.exit_code is None


class Readers:
    """All reader programs of the queue.

    Attributes:
        unread: How many messages are unread in truth.
        programs: All programs that were ever started.
        failed_in_row: How many transactions have failed since the last COMMIT.
    """

    def __init__(
        self, agenda: Agenda, habits: Habits, report: Callable[[Event], None], ended: Callable[[], None]
    ) -> None:
        self.agenda, self.random, self.habits = agenda, agenda.random, habits
        self.report, self.ended = report, ended
        self.unread = self.failed_in_row = 0
        self.programs: list[Program] = []
        self._database = self._failed_by_database = self._lost_ms = 0

    @property
    def running(self) -> list[Program]:
        return [each for each in self.programs if each.is_running]

    def start(self, session_id: str) -> None:
        """Starts a program."""
        program = Program(session_id)
        self.programs.append(program)
        self.agenda.at(self.random.randint(200, 2 * SECOND), lambda: self._open_sessions(program))

    def _open_sessions(self, program: Program) -> None:
        program.members = self.random.randint(1, self.habits.sessions) if program.is_running else 0
        for number in range(program.members):
            name = session_id_of(program.session_id, str(number))
            self._go_on(program, self._session(program, name))
            self._go_on(program, self._keep_alive(program, name))

    def _go_on(self, program: Program, steps: Iterator[int]) -> None:
        """Runs `steps`, a part of a program, until the part or the program ends.

        Each step yields the milliseconds that it takes.
        """
        if not program.is_running:
            return
        late_ms = max(program.frozen_until_ms, self.agenda.outage_until_ms) - self.agenda.now_ms
        if late_ms > 0:
            self.agenda.at(late_ms, lambda: self._go_on(program, steps))
        elif (delay_ms := next(steps, None)) is not None:
            self.agenda.at(delay_ms, lambda: self._go_on(program, steps))

    def _keep_alive(self, program: Program, name: str) -> Iterator[int]:
        while program.members:
            yield ALIVE_INTERVAL_MS
            self.report(ALIVE(name))

    def _session(self, program: Program, name: str) -> Iterator[int]:
        """Receives until the queue is empty; the last session ends the program."""
        wait_ms = self.random.choice((0, SECOND, 5 * SECOND, 20 * SECOND))
        while True:
            yield from self._wait(name, wait_ms)
            if not self.unread:
                break
            yield from self._block(program, name)
            if program.ends_with:
                break
        program.members -= 1
        self.report(ENDED(name))
        if not program.members:
            yield self.random.randint(1, SECOND)
            self.end(program, program.ends_with)

    def _wait(self, name: str, wait_ms: int) -> Iterator[int]:
        """Waits for messages; reports the wait and an empty result."""
        deadline_ms = self.agenda.now_ms + wait_ms
        is_reported = False
        while not self.unread and self.agenda.now_ms < deadline_ms:
            if not is_reported:
                is_reported = True
                self.report(Receive(name, ReceiveResult.WAITING, timeout_ms=deadline_ms - self.agenda.now_ms))
            yield 200
        if not self.unread:
            yield self.agenda.delay_ms()
        if not self.unread:
            is_alone = sum(each.members for each in self.programs) == 1
            self.report(Receive(name, ReceiveResult.EMPTY, unread=self._left() if is_alone else self._counted()))

    def _block(self, program: Program, name: str) -> Iterator[int]:
        """Receives messages in a transaction, works on them, and commits or fails."""
        key = name, f"t{next(self.agenda.ids)}"
        messages = min(self.unread, self.random.choice((1, 1, 5, 100)))
        self.unread -= messages
        program.held[key] = messages
        program.has_received = True
        program.blocks += 1
        yield self.agenda.delay_ms()
        program.reported.add(key)
        result, unread = ReceiveResult.MESSAGES, self._counted()
        self.report(Receive(name, result, messages, transaction_id=key[1], unread=unread))
        database, end_ms = self._database, self.agenda.now_ms + self.random.choice((10, 100, SECOND, 8 * SECOND))
        while self.agenda.now_ms < end_ms and database == self._database:
            yield 50
        fails = database != self._database or self.random.random() < self.habits.failures
        worked_ms = self.agenda.now_ms
        yield 0 if fails else self.agenda.delay_ms()
        has_waited_long = self.agenda.now_ms - worked_ms > 5 * SECOND
        program.blocks -= 1
        if not fails and not has_waited_long and key in program.held:
            del program.held[key]
            self.failed_in_row = 0
            self.report(COMMIT(*key))
        else:
            self._roll_back(program, key, is_interrupted=not fails or key not in program.held, database=database)

    def _roll_back(self, program: Program, key: tuple[str, str], *, is_interrupted: bool, database: int) -> None:
        self.unread += program.held.pop(key, 0)
        if not is_interrupted:
            # Rollbacks of one instant count once, or twice if they are in two batches of the monitor.
            has_own_cause = database == self._database or self.agenda.now_ms - self._lost_ms > SECOND
            self.failed_in_row += has_own_cause or self._failed_by_database < 2
            self._failed_by_database += 1
            program.ends_with = self.random.choice((0, CRASHED))
        self.report(ROLLBACK(*key, is_interrupted))

    def _counted(self) -> int | None:
        return self._left() if self.habits.count else None

    def _left(self) -> int:
        """Returns how many messages are left: neither read nor in an open transaction that the monitor knows."""
        held = [(each, key) for each in self.programs for key in each.held]
        return self.unread + sum(
            each.held[key] for each, key in held if not each.is_running or key not in each.reported
        )

    # what happens to programs

    def lose_database(self) -> None:
        """Lets all blocks fail at one instant, from one cause."""
        self._database += 1
        self._failed_by_database, self._lost_ms = 0, self.agenda.now_ms

    def end(self, program: Program, exit_code: int) -> None:
        """Ends a program's process. Kafka gives the messages of a killed program to other programs later."""
        program.exit_code = exit_code
        program.is_to_blame = exit_code != STOPPED and program.blocks > 0
        self.agenda.at(self.random.choice((0, SECOND, self.habits.session_timeout_ms)), lambda: self.give_back(program))
        self.ended()

    def stop(self, program: Program) -> None:
        """Asks a program to end, which rolls back its open transactions."""
        for key in program.held:
            self.report(ROLLBACK(*key, interrupted=True))
            self.report(ENDED(key[0], interrupted=True))
        self.end(program, STOPPED)

    def give_back(self, program: Program) -> None:
        """Gives the messages of a program to other programs."""
        self.unread += sum(program.held.values())
        program.held.clear()
        if not program.is_running:
            program.members = 0

    def freeze(self, program: Program, duration_ms: int) -> None:
        """Stops a process for a time, and lets it run again."""
        program.frozen_until_ms = self.agenda.now_ms + duration_ms
        if duration_ms > self.habits.session_timeout_ms:
            self.agenda.at(self.habits.session_timeout_ms, lambda: self.give_back(program))

    def lose_messages(self) -> None:
        """Deletes all messages."""
        self.unread = 0
        for program in self.programs:
            program.held.clear()
