"""The query that takes the queues through their batches."""
