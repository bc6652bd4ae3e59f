"""The sentences of the lists in docs/, and the tests that show each of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.command_lines import ROOT

# List -> its document. A list is every table with a column of this name and the column "shown by".
LISTS = {
    "activation": "docs/activation-page.md",
    "routing": "docs/routing.md",
    "periodic tasks": "docs/periodic-tasks.md",
    "conversations": "docs/conversations.md",
    "observing": "docs/observing.md",
}
_COLUMNS = ("sentence", "task of the original", "statement")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A row of a list.

    Attributes:
        text: The sentence.
        shown_by: The cell that says by what it is shown.
        tests: The names of the tests in that cell.
    """

    text: str
    shown_by: str
    tests: tuple[str, ...]


def sentences(name: str) -> list[Sentence]:
    """Returns the sentences of a list."""
    return list(_rows((ROOT / LISTS[name]).read_text()))


def _rows(document: str) -> Iterator[Sentence]:
    column = None
    for line in document.splitlines():
        if not line.startswith("|"):
            column = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if column is not None:
            if not line.startswith("|---"):
                yield Sentence(cells[column], cells[-1], tuple(re.findall(r"`(test_\w+)`", cells[-1])))
        elif cells[-1] == "shown by":
            column = next((index for index, cell in enumerate(cells) if cell in _COLUMNS), None)
