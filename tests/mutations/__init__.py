"""Bugs to plant, and a program that says which of them the tests of their sentence do not find."""
