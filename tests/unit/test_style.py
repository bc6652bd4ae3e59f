"""The rules of CONTRIBUTING.md, "Style of the English", that a program can check; and the version's change log."""

import ast
import re
import subprocess
import tomllib
from importlib.metadata import version

import pytest

from tests.support.command_lines import ROOT

FORBIDDEN = {"What", "Whether", "How", "Who", "Which", "Where", "Why", "When"}
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.split()


def first_words(source: str) -> list[str]:
    """Returns the first word of each docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    return [re.split(r"\W", found, maxsplit=1)[0] for node in nodes if (found := ast.get_docstring(node))]


@pytest.mark.parametrize("file", [name for name in FILES if (ROOT / name).exists()])
def test_no_docstring_begins_with_a_question_word(file: str) -> None:
    assert not FORBIDDEN.intersection(first_words((ROOT / file).read_text()))


def test_the_change_log_begins_with_this_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == declared == version("queue-activation")
