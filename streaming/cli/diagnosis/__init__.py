"""The command that finds faults of definitions and of the running programs."""
