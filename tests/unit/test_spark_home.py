"""The Spark that a local monitor runs, whatever the environment and the user are."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from streaming.errors import UserError
from streaming.spark import class_archive, session
from streaming.system import nameless_user
from streaming.system.jars import cache_dir

UNKNOWN_ID = 98_765


class _LaunchedError(Exception):
    pass


def test_a_local_monitor_runs_its_own_spark_and_no_other_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(pyspark.__file__).parent
    homes: list[str] = []
    jars: list[Path] = []

    def launch(**_: Any) -> None:
        homes.append(os.environ["SPARK_HOME"])
        raise _LaunchedError

    def options(_java: Path, found: list[Path]) -> list[str]:
        jars.extend(found)
        return []

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    for variable in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.setenv(variable, "")  # given back after the test
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "find_java", lambda: Path("/java/bin/java"))
    monkeypatch.setattr(session, "spark_jars", list)
    monkeypatch.setattr(class_archive, "jvm_options", options)
    monkeypatch.setattr(session, "launch_gateway", launch)

    with pytest.raises(_LaunchedError):
        session.create([str(tmp_path)], ["1g"])
    assert homes == [str(own)]
    assert jars
    assert {jar.parent for jar in jars} == {own / "jars"}


def test_java_gets_a_name_and_a_home_if_the_user_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Users:
        @staticmethod
        def createRemoteUser(name: str) -> str:  # noqa: N802 - Hadoop's name
            return name

        @staticmethod
        def setLoginUser(user: str) -> None:  # noqa: N802 - Hadoop's name
            calls.append(user)

    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(security=SimpleNamespace())))
    )
    jvm.org.apache.hadoop.security.UserGroupInformation = Users
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN_ID)
    options = dict(option.split("=") for option in nameless_user.jvm_options())
    assert options["-Duser.name"]
    assert Path(options["-Duser.home"]).is_absolute()
    nameless_user.log_in(jvm)
    assert calls == [options["-Duser.name"]]

    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert nameless_user.jvm_options() == []
    nameless_user.log_in(None)


@pytest.mark.parametrize("home", ["/", None])
def test_a_user_without_a_home_has_a_cache(home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("QUEUE_ACTIVATION_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    owner, unknown = os.getuid, UNKNOWN_ID
    monkeypatch.setattr(os, "getuid", lambda: unknown)
    own = tmp_path / f"queue-activation-{unknown}"
    own.mkdir(mode=0o700)
    with pytest.raises(UserError, match="Others can write"):
        cache_dir()  # the folder belongs to the user of this test

    os.chown(own, unknown, -1) if owner() == 0 else pytest.skip("only root can give a folder to another user")
    assert cache_dir() == own / ".cache" / "queue-activation"
    own.chmod(0o777)
    with pytest.raises(UserError, match="Others can write"):
        cache_dir()
