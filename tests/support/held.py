"""The reason for which messages of a conversation are held."""

from streaming.core.conversations.conversation import Direction


def text_of(direction: Direction) -> str:
    """Returns the reason in words; empty if nothing is held."""
    return "" if direction.held is None else direction.held.text


def number_of(direction: Direction) -> int | None:
    """Returns the number of the reason."""
    return None if direction.held is None else direction.held.number


def held_since(direction: Direction) -> int | None:
    """Returns the instant since which messages are held."""
    return None if direction.held is None else direction.held.since_ms
