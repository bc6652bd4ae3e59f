"""The public names: documents and examples use no others, and a program that imports them sees their types."""

import ast
import inspect
from importlib.resources import files

import pytest

import producers
from tests.support.command_lines import ROOT, fenced_blocks

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {
    **{str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))},
    **{
        f"{path.relative_to(ROOT)}, block {number}": block
        for path in DOCUMENTS
        for number, block in enumerate(fenced_blocks(path.read_text(), "python"), 1)
    },
}


def imported(program: str) -> set[tuple[str, str]]:
    """Returns (module, name) for each import from this project."""
    return {
        (str(node.module), alias.name)
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in {"producers", "streaming"}
        for alias in node.names
    }


@pytest.mark.parametrize("place", PROGRAMS)
def test_documents_and_examples_use_public_names_only(place: str) -> None:
    assert imported(PROGRAMS[place]) <= {("producers", name) for name in producers.__all__}


def test_there_are_such_programs() -> None:
    names = {name for program in PROGRAMS.values() for _, name in imported(program)}
    assert names >= {"Message", "QueueProducer", "QueueReader", "ServiceClient", "UserError", "create_queue_topics"}


@pytest.mark.parametrize("name", producers.__all__)
def test_a_public_name_is_documented_and_typed(name: str) -> None:
    thing = getattr(producers, name)
    assert inspect.getdoc(thing)
    assert files("producers").joinpath("py.typed").is_file()
