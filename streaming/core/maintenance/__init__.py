"""Periodic tasks: their schedule, and the record of their runs."""
