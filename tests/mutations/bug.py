"""A bug to plant: a replacement of a short text in one file."""

from dataclasses import dataclass
from pathlib import Path


class MisfitError(Exception):
    """The text that a bug replaces is not in its file exactly once."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that breaks one rule and nothing else: an order, a bound, a condition.

    Attributes:
        file: The file, in the folder streaming/.
        old: The text that is replaced; it is in the file exactly once.
        new: The text that takes its place.
    """

    file: str
    old: str
    new: str

    def planted(self, checkout: Path) -> str:
        """Returns the file's text with the bug.

        Raises:
            MisfitError: The text to replace is not in the file exactly once.
        """
        text = (checkout / "streaming" / self.file).read_text()
        count = text.count(self.old)
        if count != 1:
            raise MisfitError(f"streaming/{self.file} has {count} times, instead of once, the text {self.old!r}")
        return text.replace(self.old, self.new)


# The beginning of a sentence -> its bugs.
Bugs = dict[str, list[Bug]]
