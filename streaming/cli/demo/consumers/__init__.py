"""Consumers that need only Kafka. The activator starts them in the demo of plain consumers."""
