"""Cuts long texts for people."""


def cut(text: str, most: int) -> str:
    """Returns a text. Cuts a text of more than `most` characters, so that it ends with ` ...`."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."
