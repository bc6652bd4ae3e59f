"""The programs that run for long, a folder each."""
