"""The task host: runs the procedures that internal activation starts."""
