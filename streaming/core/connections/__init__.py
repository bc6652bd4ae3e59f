"""Connections to other instances."""
