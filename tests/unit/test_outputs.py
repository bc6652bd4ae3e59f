"""The output of a program where the terminal is not UTF-8, the pipe is closed, or the disk is full."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.system.processes import own_environment

# Ways to print, each with a character that neither ASCII nor ISO-8859-1 has.
WAYS = {
    "typer": "import typer; typer.echo('\u6ce8\u6587')",
    "rich": "from rich.console import Console; Console().print('\u6ce8\u6587')",
    "a view": "from rich.text import Text; from streaming.cli import tables; tables.print_view(Text('\u6ce8\u6587'))",
    "the output": "import sys; sys.stdout.write('\u6ce8\u6587')",
    "the log": "from streaming.system import logs; logs.report('\u6ce8\u6587')",
    "a function as a task": (
        "import sys\nfrom streaming.daemons.host import run_function\n"
        "sys.argv.append('builtins:copyright')\n"
        "import builtins; builtins.copyright = lambda: print('\u6ce8\u6587')\n"
        "run_function.main()"
    ),
}
DAEMON = """
import sys, typer
from pathlib import Path
from streaming.system import logs, outputs, stop_signals

@stop_signals.orderly("daemon")
def daemon():
    logs.configure(logs.LogFormat.TEXT)
    with Path(sys.argv[1]).open("w") as file:
        for _ in range(3):
            typer.echo("a line")
            sys.stdout.write("another\\n")
            sys.stdout.flush()
            logs.report("a problem")
        file.write("its work is done")

outputs.prepare()
daemon()
"""
CHILD = r"""
import sys
from pathlib import Path
from streaming.system.processes import ChildProcess
command = ["/bin/sh", "-c", 'printf "%s %s" "$NAME" "$1"', "sh", "\u6ce8\u6587"]
with ChildProcess(command, log_file=Path(sys.argv[1]), env={"NAME": "pr\u00fcf-\u2116"}) as child:
    child.wait()
"""


def run(code: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, check=False, env={**own_environment(), **variables})


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_terminal_cannot_show_is_escaped(way: str, encoding: str) -> None:
    ended = run(f"from streaming.system import outputs; outputs.prepare()\n{WAYS[way]}", PYTHONIOENCODING=encoding)

    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert rb"\u6ce8\u6587" in said or "\u6ce8\u6587".encode() in said, "typer writes UTF-8 where ASCII is set"


def test_a_name_reaches_a_program_in_utf8_where_the_locale_has_no_such_name(tmp_path: Path) -> None:
    ended = run(CHILD, str(tmp_path / "log"), LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "log").read_text(encoding="utf-8") == "pr\u00fcf-\u2116 \u6ce8\u6587"


@pytest.mark.parametrize("broken", ["a pipe that nobody reads", "no output at all", "a full disk"])
def test_printing_never_ends_a_daemon(broken: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DAEMON, str(tmp_path / "file")]
    if broken == "no output at all":
        ended = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], check=False).returncode
    elif broken == "a full disk":
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(command, stdout=full, stderr=full, check=False).returncode
    else:
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(command, stdout=writing, stderr=writing, check=False).returncode
        os.close(writing)

    assert (tmp_path / "file").read_text() == "its work is done", "no line went into the file with the number of stdout"
    assert ended == 0
