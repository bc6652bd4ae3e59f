"""Metrics of a running monitor, and whether it works: what docs/metrics.md describes, over HTTP."""
