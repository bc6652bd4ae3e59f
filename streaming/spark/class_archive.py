"""The classes of the monitor's JVM, parsed and verified once and kept in a file (Java's class data sharing, CDS).

A third of the time to `monitor ready` goes into reading 16,000 classes from jars. `queue-activation prepare` lets a
monitor's JVM list the classes it loads, and another JVM make the archive of them: 1 GB of memory, 190 MB in the cache.
Each monitor maps it. Without an archive, or with one that does not fit, Java loads classes as ever.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streaming.errors import UserError
from streaming.system.jars import cache_dir
from streaming.system.processes import ChildProcess

# Where a monitor's JVM shall list its classes; the class path is written beside the list.
CLASS_LIST_VARIABLE = "QUEUE_ACTIVATION_CLASS_LIST"

# Checkouts and versions that are in use at the same time; the archives of others are deleted.
_ARCHIVES_KEPT = 3
# Classes that Java makes while it runs. From an archive Java 17 does not survive loading one with an agent beside it,
# or a flight recording from the start: it asks for the file of the class, and there is none.
_MADE_BY_JAVA = re.compile(rb"java[./]lang[./]invoke[./]BoundMethodHandle\$Species_")


def jvm_options(java: Path, jars: Iterable[Path]) -> list[str]:
    """What a monitor's JVM must be started with: to use the archive, to list its classes for one, or nothing.

    Args:
        java: The `java` that is started.
        jars: What its classes come from, in any order.
    """
    class_list = os.environ.get(CLASS_LIST_VARIABLE)
    if class_list:
        return [f"-XX:DumpLoadedClassList={class_list}"]
    archive = path_of(java, jars)
    if not is_trusted(archive):
        return []
    with contextlib.suppress(OSError):  # an administrator's
        os.utime(archive)  # the archives used last are kept
    # Java checks that the archive is of the same Java and jars, and goes on without it if not; no word of that.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def note_class_path(class_path: str) -> None:
    """Writes the class path of this process's JVM beside the list of its classes, if it lists them."""
    class_list = os.environ.get(CLASS_LIST_VARIABLE)
    if class_list:
        _class_path_file(Path(class_list)).write_text(class_path, encoding="utf-8")


def make(java: Path, class_list: Path, archive: Path, log_file: Path) -> None:
    """Makes an archive of the classes that a JVM has listed; it takes half a minute.

    Args:
        java: The `java` that listed them.
        class_list: Its list; its class path is beside it.
        archive: The archive.
        log_file: Gets what Java says.

    Raises:
        UserError: It cannot be made, or another process is making one.
    """
    whole = class_list.with_name("listed-classes")
    lines = class_list.read_bytes().splitlines(keepends=True)
    whole.write_bytes(b"".join(line for line in lines if not _MADE_BY_JAVA.search(line)))
    class_path = _class_path_file(class_list).read_text(encoding="utf-8")
    try:
        with _exclusive() as part:
            dump = ["-Xshare:dump", f"-XX:SharedClassListFile={whole}", f"-XX:SharedArchiveFile={part}"]
            command: list[str | Path] = [java, "-XX:+UseSerialGC", "-Xmx128m", *dump, "-cp", class_path]
            try:
                with ChildProcess(command, log_file=log_file) as child:
                    if child.wait() != 0:
                        raise UserError(f"Java cannot make the archive of its classes: {_last_line(log_file)}")
                part.chmod(0o444)  # whatever the umask: only what nobody else can write is used
                part.rename(archive)
            finally:
                part.unlink(missing_ok=True)
            _delete_old_archives()
    except BlockingIOError:
        raise UserError("another process makes the archive of Java's classes at the moment") from None
    except OSError as error:
        raise UserError(f"the archive of Java's classes cannot be written: {error}") from None


def path_of(java: Path, jars: Iterable[Path]) -> Path:
    """Where the archive for this Java and these jars is, if there is one."""
    return cache_dir() / f"classes-{_fingerprint([java.resolve(), *sorted(jars)])}.jsa"


def is_trusted(archive: Path) -> bool:
    """Whether it is there, and only this user or the administrator can have written it."""
    try:
        found = archive.stat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


@contextlib.contextmanager
def _exclusive() -> Iterator[Path]:
    """Gives the file in which an archive is made to one process at a time; one that was killed may have left it.

    Raises:
        BlockingIOError: Another process has it.
        OSError: The cache cannot be written.
    """
    with (cache_dir() / "classes.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield cache_dir() / "classes.part"


def _class_path_file(class_list: Path) -> Path:
    return class_list.with_name("class-path")


def _fingerprint(files: Iterable[Path]) -> str:
    """Another one as soon as a file is another one; Java goes by size and time, too."""
    stats = [(str(path), (found := path.stat()).st_size, found.st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _delete_old_archives() -> None:
    archives = sorted(cache_dir().glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-_ARCHIVES_KEPT]:
        archive.unlink()


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "Java printed nothing")
