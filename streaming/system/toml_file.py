"""Reads a TOML file into a typed object; what is wrong with it is told with the entry that it is about."""

import re
import tomllib
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from streaming.errors import UserError

_Content = TypeVar("_Content", bound=msgspec.Struct)

# How msgspec ends its messages: where the wrong value is.
_AT_PATH = re.compile(r"^(?P<reason>.*) - at `\$\.?(?P<entry>[^`]*)`$", re.DOTALL)


def load(path: Path, content_type: type[_Content]) -> _Content:
    """The file's content.

    Raises:
        UserError: It cannot be read, is no TOML, or has a wrong value; the message names its entry (`programs[1].max`;
            the first has the number 0) and the reason.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return msgspec.convert(tomllib.loads(text), content_type)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is no TOML that can be used: it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {_AT_PATH.sub(_entry_first, str(error))}") from None
    except ValueError as error:
        # Besides tomllib's own error, that of a number with more digits than Python converts.
        raise UserError(f"{path} is no TOML: {error}") from None


class TomlFile(Generic[_Content]):
    """A file that may change while it is in use: the content as it was last right.

    Attributes:
        path: Where it is.
        current: The content.
    """

    def __init__(self, path: Path, content_type: type[_Content]) -> None:
        """Reads it.

        Raises:
            UserError: It is missing or wrong.
        """
        self.path = path.absolute()
        self._content_type = content_type
        self._version = self._find_version()
        self.current = load(self.path, content_type)

    def has_changed(self) -> bool:
        """Whether the file is another one than at the last look; a missing one has changed too."""
        version = self._find_version()
        if version == self._version:
            return False
        self._version = version
        return True

    def reload(self) -> None:
        """Takes over the file.

        Raises:
            UserError: It is missing or wrong; the content stays.
        """
        self.current = load(self.path, self._content_type)

    def _find_version(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _entry_first(found: re.Match[str]) -> str:
    return f"{found['entry']}: {found['reason']}"
