"""The Makefile says that a long installation goes on, fails where it fails, and names only what is there."""

import re
import subprocess
from pathlib import Path
from typing import IO

import pytest

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


@pytest.mark.parametrize("is_prepared", [True, False])
def test_the_end_of_a_set_up_names_the_files_outside_only_if_they_are_there(is_prepared: bool, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "queue-activation"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nexit {0 if is_prepared else 2}\n", encoding="utf-8")
    command.chmod(0o755)
    for stamp in (".runtime", ".set-up"):
        (tmp_path / stamp).touch()
    done = subprocess.run(
        ["make", "--silent", "setup", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told = ["Set-up is complete", "jars", "archive of Java's classes", "The preparation failed"]
    assert [words in done.stdout for words in told] == [is_prepared] * 3 + [not is_prepared]
    assert "make demo" in done.stdout


def test_a_set_up_deletes_nothing_behind_a_link(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    kept = shared / "kept"
    kept.touch()
    link = tmp_path / "link"
    link.symlink_to(shared)
    done = subprocess.run(
        ["make", "--silent", "setup", f"VENV={link}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, kept.exists()) == (2, True)
    assert "is a link" in done.stdout
