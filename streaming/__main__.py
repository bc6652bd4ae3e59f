"""`python -m streaming` is the command `queue-activation`, whatever the PATH."""

from streaming.cli import main

main()
