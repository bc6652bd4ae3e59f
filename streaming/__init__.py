"""The monitor job and what attaches its core to Spark and Kafka.

This file imports nothing, so that `streaming.core` can be used without Spark or Kafka.
"""
