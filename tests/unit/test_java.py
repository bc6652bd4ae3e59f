"""The search for a Java that is new enough."""

from pathlib import Path

import pytest

from streaming.errors import UserError
from streaming.system.java import find_java


def write_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Da=b' >&2\necho '{version}' >&2\nexit {exit_code}\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))


@pytest.mark.parametrize(
    "version",
    ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "26-ea" 2026-03-17'],
)
def test_java_17_or_newer_on_the_path_is_found(tmp_path: Path, version: str) -> None:
    java = write_java(tmp_path / "path", version)
    assert find_java() == java


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_java(tmp_path / "path", 'openjdk version "17"')
    java = write_java(tmp_path / "home with blanks", 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home with blanks"))
    assert find_java() == java


@pytest.mark.parametrize(
    ("version", "number"), [('java version "1.8.0_402"', "8"), ('openjdk version "11.0.2" 2019-01-15', "11")]
)
def test_a_too_old_java_is_refused(tmp_path: Path, version: str, number: str) -> None:
    write_java(tmp_path / "path", version)
    with pytest.raises(UserError, match=rf"is Java {number}, which is too old\. Install a Java 17 or newer.*JAVA_HOME"):
        find_java()


def test_no_java_says_what_to_install() -> None:
    with pytest.raises(UserError, match=r"No Java was found.*Install a Java 17 or newer.*JAVA_HOME"):
        find_java()


def test_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_java(tmp_path / "path", 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", "/nowhere/at/all")
    with pytest.raises(UserError, match=r"JAVA_HOME is /nowhere/at/all, but there is no bin/java in it\. Install"):
        find_java()


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    write_java(tmp_path / "path", "Error: could not find libjava.so", exit_code=2)
    with pytest.raises(UserError, match=r"cannot be run: .*Install"):
        find_java()


def test_a_java_without_a_version_is_refused(tmp_path: Path) -> None:
    write_java(tmp_path / "path", "hello")
    with pytest.raises(UserError, match=r"does not report its version\. Install"):
        find_java()
