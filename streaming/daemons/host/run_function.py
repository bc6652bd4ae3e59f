"""Runs a Python function as a task: `python -P -m streaming.daemons.host.run_function MODULE:FUNCTION`.

With `--check` before its name the function is imported and not called.

The working directory comes first on the module path. The function is called without arguments; its number is the exit
code, none is 0, an exception is a traceback and 1. A module or function that cannot be had is CANNOT_IMPORT.

It loads the standard library only: the rest is the function's own choice.
"""

import importlib
import operator
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

# EX_CONFIG of sysexits.h. A function should not return it: the host takes it for one that was never called.
CANNOT_IMPORT = 78
CHECK = "--check"

# What a process can tell its parent (wait(2)).
_MAX_EXIT_CODE = 255


def main() -> int:
    """Imports and calls the function that the command line names; returns the exit code."""
    sys.path.insert(0, str(Path.cwd()))
    name = sys.argv[-1]
    try:
        function = _imported(name)
    except Exception:
        traceback.print_exc()
        return CANNOT_IMPORT
    if CHECK in sys.argv:
        return 0
    result = function()
    if result is None:
        return 0
    if isinstance(result, int) and 0 <= result <= _MAX_EXIT_CODE:
        return result
    sys.stderr.write(f"{name} returned {result!r}, which is no exit code: 0 to {_MAX_EXIT_CODE}, or None\n")
    return 1


def _imported(name: str) -> Callable[[], object]:
    module, _, attribute = name.partition(":")
    function = operator.attrgetter(attribute)(importlib.import_module(module))
    if not callable(function):
        raise TypeError(f"{name} is no function")
    return function  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
