"""The count of lines of code."""

from tests.code_lines import PACKAGES, code_lines, lines_by_package

SOURCE = '''"""A module.

It has a docstring.
"""

from x import (  # a line of code, with a comment
    y,
)

# Only a comment.


class C:
    """A class."""

    text = """not a

docstring"""

    def f(self):
        """Does nothing."""
        return y
'''


def test_lines_without_comments_docstrings_and_blank_lines_count() -> None:
    assert code_lines(SOURCE) == len(["from", "y", ")", "class", "text", "", "docstring", "def", "return"])


def test_the_checkout_has_every_package_that_is_counted() -> None:
    found = lines_by_package(None)
    assert [*found] == [*PACKAGES]
    assert min(found.values()) > 100
