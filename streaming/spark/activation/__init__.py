"""The activation query, which takes all queues through their batches."""
