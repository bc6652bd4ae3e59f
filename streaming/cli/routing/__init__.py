"""The commands for databases, services and routes."""
