"""The entry point of `queue-activation`, `python -m streaming` and `spark-submit .../streaming/__main__.py`.

It installs the signal handlers before any other import, so Ctrl-C during the imports also prints only one line.
"""

import signal
import sys

if __name__ == "__main__":
    # Before the handlers are installed, Ctrl-C ends the process without Python's traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from pathlib import Path

if not __package__:
    # Started as a file: Python searches this file's folder first, and our modules would hide others of the same name.
    sys.path.remove(str(Path(__file__).parent))

from streaming.system import outputs, stop_signals


def main() -> None:
    """Runs the command line. If no command handles a signal, prints one line and exits with the shell's code."""
    outputs.prepare()
    try:
        with stop_signals.taken():
            from streaming.cli import main as command_line

            command_line.main()
    except stop_signals.Stopped as stopped:
        sys.stderr.write(f"stopped by {stopped}\n")
        sys.exit(stopped.exit_code)


if __name__ == "__main__":
    main()
