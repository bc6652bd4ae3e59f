"""Periodic tasks: which are due, and what they have done."""
