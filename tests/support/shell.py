"""The command line as a user types it, in a process of its own."""

import subprocess
import sys

from streaming.system.processes import own_environment


class Shell:
    """Runs commands of `queue-activation` on the topics of one prefix."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._options = ["--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix]

    def run(self, *words: str, stdin: str | None = None, code: int = 0) -> str:
        """Runs a command with its arguments and options, `words`; returns its standard output and error together."""
        result = subprocess.run(
            [sys.executable, "-m", "streaming", *words, *self._options],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            env=own_environment(),
            check=False,
        )
        assert result.returncode == code, result.stdout
        return result.stdout
