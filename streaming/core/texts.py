"""Long texts for people are cut."""


def cut(text: str, most: int) -> str:
    """Returns a text. A text of more than `most` characters is cut, and ends with ` ...`."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."
