"""Activation: decides that one more queue reader would have useful work, and requests that reader."""
