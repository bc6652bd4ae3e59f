"""Consumers that know nothing of this project: the demo of plain consumers has them started on demand."""
