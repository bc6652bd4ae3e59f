"""Sentences name only documents that exist, also in an installed package, and from any working directory."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import producers
import streaming
from streaming.system import documents
from streaming.system.documents import document

PACKAGES = [Path(str(package.__file__)).parent for package in (streaming, producers)]
NAMED = re.compile(r"""document\(["']([^"']+)["']\)""")
# The folders of a checkout, which a user of an installed package does not have.
OF_A_CHECKOUT = re.compile(r"\b(docs|examples|tests|benchmarks)/")


def sources(*suffixes: str) -> Iterator[Path]:
    yield from (path for package in PACKAGES for path in package.rglob("*") if path.suffix in suffixes)


def texts_of(path: Path) -> Iterator[str]:
    """Yields the texts of a module, without its docstrings."""
    tree = ast.parse(path.read_text())
    expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in expressions:
            yield node.value


def test_each_document_that_a_sentence_names_is_there_from_anywhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = {name for path in sources(".py", ".html") for name in NAMED.findall(path.read_text())}
    assert len(named) > 5
    for folder in (tmp_path, Path(__file__).parents[2]):
        monkeypatch.chdir(folder)
        assert [name for name in sorted(named) if not Path(document(name)).is_file()] == []


def test_a_document_below_the_working_directory_is_named_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(documents._FOLDER.parent)
    assert document("guide/reporting.md") == "docs/guide/reporting.md"
    monkeypatch.chdir(documents._FOLDER / "guide")
    assert document("guide/reporting.md") == "reporting.md"


def test_no_other_sentence_names_a_file_of_the_checkout() -> None:
    found = [f"{path.name}: {text}" for path in sources(".py") for text in texts_of(path) if OF_A_CHECKOUT.search(text)]
    found += [path.name for path in sources(".html", ".js") if OF_A_CHECKOUT.search(path.read_text())]
    assert found == []
