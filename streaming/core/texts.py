"""Texts that are cut for people."""


def cut(text: str, most: int) -> str:
    """Returns a text; instead of one with more than `most` characters, its beginning, which ends with ` ...`."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."
