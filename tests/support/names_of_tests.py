"""The tests by name, which documents refer to."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.command_lines import ROOT


@cache
def nodes_of_tests() -> dict[str, list[str]]:
    """Returns the name of each test function and method -> its node ids, as pytest takes them."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, place in _functions(ast.parse(path.read_text())):
            found.setdefault(name, []).append(f"{path.relative_to(ROOT).as_posix()}::{place}")
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.name
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            yield from ((each.name, f"{node.name}::{each.name}") for each in methods)


def names_of_tests() -> set[str]:
    """Returns the names of all test functions and methods."""
    return set(nodes_of_tests())
