"""The commands for conversations and held messages."""
