"""Formats the help of commands. No line ends within the name of an option, so that a name can be copied."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

# Typer breaks lines at hyphens. It does not break lines at this character.
_KEPT_HYPHEN = "\N{NON-BREAKING HYPHEN}"
_Contexts: Any = TyperGroup.context_class
_Formatter: Any = _Contexts.formatter_class


class _HelpFormatter(_Formatter):  # type: ignore[misc]  # Typer does not export its class
    def write_text(self, text: str) -> None:
        super().write_text(_kept(text))

    def write_dl(self, rows: Sequence[tuple[str, str]], *more: Any, **options: Any) -> None:
        super().write_dl([(_kept(name), _kept(text)) for name, text in rows], *more, **options)

    def getvalue(self) -> str:
        return str(super().getvalue()).replace(_KEPT_HYPHEN, "-")


def _kept(text: str) -> str:
    return text.replace("-", _KEPT_HYPHEN)


def keep_names_whole() -> None:
    """Lets the help of all commands break no line at a hyphen."""
    _Contexts.formatter_class = _HelpFormatter
