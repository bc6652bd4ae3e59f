"""The monitor: runs the query, the tick and the metrics."""
