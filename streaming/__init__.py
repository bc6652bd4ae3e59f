"""The monitor job: its core, and the code that connects the core to Spark and Kafka.

This file imports nothing, so `streaming.core` can be used without Spark or Kafka.
"""
