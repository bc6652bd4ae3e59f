"""The class archive: the classes of the monitor's JVM, parsed and verified once (Java's class data sharing, CDS).

Reading 16,000 classes from jars takes a third of the time to `monitor ready`. `queue-activation prepare` has a
monitor's JVM list the classes that it loads, and has another JVM make the archive of these classes. This takes 1 GB of
memory, and 190 MB in the cache. Each monitor maps the archive. Without an archive that fits, Java reads the jars.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from streaming.errors import UserError
from streaming.system.file_lock import try_lock
from streaming.system.jars import cache_dir
from streaming.system.processes import ChildProcess

# Names the file in which a monitor's JVM must list its classes. The class path is written beside the list.
CLASS_LIST_VARIABLE = "QUEUE_ACTIVATION_CLASS_LIST"

# Enough for the checkouts and versions in use at the same time. Older archives are deleted.
_ARCHIVES_KEPT = 3
# Classes that Java makes while it runs. Java 17 crashes if it loads such a class from an archive and has an agent, or a
# flight recording from the start: it asks for the file of the class, and there is no file.
_MADE_BY_JAVA = re.compile(rb"java[./]lang[./]invoke[./]BoundMethodHandle\$Species_")


def jvm_options(java: Path, jars: Iterable[Path]) -> list[str]:
    """Returns the options with which a monitor's JVM uses the archive, or lists its classes for an archive.

    Args:
        java: The `java` to be started.
        jars: The jars of the JVM's classes, in any order.
    """
    class_list = os.environ.get(CLASS_LIST_VARIABLE)
    if class_list:
        return [f"-XX:DumpLoadedClassList={class_list}"]
    archive = path_of(java, jars)
    if not is_trusted(archive):
        return []
    with contextlib.suppress(OSError):  # the file may belong to an administrator
        os.utime(archive)  # notes its use: the archives used last are kept
    # If the archive is not of the same Java and jars, Java starts without it. The second option silences the warning.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]


def note_class_path(class_path: str) -> None:
    """Writes the class path of this process's JVM beside the list of its classes, if the JVM lists them."""
    class_list = os.environ.get(CLASS_LIST_VARIABLE)
    if class_list:
        _class_path_file(Path(class_list)).write_text(class_path, encoding="utf-8")


def make(java: Path, class_list: Path, archive: Path, log_file: Path) -> None:
    """Makes an archive of the classes that a JVM has listed, in half a minute.

    Args:
        java: The `java` that listed the classes.
        class_list: The list, with the JVM's class path beside it.
        archive: The file for the archive.
        log_file: The file for Java's output.

    Raises:
        UserError: The archive cannot be made, or another process is making one.
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
                part.chmod(0o444)  # whatever the umask: an archive that others can write is not used
                part.rename(archive)
            finally:
                part.unlink(missing_ok=True)
            archives = sorted(cache_dir().glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
            for old in archives[:-_ARCHIVES_KEPT]:
                old.unlink()
    except OSError as error:
        raise UserError(f"The archive of Java's classes cannot be written: {error}") from None


def path_of(java: Path, jars: Iterable[Path]) -> Path:
    """Returns the path of the archive for this Java and these jars, whether or not it exists."""
    return cache_dir() / f"classes-{_fingerprint([java.resolve(), *sorted(jars)])}.jsa"


def is_trusted(archive: Path) -> bool:
    """Returns whether the archive exists and only this user or the administrator can have written it."""
    try:
        found = archive.stat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


@contextlib.contextmanager
def _exclusive() -> Iterator[Path]:
    """Gives one process at a time the file in which an archive is made. A killed process may have left the file behind.

    Raises:
        UserError: Another process has the file.
        OSError: The cache cannot be written.
    """
    with (cache_dir() / "classes.lock").open("wb") as lock:
        if not try_lock(lock):
            raise UserError("Another process is making the archive of Java's classes. Wait until it has ended.")
        yield cache_dir() / "classes.part"


def _class_path_file(class_list: Path) -> Path:
    return class_list.with_name("class-path")


def _fingerprint(files: Iterable[Path]) -> str:
    """Returns a hash of the files' paths, sizes and modification times. Java also compares sizes and times."""
    stats = [(str(path), (found := path.stat()).st_size, found.st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _last_line(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "Java printed nothing")
