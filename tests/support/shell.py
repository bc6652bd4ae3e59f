"""The command line as a user types it, in the process of the tests: to start Python for each command takes longer."""

import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from streaming.cli.main import main


def run_command(*words: str, stdin: str = "", code: int = 0) -> str:
    """Runs a command line, which must end with this exit code; returns its standard output and error together."""
    said, typed = io.StringIO(), io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with (
        # As in a process of the command's own. What other tests have not closed must not be in its output.
        warnings.catch_warnings(action="ignore", category=ResourceWarning),
        redirect_stdout(said),
        redirect_stderr(said),
        patch.object(sys, "stdin", typed),
        pytest.raises(SystemExit) as ended,
    ):
        main(words)
    assert (ended.value.code or 0) == code, said.getvalue()
    return said.getvalue()


class Shell:
    """Runs commands of `queue-activation` on the topics of one prefix.

    Attributes:
        prefix: The prefix.
    """

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.prefix = prefix
        self._options = ["--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix]

    def run(self, *words: str, stdin: str = "", code: int = 0) -> str:
        """Runs a command with its arguments and options, `words`; returns its standard output and error together."""
        return run_command(*words, *self._options, stdin=stdin, code=code)
