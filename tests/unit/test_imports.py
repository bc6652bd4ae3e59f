"""The core needs nothing but Python: it can be used, tested and reasoned about without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import streaming.core

ROOT = Path(streaming.core.__file__).parents[2]
MODULES = sorted(f"streaming.core.{path.stem}" for path in Path(streaming.core.__file__).parent.glob("[!_]*.py"))

SCRIPT = """
import json, sys
before = set(sys.modules)
__import__(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize("module", ["streaming", "streaming.core", *MODULES])
def test_a_module_of_the_core_loads_nothing_foreign(module: str) -> None:
    command = [sys.executable, "-B", "-c", SCRIPT, module]
    loaded = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout)

    assert module in loaded
    foreign = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    # What is compiled is in a module of that name.
    own = ("streaming", "queue_activation__mypyc")
    assert [name for name in foreign if name not in own and not name.startswith("streaming.core")] == []


def test_the_core_was_found() -> None:
    assert "streaming.core.shard" in MODULES
