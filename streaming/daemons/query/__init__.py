"""The common parts of programs that run a query: the tick, the guard against a second program, and the query's life."""
