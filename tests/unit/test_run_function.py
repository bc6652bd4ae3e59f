"""The program that runs a Python function as a task: what it says when the function fails."""

import sys
from pathlib import Path

import pytest

from streaming.daemons.host import run_function
from streaming.daemons.host.run_function import CANNOT_IMPORT

FAILING = """\
import json


def read():
    json.loads("{")
"""


@pytest.mark.parametrize(
    ("source", "problem", "raised", "exit_code"),
    [
        (FAILING, "failed", "json.decoder.JSONDecodeError: Expecting property name", 1),
        ("\nimport no_such_module\n", "cannot be imported", "ModuleNotFoundError: No module", CANNOT_IMPORT),
    ],
)
def test_of_a_function_that_fails_its_queue_is_named_before_the_traceback(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: str,
    problem: str,
    raised: str,
    exit_code: int,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUEUE_ACTIVATION_QUEUE", "payments")
    monkeypatch.setenv("QUEUE_ACTIVATION_PROCEDURE", "read_payments")
    Path("own_tasks.py").write_text(source)
    monkeypatch.setattr(sys, "argv", ["run_function", "own_tasks:read"])
    assert run_function.main() == exit_code
    first, second, *_, last = capsys.readouterr().err.splitlines()
    assert first == f"payments: read_payments: the function own_tasks:read {problem}:"
    assert second.startswith("Traceback")
    assert last.startswith(raised)
