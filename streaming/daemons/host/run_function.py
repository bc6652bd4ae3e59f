"""Runs a Python function as a task: `python -P -m streaming.daemons.host.run_function MODULE:FUNCTION`.

With `--check` before the name, imports the function without calling it.

The working directory comes first on the module path. The function is called without arguments. The number that it
returns is the exit code, and None means 0. After an exception, the exit code is 1, or CANNOT_IMPORT if the module or
the function cannot be imported. A line then names the queue, the procedure and the function, and the traceback follows.

This module loads only the standard library; the function itself determines what else is loaded.
"""

import importlib
import operator
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from streaming.system import outputs

# EX_CONFIG of sysexits.h. A function should not return it, because the host would report a failed import.
CANNOT_IMPORT = 78
CHECK = "--check"

# The largest exit code that a process can pass to its parent (wait(2)).
_MAX_EXIT_CODE = 255


def main() -> int:
    """Imports and calls the function that the command line names; returns the exit code."""
    outputs.prepare()
    sys.path.insert(0, str(Path.cwd()))
    name = sys.argv[-1]
    try:
        function = _imported(name)
    except Exception:
        _tell(name, "cannot be imported")  # of a check, the host reads the last line
        return CANNOT_IMPORT
    if CHECK in sys.argv:
        return 0
    try:
        result = function()
    except Exception:
        _tell(name, "failed")
        return 1
    if result is None:
        return 0
    if isinstance(result, int) and 0 <= result <= _MAX_EXIT_CODE:
        return result
    sys.stderr.write(f"{name} returned {result!r}, which is not an exit code: 0 to {_MAX_EXIT_CODE}, or None\n")
    return 1


def _imported(name: str) -> Callable[[], object]:
    module, _, attribute = name.partition(":")
    function = operator.attrgetter(attribute)(importlib.import_module(module))
    if not callable(function):
        raise TypeError(f"{name} is not a function")
    return function  # type: ignore[no-any-return]


def _tell(name: str, problem: str) -> None:
    """Prints which function of which queue has failed, and the traceback of the exception that is being handled."""
    queue, procedure = os.environ.get("QUEUE_ACTIVATION_QUEUE"), os.environ.get("QUEUE_ACTIVATION_PROCEDURE")
    sys.stderr.write(f"{queue}: {procedure or 'no procedure'}: the function {name} {problem}:\n")
    traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
