"""Counts lines of code, without comments, docstrings and blank lines, and the words of the documents.

    python -m tests.code_lines [REVISION ...]

Counts all of `streaming` and `producers`, and of these the programs of services. Without a revision, it counts the
files of the checkout as they are.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections.abc import Mapping
from pathlib import PurePath

from tests.support.command_lines import ROOT

FOLDERS = ("streaming", "producers")
PACKAGES = ("core/conversations", "wire", "spark/routing", "daemons/router", "daemons/transport")
DOCUMENTS = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "docs")
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


def lines_by_package(files: Mapping[str, str]) -> Mapping[str, int]:
    """Returns folder or package of `streaming` -> lines of code; the packages are parts of the folders.

    Args:
        files: The name of each file, with its text.
    """
    counts = dict.fromkeys((*FOLDERS, *PACKAGES), 0)
    for name, text in files.items():
        if name.endswith(".py"):
            lines = code_lines(text)
            for part in counts:
                if name.startswith((f"{part}/", f"streaming/{part}/")):
                    counts[part] += lines
    return counts


def words(files: Mapping[str, str]) -> int:
    """Returns the number of words of the documents."""
    return sum(len(text.split()) for name, text in files.items() if name.endswith(".md"))


def counted_files(revision: str | None) -> Mapping[str, str]:
    """Returns name -> text of the code and the documents, in a revision or in the checkout."""
    counted = [*FOLDERS, *DOCUMENTS]
    if revision is not None:
        command = ["git", "archive", revision, *counted]
        packed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            members = [each for each in archive if each.isfile() and _is_counted(each.name)]
            contents = {each.name: archive.extractfile(each) for each in members}
            return {name: file.read().decode() for name, file in contents.items() if file is not None}
    paths = [path for name in counted for path in (ROOT / name, *sorted((ROOT / name).rglob("*")))]
    found = [path for path in paths if path.is_file() and _is_counted(path.name)]
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def _is_counted(name: str) -> bool:
    return PurePath(name).suffix in (".py", ".md")


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.code_lines")
    parser.add_argument("revisions", nargs="*", metavar="REVISION")
    for revision in parser.parse_args().revisions or [None]:
        files = counted_files(revision)
        lines = lines_by_package(files)
        whole, services = sum(lines[name] for name in FOLDERS), sum(lines[name] for name in PACKAGES)
        each = ", ".join(f"{package} {lines[package]:,}" for package in PACKAGES)
        print(f"{revision or 'the checkout'}: {whole:,} lines of code, {words(files):,} words of documents")
        print(f"  of the code, programs of services: {services:,} lines ({each})")


if __name__ == "__main__":
    main()
