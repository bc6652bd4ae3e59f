"""`prepare` says what it does from its beginning."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from streaming.cli import prepare
from streaming.spark import class_archive, session
from streaming.system import embedded_broker, jars


def test_each_step_is_told_when_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said: list[str] = []

    def step(*_: object) -> list[Path]:
        said.extend(capsys.readouterr().err.splitlines())
        return []

    monkeypatch.setattr(prepare, "find_java", lambda: Path("java"))
    monkeypatch.setattr(session, "local_jars", step)
    monkeypatch.setattr(jars, "spark_jars", list)
    monkeypatch.setattr(class_archive, "path_of", lambda *_: tmp_path / "classes.jsa")
    monkeypatch.setattr(class_archive, "make", step)
    monkeypatch.setattr(embedded_broker, "EmbeddedBroker", MagicMock())
    monkeypatch.setattr(prepare, "Admin", MagicMock())
    monkeypatch.setattr(prepare, "Cluster", MagicMock())
    monkeypatch.setattr(prepare, "monitor_process", MagicMock())
    prepare.prepare()
    assert said == [
        "looking at Java and the jars",
        "starting a broker; step 1 of 3",
        "listing the classes that a monitor loads; step 2 of 3",
        "archiving these classes; step 3 of 3, 190 MB",
    ]
    assert capsys.readouterr() == ("prepared\n", "")
