"""The command that finds faults of definitions and of what runs."""
