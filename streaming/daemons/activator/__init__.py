"""The external activator: starts reader programs for notifications."""
