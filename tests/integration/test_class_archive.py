"""The archive of Java's classes, with a real Java and a small program: the Ivy that PySpark brings."""

import fcntl
import os
import subprocess
import threading
from pathlib import Path

import pyspark
import pytest

from streaming.errors import UserError
from streaming.spark import class_archive
from streaming.spark.class_archive import ClassArchive
from streaming.system.java import find_java
from tests.conftest import needed_service_is_missing
from tests.support.waiting import wait_until

DEADLINE_S = 60
ARCHIVES = "classes-*.jsa"
IVY = "org.apache.ivy.Main"
# Java makes a class for each combination of types that are bound to a method, and few of them are in its own archive.
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
THREAD = "class archive"


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


def make(jar: Path, cache: Path, program: str | Path = IVY) -> None:
    with ClassArchive() as classes:
        run(jar, classes.jvm_options(find_java(), [jar]), program)
        classes.make(str(jar))
        wait_until(lambda: any(path.stat().st_size for path in cache.glob(ARCHIVES)), DEADLINE_S, "the archive")


def java_that(folder: Path, script: str) -> Path:
    """A `java` that does what the script says."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_a_killed_monitor_has_left_is_deleted_unless_somebody_works_on_it(jar: Path, cache: Path) -> None:
    part = cache / "classes.part"
    part.touch()
    with (cache / "classes.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ClassArchive() as classes:
            classes.jvm_options(find_java(), [jar])
        assert part.exists()
    with ClassArchive() as classes:
        classes.jvm_options(find_java(), [jar])
    assert not part.exists()


def test_the_second_start_takes_its_classes_from_the_archive(jar: Path, cache: Path) -> None:
    make(jar, cache)
    with ClassArchive() as classes:
        options = classes.jvm_options(find_java(), [jar])
        # With -Xshare:on Java does not start without the archive.
        loaded = run(jar, [*options, "-Xshare:on", "-Xlog:class+load"])
        assert f"{IVY} source: shared objects file" in loaded
        classes.make(str(jar))  # there is one
    assert {path.name for path in cache.iterdir()} == {"classes.lock", *(path.name for path in cache.glob(ARCHIVES))}


def test_java_survives_an_agent_beside_the_archive(jar: Path, cache: Path, tmp_path: Path) -> None:
    if not find_java().resolve().with_name("javac").exists():
        needed_service_is_missing(UserError("Java has no compiler: a JDK is needed"))
    source = tmp_path / "Binds.java"
    source.write_text(BINDS_ARGUMENTS)
    make(jar, cache, source)
    with ClassArchive() as classes:
        options = classes.jvm_options(find_java(), [jar])
    # A flight recording looks at each class that is loaded, as agents do.
    recording = f"-XX:StartFlightRecording=filename={tmp_path / 'recording.jfr'}"
    assert run(jar, [*options, "-Xshare:on", recording], source).endswith("3\n")


def test_an_archive_of_other_jars_is_not_used(jar: Path, cache: Path, tmp_path: Path) -> None:
    make(jar, cache)
    other = tmp_path / "other.jar"
    other.write_bytes(jar.read_bytes())
    with ClassArchive() as classes:
        assert "DumpLoadedClassList" in "".join(classes.jvm_options(find_java(), [other]))


def test_one_of_two_monitors_makes_the_archive(jar: Path, cache: Path) -> None:
    with ClassArchive() as late:
        run(jar, late.jvm_options(find_java(), [jar]))
        make(jar, cache)
        [made] = [path.stat() for path in cache.glob(ARCHIVES)]
        late.make(str(jar))
        wait_until(
            lambda: THREAD not in {thread.name for thread in threading.enumerate()}, DEADLINE_S, "the second one"
        )
    assert [path.stat().st_ino for path in cache.glob(ARCHIVES)] == [made.st_ino]


def test_whatever_the_umask_the_archive_is_used(jar: Path, cache: Path) -> None:
    umask = os.umask(0)
    try:
        make(jar, cache)
    finally:
        os.umask(umask)
    with ClassArchive() as classes:
        assert "SharedArchiveFile" in classes.jvm_options(find_java(), [jar])[0]


def test_an_archive_that_others_can_write_is_not_used(jar: Path, cache: Path) -> None:
    make(jar, cache)
    [archive] = cache.glob(ARCHIVES)
    archive.chmod(0o666)
    with ClassArchive() as classes:
        assert "DumpLoadedClassList" in "".join(classes.jvm_options(find_java(), [jar]))


def test_java_goes_on_without_a_word_if_the_archive_does_not_fit(jar: Path, cache: Path, tmp_path: Path) -> None:
    make(jar, cache)
    other = tmp_path / "other.jar"
    other.write_bytes(jar.read_bytes())
    with ClassArchive() as classes:
        options = classes.jvm_options(find_java(), [jar])
    assert run(other, options) == run(other, [])


def test_whoever_stops_does_not_wait_for_the_archive_and_leaves_nothing(jar: Path, cache: Path) -> None:
    with ClassArchive() as classes:
        run(jar, classes.jvm_options(find_java(), [jar]))
        classes.make(str(jar))
    assert {path.name for path in cache.iterdir()} <= {"classes.lock"}


def test_what_java_says_is_told_if_there_will_be_no_archive(
    jar: Path, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    java = java_that(tmp_path, "echo 'An error has occurred: no room'; exit 1")
    with ClassArchive() as classes:
        run(jar, classes.jvm_options(java, [jar]))
        classes.make(str(jar))
        wait_until(lambda: caplog.messages, DEADLINE_S, "a warning")
    assert "An error has occurred: no room" in caplog.text
    assert not [*cache.glob(ARCHIVES)]


def test_the_archives_used_last_are_kept(jar: Path, cache: Path) -> None:
    for number in range(5):
        (cache / f"classes-{number}.jsa").touch()
        os.utime(cache / f"classes-{number}.jsa", (number, number))
    make(jar, cache)
    wait_until(lambda: len([*cache.glob(ARCHIVES)]) <= 3, DEADLINE_S, "the old archives to go")
    assert (cache / "classes-4.jsa").exists()


def test_where_memory_is_short_there_is_no_archive(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ClassArchive() as classes:
        monkeypatch.setattr(class_archive, "_memory_bytes", lambda: 4 * 2**30)
        assert classes.jvm_options(find_java(), [jar]) == []
        classes.make(str(jar))


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("0::/", {"memory.max"}),
        ("0::/a.slice/b.scope", {"a.slice/b.scope/memory.max", "a.slice/memory.max", "memory.max"}),
        ("4:memory:/a", {"memory/a/memory.limit_in_bytes", "memory/memory.limit_in_bytes"}),
        ("1:cpu,cpuacct:/a", set()),
    ],
)
def test_limits_of_all_control_groups_count(line: str, limits: set[str], tmp_path: Path) -> None:
    cgroup_file = tmp_path / "cgroup"
    cgroup_file.write_text(line + "\n")
    found = {str(path.relative_to("/sys/fs/cgroup")) for path in class_archive._memory_limits(cgroup_file)}
    assert found == limits


def test_it_is_made_with_what_all_others_leave(jar: Path, tmp_path: Path) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not share the processor among sessions")
    gives_way = tmp_path / "gives way"
    java = java_that(
        tmp_path, f"until grep -q 'nice 19$' /proc/self/autogroup; do sleep 0.05; done; nice > '{gives_way}'; exit 1"
    )
    with ClassArchive() as classes:
        run(jar, classes.jvm_options(java, [jar]))
        classes.make(str(jar))
        wait_until(lambda: gives_way.exists() and gives_way.read_text(), DEADLINE_S, "the lowest priority")
    assert gives_way.read_text() == "19\n"
