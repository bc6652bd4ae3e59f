"""docs/periodic-tasks.md names a test for each task of the original."""

import re

from tests.support.command_lines import ROOT
from tests.support.names_of_tests import names_of_tests

DOCUMENT = (ROOT / "docs" / "periodic-tasks.md").read_text()


def test_each_task_has_a_test_that_exists() -> None:
    rows = [line for line in DOCUMENT.splitlines() if re.match(r"\| (each|second|fifth) \|", line)]
    assert len(rows) == 10
    assert [row for row in rows if "`test_" not in row] == []
    assert sorted(set(re.findall(r"`(test_\w+)`", DOCUMENT)) - names_of_tests()) == []
