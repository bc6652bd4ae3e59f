"""Counts the lines of code of the programs of services: without comments, docstrings and blank lines.

    python -m tests.code_lines [REVISION ...]

Without a revision, it counts the files of the checkout as they are.
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator, Mapping

from tests.support.command_lines import ROOT

PACKAGES = ("core/conversations", "wire", "spark/routing", "daemons/router", "daemons/transport")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def code_lines(source: str) -> int:
    """Returns the number of lines of a module that have code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def lines_by_package(revision: str | None) -> Mapping[str, int]:
    """Returns package of `streaming` -> lines of code, in a revision or in the checkout."""
    counts = dict.fromkeys(PACKAGES, 0)
    for name, source in _modules(revision):
        [package] = [each for each in PACKAGES if name.startswith(f"streaming/{each}/")]
        counts[package] += code_lines(source)
    return counts


def _modules(revision: str | None) -> Iterator[tuple[str, str]]:
    """Yields the name of each module of the packages, and its source."""
    folders = [f"streaming/{package}" for package in PACKAGES]
    if revision is None:
        files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
        yield from ((str(file.relative_to(ROOT)), file.read_text()) for file in files)
        return
    names = _git("ls-tree", "-r", "--name-only", revision, *folders).split()
    yield from ((name, _git("show", f"{revision}:{name}")) for name in names if name.endswith(".py"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.code_lines")
    parser.add_argument("revisions", nargs="*", metavar="REVISION")
    for revision in parser.parse_args().revisions or [None]:
        found = lines_by_package(revision)
        each = ", ".join(f"{package} {lines:,}" for package, lines in found.items())
        print(f"{revision or 'the checkout'}: {sum(found.values()):,} lines of code ({each})")


if __name__ == "__main__":
    main()
