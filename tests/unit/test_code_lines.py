"""The count of lines of code."""

from tests.code_lines import FOLDERS, PACKAGES, code_lines, counted_files, lines_by_package, words

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


def test_a_package_is_counted_beside_the_folder_that_has_it() -> None:
    files = {"streaming/wire/a.py": SOURCE, "streaming/errors.py": "x = 1", "producers/b.py": "y = 1", "docs/a.py": "z"}
    found = lines_by_package(files)
    assert (found["streaming"], found["producers"], found["wire"], found["daemons/router"]) == (10, 1, 9, 0)


def test_only_the_words_of_documents_count() -> None:
    assert words({"README.md": "# Some title\n\nAnd a line.", "streaming/a.py": "no words"}) == 6


def test_the_checkout_has_every_package_and_document_that_is_counted() -> None:
    files = counted_files(None)
    found = lines_by_package(files)
    assert [*found] == [*FOLDERS, *PACKAGES]
    assert min(found.values()) > 100
    assert {"README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/contract.md"} < files.keys()
