"""The router: runs the query that decides where messages go, with the tick, the progress and the metrics."""
