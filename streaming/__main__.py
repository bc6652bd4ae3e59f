"""`python -m streaming`, and `spark-submit .../streaming/__main__.py`, are the command `queue-activation`."""

import sys
from pathlib import Path

if not __package__:
    # Started as a file: Python looks for modules beside it first, and would take ours for others of the same name.
    sys.path.remove(str(Path(__file__).parent))

from streaming.cli.main import main

main()
