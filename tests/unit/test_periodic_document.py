"""docs/periodic-tasks.md names a test for each task of the original, and the notifications on which it is done."""

import re

from streaming.core.maintenance import tasks
from streaming.core.maintenance.tasks import Task
from tests.support.command_lines import ROOT

DOCUMENT = (ROOT / "docs" / "periodic-tasks.md").read_text()
ROWS = [line for line in DOCUMENT.splitlines() if re.match(r"\| (each|second|fifth) \|", line)]


def test_each_task_has_a_test() -> None:
    assert len(ROWS) == 10
    assert [row for row in ROWS if "`test_" not in row] == []


def test_each_task_is_done_on_the_notifications_that_the_document_names() -> None:
    every = {name: task.every for name, task in vars(tasks).items() if isinstance(task, Task)}
    documented = {
        name: {"each": 1, "second": 2, "fifth": 5}[row.split(" | ")[0].strip("| ")]
        for row in ROWS
        for name in every
        if re.search(rf"\b{name}\b", row)
    }
    assert documented == every
