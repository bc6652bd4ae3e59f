"""Refuses checkpoints and states in the format of a newer version of this project."""

from streaming.errors import UserError


class UnknownFormatError(RuntimeError):
    """The checkpoint was written by a newer version."""


def refuse_newer_state(version: int, newest: int) -> None:
    """Raises UnknownFormatError if a shard's state has a newer format than this version reads."""
    if version > newest:
        raise UnknownFormatError(_problem("The checkpoint has state of", version, newest))


def refuse_newer_checkpoint(location: str, version: int, newest: int) -> None:
    """Raises UserError if the layout of a checkpoint has a newer format than this version reads."""
    if version > newest:
        raise UserError(_problem(f"The checkpoint {location} has", version, newest))


def _problem(beginning: str, version: int, newest: int) -> str:
    return (
        f"{beginning} format {version}, but this version reads only formats up to {newest}. Start the version that "
        "wrote it, or a newer one."
    )
