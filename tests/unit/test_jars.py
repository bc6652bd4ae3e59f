"""The jars: fetched once, verified at every use, and fetched again if one is damaged."""

import hashlib
import io
import sys
import threading
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import pytest

from streaming.errors import UserError
from streaming.system import jars
from streaming.system.jars import JarsUnreachableError, broker_jars, cache_dir, spark_jars

# A fake of Java and Ivy: records each run, and delivers the files in the folder `remote`.
FAKE_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17"' >&2; exit 0; fi
echo "$*" >> "{folder}/runs"
while [ "$1" != -retrieve ]; do shift; done
jars="${{2%%/\\[conf\\]*}}"
echo ':: resolving dependencies :: us'
echo '	found org.a#a;1 in public'
[ ! -e "{folder}/behaviour" ] || . "{folder}/behaviour"
mkdir -p "$jars" && cp -r "{folder}/remote/." "$jars"
echo '	[SUCCESSFUL ] org.a#a;1!a.jar (3ms)'
"""
HEADLINE = "fetching the jars that Spark's Kafka connector and the broker need (once; 53 MB)\n"
CONTENTS = {"spark/a-1.jar": b"a", "broker/b-2.jar": b"b", "broker/c-3.jar": b"c"}


class Remote:
    """The content of the fake Maven Central, and the runs of the fake Ivy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.behaviour = folder / "behaviour"

    def put(self, name: str, content: bytes) -> None:
        path = self.folder / "remote" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def runs(self) -> list[str]:
        runs = self.folder / "runs"
        return runs.read_text().splitlines() if runs.exists() else []


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Remote:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE_JAVA.format(folder=tmp_path))
    java.chmod(0o755)
    lock = tmp_path / "jars.sha256"
    lock.write_text("".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in CONTENTS.items()))
    monkeypatch.setattr(jars, "_LOCK_FILE", lock)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("QUEUE_ACTIVATION_IVY_SETTINGS", raising=False)
    result = Remote(tmp_path)
    for name, content in CONTENTS.items():
        result.put(name, content)
    return result


def test_jars_are_fetched_once_and_then_without_java(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [path.read_bytes() for path in spark_jars()] == [b"a"]
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert [path.read_bytes() for path in spark_jars()] == [b"a"]
    assert [path.name for path in broker_jars()] == ["b-2.jar", "c-3.jar"]
    assert len(remote.runs()) == 1
    assert sorted(path.name.partition("-")[0] for path in cache_dir().iterdir()) == ["jars", "lock"]


def test_ivy_keeps_its_own_cache_inside_ours(remote: Remote) -> None:
    spark_jars()
    assert f"-cache {cache_dir()}/" in remote.runs()[0]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_or_missing_jar_is_fetched_again(remote: Remote, is_missing: bool) -> None:
    jar = broker_jars()[1]
    if is_missing:
        jar.unlink()
    else:
        jar.write_bytes(b"damaged")
    assert broker_jars()[1].read_bytes() == b"c"
    assert len(remote.runs()) == 2


def test_wrong_jars_are_fetched_twice_and_then_refused(remote: Remote) -> None:
    remote.put("broker/b-2.jar", b"other")
    with pytest.raises(UserError, match=r"not the expected ones: broker/b-2\.jar .*streaming\.system\.jars --lock"):
        spark_jars()
    assert len(remote.runs()) == 2
    assert [path.name for path in cache_dir().iterdir()] == ["lock"]


def test_a_damaged_cache_of_ivy_is_not_used_again(remote: Remote) -> None:
    remote.put("broker/b-2.jar", b"damaged on the way")
    # The second run finds the right jar.
    remote.behaviour.write_text(
        f"[ $(wc -l < {remote.folder}/runs) -lt 2 ] || printf b > {remote.folder}/remote/broker/b-2.jar\n"
    )
    assert [path.read_bytes() for path in broker_jars()] == [b"b", b"c"]


def test_two_at_once_fetch_once(remote: Remote) -> None:
    remote.behaviour.write_text("sleep 0.3\n")
    results: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: results.append(spark_jars())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[path.read_bytes() for path in paths] for paths in results] == [[b"a"], [b"a"]]
    assert len(remote.runs()) == 1


def test_files_that_a_killed_fetch_left_do_no_harm(remote: Remote) -> None:
    leftover = cache_dir() / "staging" / "jars" / "spark" / "a-1.jar"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    assert [path.read_bytes() for path in spark_jars()] == [b"a"]
    assert len(remote.runs()) == 1


def test_an_unreachable_maven_central_says_what_to_do(remote: Remote) -> None:
    remote.behaviour.write_text("echo ' Server access error at url x (Connection refused)'; exit 1\n")
    with pytest.raises(JarsUnreachableError) as raised:
        spark_jars()
    text = str(raised.value)
    assert "could not be fetched from Maven Central: Server access error at url x (Connection refused)" in text
    assert "https.proxyHost" in text
    assert "QUEUE_ACTIVATION_IVY_SETTINGS" in text


def test_a_silent_maven_central_is_given_up(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_MAX_SILENCE_S", 0.3)
    remote.behaviour.write_text("exec sleep 1000\n")
    with pytest.raises(JarsUnreachableError, match=r"Ivy has printed nothing for 0\.3 s"):
        spark_jars()


def test_a_mirror_is_passed_to_ivy(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_ACTIVATION_IVY_SETTINGS", "/my/settings.xml")
    spark_jars()
    assert remote.runs()[0].endswith("-settings /my/settings.xml")


def test_a_cache_that_cannot_be_written_is_named(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", str(remote.folder / "runs" / "cache"))
    (remote.folder / "runs").touch()
    with pytest.raises(UserError, match=r"cannot be used: .*Set QUEUE_ACTIVATION_CACHE"):
        spark_jars()


def test_progress_in_a_file_is_a_few_lines(remote: Remote, capsys: pytest.CaptureFixture[str]) -> None:
    assert remote.runs() == []
    spark_jars()
    assert capsys.readouterr().err == f"{HEADLINE}fetching jars 0/3 (looking up what is needed)\n"


def test_progress_on_a_terminal_is_one_line_below_what_happens(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    spark_jars()
    assert len(remote.runs()) == 1
    assert terminal.getvalue().startswith(f"{HEADLINE}\rfetching jars 0/3 ")
    assert terminal.getvalue().endswith("\rfetching jars 1/3 a-1.jar\x1b[K\n")
    assert terminal.getvalue().count("\n") == 2


def test_the_lock_is_written_anew(remote: Remote) -> None:
    remote.put("broker/d-4.jar", b"d")
    jars._write_lock()
    assert [path.name for path in broker_jars()] == ["b-2.jar", "c-3.jar", "d-4.jar"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("QUEUE_ACTIVATION_CACHE", raising=False)
    assert cache_dir() == Path("/home/me/.cache/queue-activation")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/queue-activation")
    monkeypatch.setenv("QUEUE_ACTIVATION_CACHE", "/own")
    assert cache_dir() == Path("/own")


def test_the_committed_lock_fits_ivy_xml() -> None:
    locked = jars._read_lock()
    for dependency in ET.parse(jars._IVY_FILE).iter("dependency"):
        configuration = dependency.attrib["conf"].partition("->")[0]
        assert f"{configuration}/{dependency.attrib['name']}-{dependency.attrib['rev']}.jar" in locked


def test_spark_gets_nothing_twice_that_pyspark_ships() -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    shipped = {path.name.rpartition("-")[0] for path in Path(spec.submodule_search_locations[0]).glob("jars/*.jar")}
    ours = {Path(name).name.rpartition("-")[0] for name in jars._read_lock() if name.startswith("spark/")}
    assert ours
    assert not ours & shipped
