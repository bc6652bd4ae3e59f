"""docs/routing.md has each decision and number of the code, and its example is real."""

import inspect
import re
import shlex

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.core.routing import explanation
from streaming.core.routing.explanation import NUMBERS
from tests.support.command_lines import COMMAND, ROOT, fenced_blocks, shell_commands

DOCUMENT = (ROOT / "docs" / "routing.md").read_text()
MAX_LINES = 250
# The numbers with which statements are refused.
REFUSALS = (9743, 9744, 9745, 9746, 9747, 9772)


def section(title: str) -> str:
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.mark.parametrize("decision", ["R1", "R2", "R3", "R4", "R5", "R7"])
def test_the_document_has_each_decision_with_its_reason(decision: str) -> None:
    [row] = [line for line in section("Decisions").splitlines() if line.startswith(f"| **{decision}.** ")]

    assert all(len(cell) > 20 for cell in row.strip("| ").split(" | "))


@pytest.mark.parametrize("number", sorted({*NUMBERS, *REFUSALS}))
def test_the_document_explains_each_number(number: int) -> None:
    rows = [line.split(" | ")[0] for line in section("Numbers").splitlines() if line.startswith("| ")]

    assert len([row for row in rows if str(number) in row]) == 1


def test_the_document_says_to_which_step_each_line_of_explain_belongs() -> None:
    source = inspect.getsource(explanation)
    titles = set(re.findall(r"_add\(f?\"(?:(rule) [^\"]+|(\w+))\"", source))
    rows = [line.split("`")[1].split()[0] for line in section("How a decision is made").splitlines() if "| `" in line]

    assert sorted(rows) == sorted({"=>", *("".join(title) for title in titles)})


def test_the_example_prints_what_the_document_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = shell_commands(fenced_blocks(section("Example"), "sh")[0])
    assert command[0] == COMMAND
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, command[1:])

    assert result.exit_code == 0
    assert result.output == fenced_blocks(section("Example"), "text")[0], f"run: {shlex.join(command)}"


def test_the_document_is_short_enough_to_read() -> None:
    assert len(DOCUMENT.splitlines()) < MAX_LINES
