"""Routing: where a message goes, by the name of a service. Rules and their sources are in docs/routing.md."""
