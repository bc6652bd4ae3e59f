"""The parts that programs which run a query have in common: the tick, the guard against two, and the query's life."""
