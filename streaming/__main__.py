"""`queue-activation`, `python -m streaming` and `spark-submit .../streaming/__main__.py` are one and the same.

Signals are taken first, before anything else is imported: Ctrl-C during the imports, too, ends in one line.
"""

import signal
import sys

if __name__ == "__main__":
    # Until signals are taken Ctrl-C ends the process without Python's traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from pathlib import Path

if not __package__:
    # Started as a file: Python looks for modules beside it first, and would take ours for others of the same name.
    sys.path.remove(str(Path(__file__).parent))

from streaming.system import stop_signals


def main() -> None:
    """Runs the command line; a signal that no command handles becomes one line and a shell's exit code for it."""
    try:
        with stop_signals.taken():
            from streaming.cli import main as command_line

            command_line.main()
    except stop_signals.Stopped as stopped:
        sys.stderr.write(f"stopped by {stopped}\n")
        sys.exit(stopped.exit_code)


if __name__ == "__main__":
    main()
