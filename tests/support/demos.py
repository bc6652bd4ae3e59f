"""Runs a demo as `make demo` and its companions do."""

import os
import re
import subprocess
from pathlib import Path

from streaming.system.processes import THIS_COMMAND
from tests.support.waiting import processes_with

# A demo takes up to two minutes, and gives up by itself; the rest is for a busy machine.
TIMEOUT_S = 900


def run_demo(folder: Path, *words: str) -> str:
    """Runs a demo, which must end with exit code 0 and leave nothing behind; returns its output."""
    demo = subprocess.run(
        [*THIS_COMMAND, "demo", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )  # fmt: skip
    assert demo.returncode == 0, demo.stdout + demo.stderr
    started = len(re.findall(r"reader \d+ started", demo.stdout))
    assert started == len(re.findall(r"reader \d+ exited", demo.stdout))
    assert bool(started) == (words != ("instances",)), "readers of several instances are threads"
    assert not processes_with(f"{folder}/queue-activation-demo-"), "the demo left a process behind"
    return demo.stdout
