"""Runs a Python function as a task: `python -P -m streaming.daemons.host.run_function MODULE:FUNCTION`.

With `--check` before the name, imports the function without calling it.

The working directory comes first on the module path. The function is called without arguments. The number that it
returns is the exit code, and None means 0. After an exception, the exit code is 1, or CANNOT_IMPORT if the module or
the function cannot be imported. A line then says what was raised, and where. In a log, the traceback follows the line;
on a terminal, the line names the file with the traceback.

This module loads only the standard library; the function itself determines what else is loaded.
"""

import importlib
import operator
import os
import re
import shutil
import sys
import tempfile
import textwrap
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
    except Exception as error:
        if CHECK in sys.argv:
            traceback.print_exc()  # the host reads the last line
        else:
            _tell(name, "cannot be imported:", error)
        return CANNOT_IMPORT
    if CHECK in sys.argv:
        return 0
    try:
        result = function()
    except Exception as error:
        _tell(name, "raised", error)
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


def _tell(name: str, what: str, error: Exception) -> None:
    """Prints that a function has failed, where the exception comes from, and the traceback or the file that keeps it.

    Imports nothing: the working directory is on the module path by now, and may hide any module.
    """
    queue, procedure = os.environ.get("QUEUE_ACTIVATION_QUEUE"), os.environ.get("QUEUE_ACTIVATION_PROCEDURE")
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    line = f"{queue}: {procedure or 'no procedure'}: the function {name} {what} {text}{_place(name, error)}"
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    report = "".join(traceback.format_exception(error))
    kept = _kept(name, report) if sys.stderr.isatty() else None
    if kept is not None:
        text = f"{line}. The traceback is in {kept}"
        width = shutil.get_terminal_size().columns
        line, report = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False), ""
    sys.stderr.write(f"{line}\n{report}")


def _place(name: str, error: Exception) -> str:
    """Returns the file and line of the module that has failed, or else of the module that has raised the exception."""
    own = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
    hidden = (__file__, importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in hidden]
    frames = [frame for frame in frames if not frame.filename.startswith("<")]
    last = ([frame for frame in frames if frame.filename == own] or frames)[-1:]
    return "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)


def _kept(name: str, report: str) -> Path | None:
    """Writes a function's last traceback to its file for temporary files; returns None if that is impossible."""
    try:
        number, new = tempfile.mkstemp(prefix="queue-activation-")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report)
        function = re.sub(r"\W+", "-", name)
        return Path(new).replace(Path(new).with_name(f"queue-activation-{os.getuid()}-{function}.traceback"))
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
