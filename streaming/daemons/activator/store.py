"""The activator's durable state, in one SQLite file of its state directory."""

import contextlib
import os
import secrets
import sqlite3
import time
import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from streaming.core.activation.program_starts import QueueActivator
from streaming.daemons.activator.settings import ActivatorEvent
from streaming.errors import UserError
from streaming.system import hints
from streaming.system.file_lock import try_lock
from streaming.system.process_identity import Identity, identity_of

_FILE = "activator.db"
_LOCK_FILE = "lock"
# Raised with each change of the tables or of QueueActivator that makes older files incomplete.
_FORMAT_VERSION = 2
_state_decoder = msgspec.json.Decoder(QueueActivator)

# Only the owner may read the state. SQLite gives the files that it adds the mode of the database file.
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_SALT_BYTES = 32

# `status` may read while the activator writes.
_BUSY_TIMEOUT_S = 5.0
# `status` holds the lock for an instant to test whether it is free, so a failed attempt is repeated.
_LOCK_ATTEMPTS = 5
_LOCK_RETRY_S = 0.05
# Enough to see what happened. The last decision of each queue, which `status` shows, is kept apart from these.
MAX_DECISIONS = 1_000

_ADVICE = (
    "If the file is damaged, stop the programs that the activator has started, then remove it: it is their only record"
)
_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR")
_ADVICE_ROOM = "Make room on its disk, then start the activator again: it goes on from what is recorded"

_TABLES = """
CREATE TABLE queues (queue TEXT PRIMARY KEY, state BLOB NOT NULL, at_ms INTEGER NOT NULL,
                     action TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE programs (session_id TEXT PRIMARY KEY, queue TEXT NOT NULL, pid INTEGER NOT NULL,
                       start_ticks INTEGER NOT NULL, boot_id TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE ended_sessions (session_id TEXT PRIMARY KEY, queue TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE decisions (number INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, queue TEXT NOT NULL,
                        action TEXT NOT NULL, why TEXT NOT NULL);
CREATE TABLE about (one INTEGER PRIMARY KEY CHECK (one = 1), value BLOB NOT NULL);
"""


@dataclass
class QueueRecord:
    """A queue's state, and its last decision."""

    state: QueueActivator
    at_ms: int = 0
    action: str = ""
    why: str = ""


@dataclass(frozen=True)
class ProgramRecord:
    """A program whose gate was opened, or was about to be opened."""

    session_id: str
    queue: str
    identity: Identity


@dataclass
class About:
    """The status and identity of the activator itself.

    Attributes:
        instance_id: Identifies the activator in its consumer group after a restart.
        salt: The key of the digests of secrets. It makes the digests useless elsewhere.
        pid: The activator's process id.
        since_ms: The time of its start.
        seen_ms: The time at which it last saved its status.
        config_file: Full path of the config; empty while the activator starts.
        config_error: Why a changed config was refused; None if it was not.
        kafka_problem: The present problem with Kafka, as a sentence; None if there is none.
        passed_over: Number of records since the start that could not be decoded.
        without_entry: Queues that got a notification since the start, and have no entry in the config.
        group_id: The activator's consumer group.
        directory: The activator's working directory, the base of relative names of log files; empty if it is not UTF-8.
        host: The name of its machine; empty if an older version has written the record.
        place: Its options that say where Kafka is; None if an older version has written the record.
        has_own_group: Whether its consumer group is not the default one of its topics.
    """

    instance_id: str
    pid: int = 0
    since_ms: int = 0
    seen_ms: int = 0
    config_file: str = ""
    config_error: str | None = None
    kafka_problem: str | None = None
    passed_over: int = 0
    salt: str = ""
    without_entry: list[str] = field(default_factory=list)
    group_id: str = ""
    directory: str = ""
    host: str = ""
    place: list[str] | None = None
    has_own_group: bool = False


_about_decoder = msgspec.json.Decoder(About)


def lock_state(directory: Path) -> IO[bytes]:
    """Keeps a second activator from using the same state directory, until the returned file is closed.

    Any end of the process closes the file.

    Raises:
        UserError: Another activator has the lock, or the directory cannot be used.
    """
    with _usable(directory):
        directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        _make_private(directory, _DIRECTORY_MODE)
        file = _open_private(directory / _LOCK_FILE)
    for _ in range(_LOCK_ATTEMPTS):
        if try_lock(file):
            _note_process(file)
            return file
        time.sleep(_LOCK_RETRY_S)
    file.close()
    raise _in_use(directory)


def await_free(directory: Path, patience_s: float) -> None:
    """Waits, before `run` starts an activator, until no activator runs on this state directory.

    Raises:
        UserError: The activator that runs on the state directory does not end, or the directory cannot be used.
    """
    deadline_s = time.monotonic() + patience_s
    with _usable(directory):
        while is_locked(directory):
            if time.monotonic() >= deadline_s:
                # --take-over of `run` ends another `run`, but no activator that was started alone.
                raise _in_use(directory, ", which --take-over does not do")
            time.sleep(_LOCK_RETRY_S)


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Raises UserError if the state directory cannot be used."""
    try:
        yield
    except OSError as error:
        raise UserError(f"The state directory {directory} cannot be used: {error.strerror}") from None


def _note_process(lock: IO[bytes]) -> None:
    """Writes the identity of this process into its lock, for the message of `_in_use`."""
    with contextlib.suppress(OSError):  # a full disk
        lock.truncate(0)
        os.write(lock.fileno(), msgspec.json.encode(identity_of(os.getpid())))


def _in_use(directory: Path, limit: str = "") -> UserError:
    """Returns the error that another activator uses the state directory.

    Args:
        directory: The state directory.
        limit: The words after the advice to stop that activator.
    """
    process = ""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        holder = msgspec.json.decode((directory / _LOCK_FILE).read_bytes(), type=Identity)
        if identity_of(holder.pid) == holder:
            process = f" (process {holder.pid})"
    return UserError(
        f"Another activator{process} uses the state directory {directory}. Stop it{limit}, or give this one another "
        f"{hints.option('--state-directory', names_table=False)} and another {hints.option('--group-id')}."
    )


def is_locked(directory: Path) -> bool:
    """Returns whether an activator runs on this state directory."""
    try:
        with (directory / _LOCK_FILE).open("rb") as file:
            return not try_lock(file)
    except FileNotFoundError:
        return False


def _open_private(path: Path) -> IO[bytes]:
    """Opens a file for appending. Only its owner may open the file, also if it existed before."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _FILE_MODE), "ab")
    _make_private(path, _FILE_MODE)
    return file


def _make_private(path: Path, mode: int) -> None:
    """Sets the mode, whatever the umask, unless the file belongs to another user."""
    if path.stat().st_uid == os.geteuid():
        path.chmod(mode)


class Store:
    """The state on disk. A context manager."""

    def __init__(self, directory: Path) -> None:
        """Opens or creates the state.

        Raises:
            UserError: The state cannot be used, or a newer version has written it.
        """
        self._path = directory / _FILE
        try:
            _open_private(self._path).close()
            for added in directory.glob(f"{_FILE}-*"):
                _make_private(added, _FILE_MODE)
        except OSError as error:
            raise UserError(f"{self._path} cannot be used: {error.strerror}") from None
        self._connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            self._execute("PRAGMA journal_mode = WAL")
            self._execute("PRAGMA synchronous = FULL")
            with self.transaction():
                [(version,)] = self._execute("PRAGMA user_version")
                if version < _FORMAT_VERSION:
                    self._upgrade(version)
            if version > _FORMAT_VERSION:
                raise UserError(f"{self._path} was written by a newer version of queue-activation. Upgrade this one.")
        except UserError:
            self._connection.close()
            raise

    def _upgrade(self, version: int) -> None:
        """Upgrades the state of an older version, or creates the tables of a new state."""
        if version == 0:
            for statement in _TABLES.split(";")[:-1]:
                self._execute(statement)
            self.save_about(About(f"activator-{uuid.uuid4()}"))
        about = self.about()
        about.salt = secrets.token_hex(_SALT_BYTES)
        self.save_about(about)
        self._execute(f"PRAGMA user_version = {_FORMAT_VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _execute(self, statement: str, *values: object) -> list[Any]:
        """Executes a statement; returns the rows that it selects."""
        with self._usable():
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Raises UserError if the file cannot be read or written, or has been damaged."""
        try:
            yield
        except (sqlite3.DatabaseError, msgspec.DecodeError, TypeError) as error:
            has_no_room = getattr(error, "sqlite_errorname", "").startswith(_NO_ROOM)
            raise UserError(
                f"{self._path} cannot be used: {error}. {_ADVICE_ROOM if has_no_room else _ADVICE}"
            ) from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes the block a transaction, which is on disk when the block ends; an exception rolls it back."""
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite itself rolls back if the disk is full
                self._execute("ROLLBACK")
            raise

    def queues(self) -> dict[str, QueueRecord]:
        """Returns the record of each queue."""
        rows = self._execute("SELECT queue, state, at_ms, action, why FROM queues ORDER BY queue")
        with self._usable():
            return {queue: QueueRecord(_state_decoder.decode(state), *last) for queue, state, *last in rows}

    def save_queue(self, queue: str, record: QueueRecord) -> None:
        """Saves the record of a queue."""
        values = msgspec.json.encode(record.state), record.at_ms, record.action, record.why
        self._execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?)", queue, *values)

    def forget_queue(self, queue: str) -> None:
        """Deletes the record of a queue."""
        self._execute("DELETE FROM queues WHERE queue = ?", queue)

    def programs(self) -> list[ProgramRecord]:
        """Returns the programs whose end has not been recorded."""
        rows = self._execute("SELECT session_id, queue, pid, start_ticks, boot_id FROM programs")
        return [ProgramRecord(session_id, queue, Identity(*identity)) for session_id, queue, *identity in rows]

    def add_program(self, program: ProgramRecord) -> None:
        """Records a program. The program may run only after that."""
        identity = astuple(program.identity)
        self._execute("INSERT INTO programs VALUES (?, ?, ?, ?, ?)", program.session_id, program.queue, *identity)

    def end_program(self, session_id: str, queue: str) -> None:
        """Records the end of a program; its session must then be reported as ended."""
        self._execute("DELETE FROM programs WHERE session_id = ?", session_id)
        self._execute("INSERT OR REPLACE INTO ended_sessions VALUES (?, ?)", session_id, queue)

    def ended_sessions(self) -> list[tuple[str, str]]:
        """Returns (session_id, queue) of each ended session whose report Kafka has not acknowledged."""
        return self._execute("SELECT session_id, queue FROM ended_sessions")

    def forget_session(self, session_id: str) -> None:
        """Deletes an ended session whose report Kafka has acknowledged."""
        self._execute("DELETE FROM ended_sessions WHERE session_id = ?", session_id)

    def add_decision(self, event: ActivatorEvent) -> None:
        """Adds a decision or another event, and deletes the oldest event beyond MAX_DECISIONS."""
        values = event.at_ms, event.queue or "", event.what, event.why
        self._execute("INSERT INTO decisions (at_ms, queue, action, why) VALUES (?, ?, ?, ?)", *values)
        self._execute("DELETE FROM decisions WHERE number <= (SELECT MAX(number) FROM decisions) - ?", MAX_DECISIONS)

    def decisions(self, count: int) -> list[ActivatorEvent]:
        """Returns the latest decisions and other events, oldest first."""
        rows = self._execute("SELECT at_ms, queue, action, why FROM decisions ORDER BY number DESC LIMIT ?", count)
        return [ActivatorEvent(at_ms, queue or None, what, why) for at_ms, queue, what, why in reversed(rows)]

    def about(self) -> About:
        """Returns the status and identity of the activator itself."""
        rows = self._execute("SELECT value FROM about")
        with self._usable():
            return _about_decoder.decode(rows[0][0] if rows else b"")

    def save_about(self, about: About) -> None:
        """Saves the status and identity of the activator itself."""
        self._execute("INSERT OR REPLACE INTO about VALUES (1, ?)", msgspec.json.encode(about))


def has_state(directory: Path) -> bool:
    """Returns whether an activator has ever run on this state directory."""
    return (directory / _FILE).exists()
