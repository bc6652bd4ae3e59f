"""Kafka for all programs: clients, administration, rights, and topics that are followed or watched."""
