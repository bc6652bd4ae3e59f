"""The Makefile says that a long installation goes on, and fails where the installation fails."""

import re
import subprocess
from typing import IO

from tests.support.command_lines import ROOT


def make(recipe: str) -> subprocess.Popen[str]:
    """Runs a recipe whose input and output are pipes."""
    command = ["make", "--silent", "--eval", f"go: ; @{recipe} | $(PIP_PROGRESS)", "PIP_AGAIN_S=0.05", "go"]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def piped(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def test_a_step_of_pip_that_goes_on_is_told_again_and_again() -> None:
    with make("timeout 20 cat") as running:
        said, pip = piped(running.stdout), piped(running.stdin)
        pip.write("Collecting rich>=13 (from queue-activation)\nUsing cached\n")
        pip.flush()
        lines = [said.readline() for _ in range(3)]
        pip.write("Installing collected packages: rich\n")
        pip.close()
        rest = said.read()
    assert lines[0] == "  rich>=13\n"
    assert all(re.fullmatch(r"  still at work after \d+ s\n", line) for line in lines[1:]), lines
    assert rest.endswith("  installing\n")
    assert running.returncode == 0


def test_make_fails_where_pip_fails() -> None:
    with make("false") as running:
        running.communicate()
    assert running.returncode != 0
