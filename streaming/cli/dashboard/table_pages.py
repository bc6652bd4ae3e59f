"""The rows of a long table, a hundred at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Row = TypeVar("Row")

ROWS = 100
# A longer text is not the number of a page.
_MOST_DIGITS = 7


@dataclass(frozen=True)
class Paged(Generic[Row]):
    """One page of rows.

    Attributes:
        rows: Its rows.
        found: The number of rows of all pages.
        number: The page's number, from 1.
        pages: The number of pages.
    """

    rows: Sequence[Row]
    found: int
    number: int
    pages: int

    @property
    def first(self) -> int:
        """Returns the number of the page's first row, from 1."""
        return (self.number - 1) * ROWS + 1

    @property
    def last(self) -> int:
        """Returns the number of the page's last row."""
        return self.first + len(self.rows) - 1


def paged(rows: Sequence[Row], wanted: str | None) -> Paged[Row]:
    """Returns the page of rows with the number that the user asks for, or the nearest page."""
    pages = max(1, -(-len(rows) // ROWS))
    text = wanted or ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 1
    number = min(max(1, number), pages)
    return Paged(rows[(number - 1) * ROWS : number * ROWS], len(rows), number, pages)
