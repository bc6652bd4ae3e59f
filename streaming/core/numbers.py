"""Numbers in sentences."""


def plural(count: int, noun: str) -> str:
    """Returns a number and a noun in the right form."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
