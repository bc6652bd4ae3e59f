"""The Spark that a local monitor runs, whatever the environment names."""

import os
from pathlib import Path
from typing import Any

import pyspark
import pytest

from streaming.spark import class_archive, session


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
        session.create(str(tmp_path), "1g")
    assert homes == [str(own)]
    assert jars
    assert {jar.parent for jar in jars} == {own / "jars"}
