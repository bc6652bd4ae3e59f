"""Activation: when one more queue reader would have useful work, and what is done about it."""
