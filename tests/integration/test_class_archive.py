"""The archive of Java's classes, with a real Java and a small program: the Ivy that PySpark brings."""

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from streaming.errors import UserError
from streaming.spark import class_archive
from streaming.system.java import find_java
from tests.conftest import needed_service_is_missing

DEADLINE_S = 60
ARCHIVES = "classes-*.jsa"
IVY = "org.apache.ivy.Main"
# Java makes a class for each combination of types bound to a method, and few of these classes are in its own archive.
BINDS_ARGUMENTS = """
import java.lang.invoke.*;
public class Binds {
    static int take(long a, double b, int c, float d) { return c; }
    public static void main(String[] args) throws Throwable {
        MethodType type = MethodType.methodType(int.class, long.class, double.class, int.class, float.class);
        MethodHandle take = MethodHandles.lookup().findStatic(Binds.class, "take", type);
        System.out.println((int) MethodHandles.insertArguments(take, 0, 1L, 2.0, 3, 4f).invokeExact());
    }
}
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "the cache"
    folder.mkdir()
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", str(folder))
    return folder


@pytest.fixture
def jar() -> Path:
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    return jar


def run(jar: Path, options: list[str], program: str | Path = IVY) -> str:
    command = [find_java(), *options, "-cp", jar, program, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout


def listed(jar: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str | Path = IVY) -> Path:
    """Writes the list of a program's classes as a monitor does for `prepare`; returns its path."""
    class_list = folder / "classes"
    with monkeypatch.context() as patch:
        patch.setenv(class_archive.CLASS_LIST_VARIABLE, str(class_list))
        run(jar, class_archive.jvm_options(find_java(), [jar]), program)
        class_archive.note_class_path(str(jar))
    return class_list


@pytest.fixture
def make(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Returns a function that makes the archive of a program's classes."""

    def make_archive(program: str | Path = IVY, java: Path | None = None) -> Path:
        class_list = listed(jar, tmp_path, monkeypatch, program)
        archive = class_archive.path_of(java or find_java(), [jar])
        class_archive.make(java or find_java(), class_list, archive, tmp_path / "log")
        return archive

    return make_archive


def options(jar: Path) -> list[str]:
    return class_archive.jvm_options(find_java(), [jar])


def test_a_start_takes_its_classes_from_the_archive(jar: Path, cache: Path, make: Callable[..., Path]) -> None:
    assert options(jar) == []
    archive = make()
    # With -Xshare:on Java does not start without the archive.
    loaded = run(jar, [*options(jar), "-Xshare:on", "-Xlog:class+load"])
    assert f"{IVY} source: shared objects file" in loaded
    assert {path.name for path in cache.iterdir()} == {"classes.lock", archive.name}


def test_java_survives_an_agent_beside_the_archive(jar: Path, tmp_path: Path, make: Callable[..., Path]) -> None:
    if not find_java().resolve().with_name("javac").exists():
        needed_service_is_missing(UserError("Java has no compiler: a JDK is needed"))
    source = tmp_path / "Binds.java"
    source.write_text(BINDS_ARGUMENTS)
    make(source)
    # A flight recording looks at each class that is loaded, as agents do.
    recording = f"-XX:StartFlightRecording=filename={tmp_path / 'recording.jfr'}"
    assert run(jar, [*options(jar), "-Xshare:on", recording], source).endswith("3\n")


def test_an_archive_of_other_jars_is_not_used(jar: Path, tmp_path: Path, make: Callable[..., Path]) -> None:
    make()
    other = tmp_path / "other.jar"
    other.write_bytes(jar.read_bytes())
    assert options(other) == []


def test_whatever_the_umask_the_archive_is_used(jar: Path, make: Callable[..., Path]) -> None:
    umask = os.umask(0)
    try:
        make()
    finally:
        os.umask(umask)
    assert "SharedArchiveFile" in options(jar)[0]


def test_an_archive_that_others_can_write_is_not_used(jar: Path, make: Callable[..., Path]) -> None:
    make().chmod(0o666)
    assert options(jar) == []


def test_java_silently_ignores_an_archive_that_does_not_fit(
    jar: Path, tmp_path: Path, make: Callable[..., Path]
) -> None:
    make()
    other = tmp_path / "other.jar"
    other.write_bytes(jar.read_bytes())
    assert run(other, options(jar)) == run(other, [])


def test_if_java_cannot_make_the_archive_the_error_has_javas_message(
    cache: Path, tmp_path: Path, make: Callable[..., Path]
) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'An error has occurred: no room'; exit 1\n")
    java.chmod(0o755)
    with pytest.raises(UserError, match=r"cannot make the archive of its classes: An error has occurred: no room"):
        make(java=java)
    assert {path.name for path in cache.iterdir()} == {"classes.lock"}


def test_one_process_makes_it_at_a_time(cache: Path, make: Callable[..., Path]) -> None:
    with (cache / "classes.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="Another process is making the archive"):
            make()
    (cache / "classes.part").touch()  # the remains of a process that was killed
    make()
    assert not (cache / "classes.part").exists()


def test_a_cache_that_cannot_be_written_is_an_error(
    tmp_path: Path, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", str(tmp_path / "a file"))
    with pytest.raises(UserError, match="cannot be written"):
        make()


def test_the_archives_used_last_are_kept(cache: Path, make: Callable[..., Path]) -> None:
    for number in range(5):
        (cache / f"classes-{number}.jsa").touch()
        os.utime(cache / f"classes-{number}.jsa", (number, number))
    made = make()
    assert {path.name for path in cache.glob(ARCHIVES)} == {"classes-3.jsa", "classes-4.jsa", made.name}
