"""The names of the tests, which documents refer to."""

import ast

from tests.support.command_lines import ROOT


def names_of_tests() -> set[str]:
    """Returns the names of all test functions and methods."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
