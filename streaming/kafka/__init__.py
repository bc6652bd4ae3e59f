"""Kafka as all programs talk to it: clients, administration, rights, following topics."""
