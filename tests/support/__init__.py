"""Helpers for tests of several levels."""
