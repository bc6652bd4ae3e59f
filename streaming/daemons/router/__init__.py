"""The router: runs the query that decides where messages go, its tick, its progress and its metrics."""
