"""The command `queue-activation`."""
