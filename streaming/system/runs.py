"""Notes of the last `run` on each topic prefix. By its note, views know that a `run` starts, and how to start it again.

A program that is started alone leaves a note too. By this note, views know that the program starts or was killed.

The notes are files in the cache of this user. On another machine, and without a cache, views have no notes.
"""

import hashlib
import os
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from streaming.errors import UserError
from streaming.system import hints, wall_clock
from streaming.system.client_ids import process_of
from streaming.system.jars import cache_dir
from streaming.system.paths import shown, working_directory
from streaming.system.process_identity import Identity, identity_of

# The most notes of a kind that are kept. Each topic prefix has a note.
_MOST_NOTES = 20
# The ends of the names of the notes: of the last `run`, of the last `run` that became ready, and of the file of the
# last activator. The name of the note of a program that was started alone ends with the program's name.
_OF_RUN, _OF_READY, _OF_ACTIVATOR = ".json", ".ready", ".file"
# The file with the state directory of the last activator.
_LAST_STATE = "activator"


# The command of most notes, and the programs that it starts with the activator's file, and for services.
RUN = "run"
OF_FILE, OF_SERVICES = ("monitor", "observer", "activator"), ("monitor", "router", "transport")


class State(StrEnum):
    """The state in the note of a `run`. If the `run` is killed, the note keeps the last state."""

    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"


class Run(Struct, frozen=True, kw_only=True):
    """The note of a `run`, or of a program that was started alone.

    Attributes:
        command: The command: `run`, or the program that was started alone.
        process: The process of the `run`.
        namespace: The namespace of its process id. Each container has a separate namespace.
        servers: The bootstrap servers of its Kafka.
        prefix: The prefix of its topics.
        programs: The names of its programs.
        file: The full name of the activator's file; None if there is none.
        directory: The working directory of the `run`, the base of its relative file names; empty if it is not known.
        services: Whether it also runs the programs that services need, although it has a file.
        options: The other options of the `run`.
        config: The file of an option --config that stands before the command; None if there is none.
        place: The options that say where the Kafka of the `run` is.
        state_directory: The full name of the activator's state directory; empty for a program that was started alone.
        state: The state of the `run`.
        ready: The names of its programs that are ready.
        started_ms: When it was started.
    """

    command: str = RUN
    process: Identity
    namespace: str
    servers: str
    prefix: str
    programs: list[str]
    file: str | None = None
    directory: str = ""
    services: bool = False
    options: list[str] = []
    config: str | None = None
    place: list[str] = []
    state_directory: str = ""
    state: State = State.STARTING
    ready: list[str] = []
    started_ms: int = msgspec.field(default_factory=wall_clock.now_ms)

    @property
    def is_running(self) -> bool:
        """Returns whether the `run` still runs, as a process of this machine."""
        return self._is_open and identity_of(self.process.pid) == self.process

    @property
    def was_killed(self) -> bool:
        """Returns whether the `run` was a process of this machine, and ended without noting its end."""
        return self._is_open and not self.is_running

    @property
    def _is_open(self) -> bool:
        """Returns whether the `run` has not noted its end, and this process can see whether it still runs."""
        return self.state is not State.ENDED and self.namespace == namespace()

    @property
    def is_starting(self) -> bool:
        """Returns whether the `run` is still starting its programs."""
        return self.state is State.STARTING and self.is_running

    @property
    def unready(self) -> list[str]:
        """Returns the names of the programs that the `run` is still starting."""
        return [each for each in self.programs if each not in self.ready] if self.is_starting else []

    def is_process_of(self, client_id: str) -> bool:
        """Returns whether a member of a consumer group with this `client_id` is in the process of the `run`."""
        return process_of(client_id) == self.process.pid

    def doing(self) -> str:
        """Returns the sentence about a `run` that runs although one of its programs is missing."""
        name = f"`{self.command}` (process {self.process.pid})"
        if self.is_starting:
            return f"{name} is starting"
        return f"{name} runs, and has started one: unless it is being stopped, its lines say what is wrong"

    def again(self, *, needs_file: bool = False, needs_services: bool = False) -> tuple[list[str], list[str]]:
        """Returns the command that starts the `run` again, without the options that say where Kafka is.

        Also returns the programs that this command starts.

        Args:
            needs_file: Whether the command must name the activator's file, even if the `run` had none.
            needs_services: Whether the command must run the programs of services, even if the `run` did not.
        """
        has_file = needs_file or self.file is not None
        has_services = needs_services or self.services or self.file is None  # without a file, it is for services
        shown_file = "FILE" if self.shown_file() is None else self._shown_there(str(self.file))
        words = [shown_file, *(["--services"] if has_services else [])] if has_file else []
        programs = dict.fromkeys([*(OF_FILE if has_file else ()), *(OF_SERVICES if has_services else ())])
        return [RUN, *words, *self.options], [*programs]

    def shown_file(self) -> str | None:
        """Returns the activator's file as the user may name it here; None if the file does not exist."""
        return None if self.file is None or not Path(self.file).exists() else shown(self.file, working_directory())

    def line(self, words: Sequence[str]) -> str:
        """Returns the command line with these words, for the Kafka of the view, with this `run`'s file of --config.

        In another working directory, the command line first changes to the working directory of this `run`.

        Args:
            words: The words of `again`.
        """
        return self._there(hints.command(*words, config=self._config()))

    def line_with_place(self, words: Sequence[str]) -> str:
        """Returns the command line of `line` for a view that does not know Kafka. It names the Kafka of this `run`."""
        return self._there(hints.plain(*words, *self.place, config=self._config()))

    def _config(self) -> str | None:
        return None if self.config is None else self._shown_there(self.config)

    def _shown_there(self, path: str) -> str:
        return shown(path, self.directory or working_directory())

    def _there(self, command: str) -> str:
        is_here = self.directory in ("", working_directory()) or not Path(self.directory).exists()
        return command if is_here else f"cd {shlex.quote(self.directory)} && {command}"


def namespace() -> str:
    """Returns the namespace of this machine's process ids; empty if it is not known."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


@contextmanager
def noted(note: Run) -> Iterator[Callable[[Collection[str]], None]]:
    """Writes a note, and after the block the end of the `run`.

    Yields a function to call when a program is ready, with the names of the programs that are not ready.
    """
    _write(note)

    def is_ready(unready: Collection[str]) -> None:
        ready = [each for each in note.programs if each not in unready]
        _write(msgspec.structs.replace(note, ready=ready, state=State.STARTING if unready else State.READY))
        if not unready and note.command == RUN:
            _write(msgspec.structs.replace(note, state=State.ENDED), _OF_READY)
            note_activator(note.servers, note.prefix, None if note.file is None else Path(note.file))

    try:
        yield is_ready
    finally:
        last_one = last(note.servers, note.prefix, note.command)
        if last_one is not None and last_one.process == note.process:  # no other one has taken over
            _write(msgspec.structs.replace(note, state=State.ENDED))


@contextmanager
def noted_alone(
    program: str, servers: str, prefix: str, state: State = State.STARTING
) -> Iterator[Callable[[Collection[str]], None]]:
    """Writes the note of a program that was started alone, as `noted` does. In the process of a `run`, writes nothing.

    Args:
        program: The program.
        servers: The bootstrap servers.
        prefix: The prefix of the topics.
        state: The program's state.
    """
    process, run = of_this_process(), last(servers, prefix)
    if run is not None and run.is_running and run.process == process:
        yield lambda _unready: None
        return
    note = Run(
        command=program,
        process=process,
        namespace=namespace(),
        servers=servers,
        prefix=prefix,
        programs=[program],
        state=state,
    )
    with noted(note) as is_ready:
        yield is_ready


def of_this_process() -> Identity:
    """Returns the identity of this process."""
    return identity_of(os.getpid()) or Identity(os.getpid(), 0, "")


def last(servers: str, prefix: str, command: str = RUN) -> Run | None:
    """Returns the note of the last `run` of this user on these topics; None if there is none.

    Args:
        servers: The bootstrap servers.
        prefix: The prefix of the topics.
        command: `run`, or the program whose last start alone is looked for.
    """
    return _found(servers, prefix, _end(command))


def advised(servers: str, prefix: str) -> Run | None:
    """Returns the note of the `run` that advice names: the last one on these topics if it runs.

    Otherwise returns the note of the last `run` that became ready, whose command line works. If none became ready,
    returns the note of the last `run`; None if there is none.
    """
    found = last(servers, prefix)
    return found if found is None or found.is_running else _found(servers, prefix, _OF_READY) or found


def last_with_state(directory: Path) -> Run | None:
    """Returns the note of this user's last `run` whose activator has this state directory; None if there is none."""
    found = (_read(path) for path in _newest_first(_OF_RUN))
    return next((run for run in found if run is not None and run.state_directory == str(directory.absolute())), None)


def note_activator(servers: str, prefix: str, file: Path | None) -> None:
    """Stores the name of the file of the activator that this user has started last on these topics.

    Args:
        servers: The bootstrap servers.
        prefix: The prefix of the topics.
        file: The file; None if a `run` without an activator was started last.
    """
    with suppress(OSError, UserError, UnicodeError):
        path = _path(servers, prefix, _OF_ACTIVATOR)
        if file is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(str(file.absolute()))
            _remove_old(_OF_ACTIVATOR)


def last_file(servers: str, prefix: str) -> str | None:
    """Returns the full name of the file of the activator that this user has started last on these topics.

    Returns None if it is not known, or if a `run` without an activator was started after it.
    """
    with suppress(OSError, UserError, UnicodeError):
        return _path(servers, prefix, _OF_ACTIVATOR).read_text()
    return None


def note_state_directory(directory: Path) -> None:
    """Stores the name of the state directory of the activator that this user has started last."""
    with suppress(OSError, UserError, UnicodeError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder() / _LAST_STATE).write_text(str(directory.absolute()))


def last_state_directory() -> Path | None:
    """Returns the state directory of the activator that this user has started last; None if it is not known."""
    with suppress(OSError, UserError, UnicodeError):
        return Path((folder() / _LAST_STATE).read_text())
    return None


def folder() -> Path:
    """Returns the folder of the notes; raises UserError if this user has no place for a cache."""
    return cache_dir() / "runs"


def _end(command: str) -> str:
    """Returns the end of the names of the notes that a command leaves."""
    return _OF_RUN if command == RUN else f".{command}"


def _path(servers: str, prefix: str, end: str) -> Path:
    """Returns the file of the note with this end of its name on these topics; raises UserError as `folder` does."""
    name = hashlib.sha256(f"{servers} {prefix}".encode(errors="replace")).hexdigest()[:16]
    return folder() / f"{name}{end}"


def _found(servers: str, prefix: str, end: str) -> Run | None:
    """Returns the note with this end of its name on these topics; None if there is none."""
    with suppress(UserError):
        found = _read(_path(servers, prefix, end))
        return found if found is not None and (found.servers, found.prefix) == (servers, prefix) else None
    return None


def _newest_first(suffix: str) -> list[Path]:
    with suppress(OSError, UserError):
        return sorted(folder().glob(f"*{suffix}"), key=_age, reverse=True)
    return []


def _remove_old(suffix: str) -> None:
    for old in _newest_first(suffix)[_MOST_NOTES:]:
        old.unlink(missing_ok=True)


def _age(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _read(path: Path) -> Run | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Run)
    return None


def _write(note: Run, end: str | None = None) -> None:
    """Writes a note in one step, and removes old notes. Writes nothing if the cache cannot be used.

    Args:
        note: The note.
        end: The end of the note's name; None: that of its command.
    """
    end = end or _end(note.command)
    with suppress(OSError, UserError, UnicodeError):
        file = _path(note.servers, note.prefix, end)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        unfinished.write_bytes(msgspec.json.encode(note))
        unfinished.replace(file)
        _remove_old(end)
