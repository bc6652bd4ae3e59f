"""Plants bugs one by one, and says which of them no test of their sentence finds.

    python -m tests.mutations.check

Each bug contradicts one sentence of a list in docs/. The program plants it in a copy of the checkout and runs the
sentence's tests of tests/unit. A bug counts as found if a test fails at a place outside of streaming/. A failure in
the product itself would be a crash, and a crash shows nothing about the rule.

Exit code 0: all bugs are found. 1: some are not. 2: a bug does not fit into the code, or a test fails without a bug.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from tests.mutations.bug import MisfitError
from tests.mutations.catalogue import Planted, all_planted
from tests.mutations.sentences import LISTS, sentences
from tests.support.command_lines import ROOT
from tests.support.names_of_tests import nodes_of_tests

_UNIT = "tests/unit/"
# Not needed by tests, large, or written by other programs.
_NOT_COPIED = (".git", ".venv", "build", "__pycache__", ".*_cache", ".hypothesis", "*.so", "*.egg-info", "checkpoints")
# A bug that makes a loop endless is ended after this time; the tests of a sentence take seconds.
_TIMEOUT_S = 60
_TIMEOUT_OF_ALL_S = 600


class Outcome(StrEnum):
    """The outcome of the tests of a sentence with a planted bug."""

    FOUND = "found"
    NOT_FOUND = "NOT FOUND"
    CRASHED = "CRASHED"


def nodes_for(planted: Planted, *, with_integration: bool) -> list[str]:
    """Returns the node ids to run for a bug: those in tests/unit, or others if there are none and they are wanted."""
    nodes = [node for name in planted.sentence.tests for node in nodes_of_tests().get(name, [])]
    unit = [node for node in nodes if node.startswith(_UNIT)]
    return unit or (nodes if with_integration else [])


def try_bug(planted: Planted, copy: Path, nodes: Sequence[str]) -> tuple[Outcome, str]:
    """Runs tests with a bug. Returns the outcome, and the place of a failure.

    Raises:
        MisfitError: The bug does not fit into the code.
    """
    target = copy / "streaming" / planted.bug.file
    target.write_text(planted.bug.planted(ROOT))
    try:
        failed, output = _run(copy, nodes, _TIMEOUT_S, writes_bytecode=False)
    finally:
        # With the time of the original, so that its compiled file is valid again.
        shutil.copy2(ROOT / "streaming" / planted.bug.file, target)
    if failed == 0:
        return Outcome.NOT_FOUND, ""
    # --tb=line: one line for each failure, with the place where it was raised.
    places = re.findall(r"^(/\S+:\d+): ", output, re.MULTILINE)
    outside = [place for place in places if not place.startswith(f"{copy}/streaming/")]
    if failed == 1 and outside:
        return Outcome.FOUND, outside[0].removeprefix(f"{copy}/")
    return Outcome.CRASHED, output[-500:]


def _run(copy: Path, nodes: Sequence[str], timeout_s: int, *, writes_bytecode: bool) -> tuple[int, str]:
    """Runs tests in the copy. Returns pytest's exit code, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    if not writes_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # Without the plug-in of hypothesis, which takes most of a start. Tests that use hypothesis do not need it.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--tb=line", "--no-header"]
    command = [sys.executable, "-m", "pytest", *options, *nodes]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return 2, f"the tests took more than {timeout_s} s"
    return done.returncode, done.stdout + done.stderr


def table(outcomes: Sequence[tuple[Planted, Outcome]], names: Sequence[str]) -> str:
    """Returns the result as a table for docs/activation-page.md."""
    lines = ["| list | sentences | bugs planted | found |", "|---|---|---|---|"]
    for name in names:
        found = [outcome for planted, outcome in outcomes if planted.list_name == name]
        lines.append(f"| {name} | {len(sentences(name))} | {len(found)} | {found.count(Outcome.FOUND)} |")
    return "\n".join(lines)


def _misfit(planted: Planted) -> str | None:
    """Returns why a bug does not fit into the code any more; None if it does."""
    try:
        planted.bug.planted(ROOT)
    except MisfitError as error:
        return f"A bug no longer fits: {error}."
    return None


def check(chosen: Sequence[Planted], names: Sequence[str], *, with_integration: bool) -> int:
    """Tries the bugs, and prints the outcomes. Returns the exit code."""
    misfits = [text for planted in chosen if (text := _misfit(planted)) is not None]
    if misfits:
        print(*misfits, "Write them anew in tests/mutations.", sep="\n", file=sys.stderr)
        return 2
    runs = [(planted, nodes_for(planted, with_integration=with_integration)) for planted in chosen]
    for planted, nodes in runs:
        if not nodes:
            print(f"left out, as only integration tests show it: {planted.list_name}: {planted.sentence.text}")
    runs = [run for run in runs if run[1]]
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder).resolve() / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        everything = sorted({node for _, nodes in runs for node in nodes})
        print(f"{len(everything)} tests without a bug ...", flush=True)
        failed, output = _run(copy, everything, _TIMEOUT_OF_ALL_S, writes_bytecode=True)
        if failed:
            print(f"Tests fail without a bug:\n{output[-3000:]}")
            return 2
        outcomes = []
        for number, (planted, nodes) in enumerate(runs, 1):
            outcome, place = try_bug(planted, copy, nodes)
            outcomes.append((planted, outcome))
            print(f"{number}/{len(runs)} {outcome} {planted.list_name}: {planted.sentence.text} {place}", flush=True)
            if outcome is not Outcome.FOUND:
                print(f"    {planted.bug.file}: {planted.bug.old!r} -> {planted.bug.new!r}", flush=True)
    print(table(outcomes, names))
    return 0 if all(outcome is Outcome.FOUND for _, outcome in outcomes) else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", choices=LISTS, action="append", help="only the bugs of this list; repeatable")
    parser.add_argument("--sentence", default="", metavar="TEXT", help="only the bugs of sentences that have this text")
    parser.add_argument("--integration", action="store_true", help="also sentences that only integration tests show")
    options = parser.parse_args(arguments)
    names = options.list or list(LISTS)
    try:
        chosen = [each for each in all_planted() if each.list_name in names and options.sentence in each.sentence.text]
        if not chosen:
            parser.error(f"no sentence has the text {options.sentence!r}")
        return check(chosen, names, with_integration=options.integration)
    except MisfitError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
