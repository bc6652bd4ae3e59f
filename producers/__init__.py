"""Clients for programs whose queues are Kafka topics: send messages, read them, and tell the monitor."""
