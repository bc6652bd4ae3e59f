"""The classes of the monitor's JVM, parsed and verified once and kept in a file (Java's class data sharing, CDS).

A third of the time to `monitor ready` goes into reading 16,000 classes from jars. The first monitor on a machine lets
its JVM list the classes it loads; once it is ready, another JVM makes the archive of them: half a minute of a core
that nobody else wants, 1 GB of memory, 190 MB in the cache. The next monitor maps it. Without an archive, or with one
that does not fit, Java loads classes as ever.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from streaming.system.jars import cache_dir
from streaming.system.processes import ChildProcess

# The least memory with which an archive is made: it takes 1 GB beside a monitor of 2 to 3.
_MIN_MEMORY_BYTES = 8 * 2**30
# Checkouts and versions that are in use at the same time; the archives of others are deleted.
_ARCHIVES_KEPT = 3
_POLL_INTERVAL_S = 0.2
_LOWEST_PRIORITY = "19"  # of a process, and of a session
# Classes that Java makes while it runs. From an archive Java 17 does not survive loading one with an agent beside it,
# or a flight recording from the start: it asks for the file of the class, and there is none.
_MADE_BY_JAVA = re.compile(rb"java[./]lang[./]invoke[./]BoundMethodHandle\$Species_")
_NO_ARCHIVE = "starts stay slow, for lack of an archive of Java's classes: %s"

_log = logging.getLogger(__name__)


class ClassArchive:
    """The archive for the JVM of one monitor; a context that ends what it started."""

    def __init__(self) -> None:
        self._wanted: _Wanted | None = None
        self._is_left = threading.Event()
        self._stack = contextlib.ExitStack()

    def jvm_options(self, java: Path, jars: Iterable[Path]) -> list[str]:
        """What the JVM must be started with: to use the archive, to list its classes for one, or nothing.

        Args:
            java: The `java` that is started.
            jars: What its classes come from, in any order.
        """
        # This file, because it says what goes into the archive.
        _delete_part()
        archive = cache_dir() / f"classes-{_fingerprint([Path(__file__), java.resolve(), *sorted(jars)])}.jsa"
        if _is_trusted(archive):
            with contextlib.suppress(OSError):  # an administrator's
                os.utime(archive)  # the archives used last are kept
            # Java checks that the archive is of the same Java and jars, and goes on without it if not; no word of that.
            return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
        if not os.access(cache_dir(), os.W_OK) or _memory_bytes() < _MIN_MEMORY_BYTES:
            return []
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="queue-activation-"))
        self._wanted = _Wanted(java, archive, Path(folder) / "classes")
        return [f"-XX:DumpLoadedClassList={self._wanted.class_list}"]

    def make(self, class_path: str) -> None:
        """Makes the archive in the background if the JVM has listed its classes.

        Args:
            class_path: The JVM's, in its order.
        """
        if self._wanted is None:
            return
        thread = threading.Thread(target=_make, args=(self._wanted, class_path, self._is_left), name="class archive")
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._is_left.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@dataclass(frozen=True)
class _Wanted:
    """An archive that is not there yet, and the classes that it shall have, as a JVM lists them."""

    java: Path
    archive: Path
    class_list: Path


@contextlib.contextmanager
def _exclusive() -> Iterator[Path]:
    """Gives the file in which an archive is made to one process at a time.

    Raises:
        BlockingIOError: Another process has it.
        OSError: The cache cannot be written.
    """
    with (cache_dir() / "classes.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield cache_dir() / "classes.part"


def _delete_part() -> None:
    """Deletes what a monitor that was killed has left of an archive."""
    if (cache_dir() / "classes.part").exists():
        with contextlib.suppress(OSError), _exclusive() as part:
            part.unlink(missing_ok=True)


def _make(wanted: _Wanted, class_path: str, is_left: threading.Event) -> None:
    log_file = wanted.class_list.with_name("log")
    try:
        with _exclusive() as part:
            if _is_trusted(wanted.archive):
                return  # another monitor has made it meanwhile
            with ChildProcess(_dump_command(wanted, part, class_path), log_file=log_file) as child:
                _give_way(child.pid)
                while child.poll() is None and not is_left.wait(_POLL_INTERVAL_S):
                    pass
                child.stop(0)  # half an archive is of no use
            if child.poll() == 0:
                part.chmod(0o444)  # whatever the umask: only what nobody else can write is used
                part.rename(wanted.archive)
                _delete_old_archives()
            else:
                part.unlink(missing_ok=True)
                if not is_left.is_set():
                    _log.warning(_NO_ARCHIVE, _last_line(log_file))
    except BlockingIOError:
        pass  # another monitor is making one
    except Exception as error:
        # Nobody else would say so, and the monitor does without.
        _log.warning(_NO_ARCHIVE, error, exc_info=not isinstance(error, OSError))


def _dump_command(wanted: _Wanted, part: Path, class_path: str) -> list[str | Path]:
    # Java is still writing the list; its last line may not be whole.
    lines = wanted.class_list.read_bytes().splitlines(keepends=True)[:-1]
    class_list = wanted.class_list.with_name("whole-lines")
    class_list.write_bytes(b"".join(line for line in lines if not _MADE_BY_JAVA.search(line)))
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={part}"]
    return ["nice", "-n", _LOWEST_PRIORITY, wanted.java, "-XX:+UseSerialGC", "-Xmx128m", *dump, "-cp", class_path]


def _give_way(pid: int) -> None:
    """Lets a session have only what all others leave.

    Linux may share the processor among sessions first: then `nice` says who comes first in the session, and no more.
    """
    with contextlib.suppress(OSError):  # there is no such file where it does not
        Path(f"/proc/{pid}/autogroup").write_text(_LOWEST_PRIORITY, encoding="ascii")


def _is_trusted(archive: Path) -> bool:
    """Whether it is there, and only this user or the administrator can have written it."""
    try:
        found = archive.stat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def _fingerprint(files: Iterable[Path]) -> str:
    """Another one as soon as a file is another one; Java goes by size and time, too."""
    stats = [(str(path), (found := path.stat()).st_size, found.st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _delete_old_archives() -> None:
    archives = sorted(cache_dir().glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-_ARCHIVES_KEPT]:
        archive.unlink()


def _memory_bytes() -> int:
    """What this process may use at most: the machine's memory, or the least limit of a control group it is in."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _memory_limits(Path("/proc/self/cgroup")):
        with contextlib.suppress(OSError, ValueError):  # the root has no such file; `max` is no number
            found.append(int(file.read_text(encoding="ascii")))
    return min(found)


def _memory_limits(cgroup_file: Path) -> Iterator[Path]:
    """The files, if they exist, with the limits of the control groups in /proc/PID/cgroup, versions 1 and 2."""
    for line in cgroup_file.read_text(encoding="utf-8").splitlines() if cgroup_file.exists() else ():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            root, limit = Path("/sys/fs/cgroup"), "memory.max"
        elif controllers == "memory":
            root, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        # In a container the name may be one outside of it; its own limit then stands at the root.
        group = root / name.removeprefix("/")
        yield from (folder / limit for folder in (group, *group.parents) if folder.is_relative_to(root))


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "Java printed nothing")
