"""The program that runs a Python function as a task: what it says when the function fails."""

import io
import sys
from pathlib import Path
from tempfile import gettempdir

import pytest

from streaming.daemons.host import run_function
from streaming.daemons.host.run_function import CANNOT_IMPORT

FAILING = """\
import json


def read():
    for _ in range(2):
        json.loads("{")
"""


class Screen(io.StringIO):
    """A standard error that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUEUE_ACTIVATION_QUEUE", "payments")
    monkeypatch.setenv("QUEUE_ACTIVATION_PROCEDURE", "read_payments")
    monkeypatch.setenv("COLUMNS", "1000")


def failed(monkeypatch: pytest.MonkeyPatch, function: str, *, is_terminal: bool) -> tuple[int, list[str]]:
    """Returns the exit code and the lines of the standard error."""
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "argv", ["run_function", function])
    monkeypatch.setattr(sys, "stderr", screen)
    return run_function.main(), screen.getvalue().splitlines()


@pytest.mark.parametrize(
    ("source", "said", "line", "exit_code"),
    [
        (FAILING, "raised JSONDecodeError: Expecting property name", 6, 1),
        ("def read():\n    raise ValueError('one\\n\\x1btwo')\n", r"raised ValueError: one \x1btwo", 2, 1),
        ("def read():\n    raise KeyError\n", "raised KeyError", 2, 1),
        ("\nimport no_such_module\n", "cannot be imported: ModuleNotFoundError: No module named", 2, CANNOT_IMPORT),
    ],
)
def test_a_function_that_fails_is_told_in_one_line_and_its_traceback_is_kept(
    monkeypatch: pytest.MonkeyPatch, source: str, said: str, line: int, exit_code: int
) -> None:
    Path("own_tasks.py").write_text(source)
    for is_terminal in (True, False):
        code, lines = failed(monkeypatch, "own_tasks:read", is_terminal=is_terminal)
        assert code == exit_code
        first, *others = lines
        assert first.startswith("payments: read_payments: the function own_tasks:read ")
        assert f"the function own_tasks:read {said}" in first
        assert f" ({Path('own_tasks.py').absolute()}, line {line})" in first
        if is_terminal:
            assert others == []
            [kept] = Path(gettempdir()).glob("queue-activation-*")
            assert first.endswith(f". The traceback is in {kept}")
            others = kept.read_text().splitlines()
        assert others[0].startswith("Traceback")
        assert said.rsplit(maxsplit=1)[-1].replace("\\x1b", "\x1b") in others[-1]


def test_a_module_that_does_not_exist_has_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _, [said] = failed(monkeypatch, "no_such_module:read", is_terminal=True)
    assert "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'. The traceback is in " in said


def test_a_traceback_that_cannot_be_kept_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own_tasks.py").write_text(FAILING)
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    _, [_, *others] = failed(monkeypatch, "own_tasks:read", is_terminal=True)
    assert others[0].startswith("Traceback")
