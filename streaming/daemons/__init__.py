"""The long-running programs, one package each."""
