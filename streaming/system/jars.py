"""The jars that pip does not install: fetched once by PySpark's Ivy, kept outside the checkout, verified at every use.

`ivy.xml` lists the dependencies, and `jars.sha256` the jars that they must resolve to.
`python -m streaming.system.jars` prints Spark's jars for `spark-submit --jars`. With `--lock`, it fetches the jars
without a check and rewrites `jars.sha256`.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from streaming.errors import UserError
from streaming.system import nameless_user
from streaming.system.file_lock import try_lock
from streaming.system.java import find_java
from streaming.system.os_errors import in_words
from streaming.system.processes import ChildProcess

_IVY_FILE = Path(__file__).with_name("ivy.xml")
_LOCK_FILE = Path(__file__).with_name("jars.sha256")
_CONFIGURATIONS = ("spark", "broker")

# From a host that Ivy cannot reach, it requests a file and then its replacement, and each request may take both
# time-outs. Otherwise Ivy prints a line for each module that it finds, and dots while it downloads. After a longer
# silence, Ivy will not succeed.
_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 15_000
_MAX_SILENCE_S = 45
_POLL_INTERVAL_S = 0.1
# If standard error is not a terminal, one line is printed for this many modules looked up or jars fetched.
_STEPS_PER_LINE = 10


class JarsUnreachableError(UserError):
    """The jars are not in the cache yet, and their repository cannot be reached."""


def spark_jars() -> list[Path]:
    """Returns the jars for Spark's class path; fetches them if any is missing or altered."""
    return _jars("spark")


def broker_jars() -> list[Path]:
    """Returns the jars of the embedded Kafka broker; fetches them if any is missing or altered."""
    return _jars("broker")


def cache_dir() -> Path:
    """Returns the folder for files that can be fetched again. All checkouts share the folder, which is outside them."""
    own = os.environ.get("QUEUE_ACTIVATION_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or nameless_user.home() / ".cache").absolute() / "queue-activation"


def _jars(configuration: str) -> list[Path]:
    expected = _read_lock()
    folder = _jars_dir()
    wanted = {name: digest for name, digest in expected.items() if name.startswith(f"{configuration}/")}
    if _problems(folder, wanted):
        with _exclusive():
            # Another process may have fetched them while this one waited for the lock.
            if _problems(folder, expected):
                _say("fetching the jars that Spark's Kafka connector and the broker need (once; 53 MB)\n")
                _fetch_verified(folder, expected)
    return [folder / name for name in sorted(wanted)]


def _jars_dir() -> Path:
    # Checkouts with different dependencies share the cache, so each set of jars has its own folder.
    return cache_dir() / f"jars-{hashlib.sha256(_IVY_FILE.read_bytes()).hexdigest()[:16]}"


def _read_lock() -> dict[str, str]:
    """Returns name -> SHA-256 from the lock file, which has the format of sha256sum."""
    lines = _LOCK_FILE.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _problems(folder: Path, expected: dict[str, str]) -> list[str]:
    """Returns a message for each expected jar that is missing or altered."""
    problems = []
    for name, digest in expected.items():
        try:
            if _sha256(folder / name) != digest:
                problems.append(f"{name} does not have the checksum that jars.sha256 lists")
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    return problems


@contextlib.contextmanager
def _exclusive() -> Iterator[None]:
    """Lets one process at a time change the cache. The operating system releases the lock of a killed process."""
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        lock = (cache_dir() / "lock").open("wb")
    except OSError as error:
        raise UserError(
            f"The folder for downloaded jars cannot be used: {in_words(error)}. "
            "Set QUEUE_ACTIVATION_CACHE to a writable folder."
        ) from error
    with lock:
        if not try_lock(lock):
            _say("waiting for another process that is fetching jars\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_verified(folder: Path, expected: dict[str, str]) -> None:
    """Fetches into a staging folder, then moves the folder into place, so that the cache has all jars or none."""
    staging = cache_dir() / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    for _ in range(2):
        fetched = _fetch(staging, len(expected))
        problems = _problems(fetched, expected)
        if not problems:
            shutil.rmtree(folder, ignore_errors=True)
            fetched.rename(folder)
        # This deletes Ivy's cache, too. It may be the damaged part.
        shutil.rmtree(staging)
        if not problems:
            return
    raise UserError(
        f"The jars that were fetched are not the expected ones: {problems[0]} ({len(problems)} in all). "
        "If you changed ivy.xml, run `python -m streaming.system.jars --lock`. Otherwise a proxy or a mirror of Maven "
        "Central delivers other files."
    )


def _fetch(staging: Path, total: int | None) -> Path:
    """Runs Ivy. Returns a folder that has one folder for each configuration."""
    staging.mkdir(parents=True)
    log_file = staging / "ivy.log"
    # Java ignores HOME. Without -cache, Ivy would use the home folder from the password file.
    command: list[str | Path] = [
        find_java(),
        *nameless_user.jvm_options(),
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MS}",
        *("-jar", _ivy_jar()),
        *("-cache", staging / "ivy"),
        *("-ivy", _IVY_FILE),
        *("-confs", *_CONFIGURATIONS),
        # The type of snappy-java is `bundle`.
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{staging}/jars/[conf]/[artifact]-[revision].[ext]"),
    ]
    settings = os.environ.get("QUEUE_ACTIVATION_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    with ChildProcess(command, log_file=log_file) as ivy, _Progress(total) as progress:
        if not _follow(ivy, log_file, progress):
            raise _unreachable(f"Ivy has printed nothing for {_MAX_SILENCE_S} s")
    log = log_file.read_text(encoding="utf-8", errors="replace")
    if ivy.poll() != 0 or "UNRESOLVED DEPENDENCIES" in log or "FAILED DOWNLOADS" in log:
        raise _unreachable(_reason(log))
    return staging / "jars"


def _follow(ivy: ChildProcess, log_file: Path, progress: "_Progress") -> bool:
    """Shows Ivy's progress until Ivy ends. Returns False if Ivy has been silent for too long."""
    heard_s = time.monotonic()
    with log_file.open(encoding="utf-8", errors="replace") as log:
        line = ""
        while True:
            has_ended = ivy.poll() is not None
            for part in log:
                heard_s = time.monotonic()
                line += part
                if line.endswith("\n"):
                    progress.line(line)
                    line = ""
            if has_ended:
                return True
            if time.monotonic() - heard_s > _MAX_SILENCE_S:
                return False
            time.sleep(_POLL_INTERVAL_S)


def _ivy_jar() -> Path:
    # find_spec does not import a top-level package. An import of PySpark takes a second.
    spec = importlib.util.find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    found = sorted(Path(folders[0]).glob("jars/ivy-*.jar")) if folders else []
    if not found:
        raise UserError(
            "PySpark, which contains Ivy, is not installed in this Python. Run `make setup` or `pip install pyspark`."
        )
    return found[0]


def _reason(log: str) -> str:
    """Returns the most informative line of Ivy's output."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    signs = ("Server access error", "Host ", "not found", "Exception")
    telling = (line for sign in signs for line in lines if sign in line)
    return next(telling, lines[-1] if lines else "Java printed nothing")


def _unreachable(reason: str) -> JarsUnreachableError:
    settings = os.environ.get("QUEUE_ACTIVATION_IVY_SETTINGS")
    where = f"the repository in {settings}" if settings else "Maven Central"
    return JarsUnreachableError(
        f"The jars could not be fetched from {where}: {reason}.\n"
        "They are fetched once; after that, everything works offline. Behind a proxy, set JAVA_TOOL_OPTIONS to "
        "'-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'. For a mirror, set QUEUE_ACTIVATION_IVY_SETTINGS to an Ivy "
        "settings file that names it."
    )


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


class _Progress:
    """One line on standard error: rewritten in place on a terminal, elsewhere a new line after several steps."""

    def __init__(self, total: int | None) -> None:
        self._of = f"/{total}" if total is not None else ""
        self._found = 0
        self._fetched = 0
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            _say("\n")

    def line(self, line: str) -> None:
        """Reads `found org#module;revision in ...` or `[SUCCESSFUL ] org#module;revision!artifact.jar ...`."""
        words = line.split()
        if "[SUCCESSFUL ]" in line:
            self._fetched += 1
            module, _, artifact = words[2].partition("!")
            revision = module.rpartition(";")[2]
            name = artifact.partition(".jar")[0]
            self._show(f"{name}-{revision}.jar", self._fetched % _STEPS_PER_LINE == 0)
        elif words[:1] == ["found"]:
            self._found += 1
            module = words[1].partition("#")[2].replace(";", " ")
            self._show(f"(looking up {module})", self._found % _STEPS_PER_LINE == 0)
        elif ":: resolving dependencies" in line:
            self._show("(looking up what is needed)", True)

    def _show(self, what: str, is_milestone: bool) -> None:
        text = f"fetching jars {self._fetched}{self._of} {what}"
        if self._is_terminal:
            # \x1b[K erases the rest of a longer previous line.
            _say(f"\r{text}\x1b[K")
        elif is_milestone:
            _say(f"{text}\n")


def _write_lock() -> None:
    staging = cache_dir() / "staging"
    with _exclusive():
        shutil.rmtree(staging, ignore_errors=True)
        fetched = _fetch(staging, None)
        jars = sorted(fetched.glob("*/*.jar"))
        lines = [f"{_sha256(jar)}  {jar.relative_to(fetched)}\n" for jar in jars]
        _LOCK_FILE.write_text("".join(lines), encoding="utf-8")
        shutil.rmtree(staging)
    _say(f"{_LOCK_FILE.name}: {len(lines)} jars\n")


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--lock"]):
        sys.exit("usage: python -m streaming.system.jars [--lock]")
    try:
        if sys.argv[1:]:
            _write_lock()
        else:
            sys.stdout.write(",".join(map(str, spark_jars())) + "\n")
    except UserError as error:
        sys.exit(str(error))
