"""Clients for programs whose queues are Kafka topics. They send and read messages, and report both to the monitor."""
