"""SECURITY.md names the tests that show each of its promises, and these tests exist."""

import ast
import re
from collections.abc import Iterator

from tests.support.command_lines import ROOT

DOCUMENT = (ROOT / "SECURITY.md").read_text()


def names_of_tests() -> set[str]:
    """Returns the names of all test functions."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text())
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name for name in found if name.startswith("test_")}


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yields the first cell of each row of a table, and the tests that the row names."""
    for line in DOCUMENT.splitlines():
        if line.startswith("| ") and not line.endswith("| shown by |"):
            first, *_, last = line.strip("| ").split(" | ")
            yield first, re.findall(r"`(\w+)`", last)


def test_each_row_names_tests_that_exist() -> None:
    there = names_of_tests()
    missing = {first[:60]: sorted(set(names) - there) for first, names in rows() if not names or set(names) - there}
    assert missing == {}


def test_the_rows_were_found() -> None:
    assert len(list(rows())) > 20
