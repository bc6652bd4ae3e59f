"""Reads a TOML file into a typed object. Error messages name the entry with the invalid value."""

import re
import tomllib
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from streaming.errors import UserError

_Content = TypeVar("_Content", bound=msgspec.Struct)

# msgspec's messages end with the path of the invalid value.
_AT_PATH = re.compile(r"^(?P<reason>.*) - at `\$\.?(?P<entry>[^`]*)`$", re.DOTALL)


def read(path: Path) -> dict[str, Any]:
    """Returns the content of a file as plain values.

    Raises:
        UserError: The file cannot be read, or is not valid TOML.
    """
    try:
        # Editors on Windows write a byte order mark, which TOML does not know.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:
        # tomllib's own error, or Python's for a number with more digits than Python converts.
        raise UserError(f"{path} is not valid TOML: {error}") from None


def load(path: Path, content_type: type[_Content]) -> _Content:
    """Returns the content of a file.

    Raises:
        UserError: The file cannot be read, is not valid TOML, or has an invalid value. The message gives the value's
            entry (such as `programs[1].max`; the first has the number 0) and the reason.
    """
    content = read(path)
    try:
        return msgspec.convert(content, content_type)
    except RecursionError:
        raise UserError(f"{path} is not usable TOML: it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {_AT_PATH.sub(_entry_first, str(error))}") from None


class TomlFile(Generic[_Content]):
    """A file that may change while it is in use, with its last valid content.

    Attributes:
        path: The absolute path of the file.
        current: The last valid content.
    """

    def __init__(self, path: Path, content_type: type[_Content]) -> None:
        """Reads the file.

        Raises:
            UserError: The file is missing or invalid.
        """
        self.path = path.absolute()
        self._content_type = content_type
        self._version = self._find_version()
        self.current = load(self.path, content_type)

    def has_changed(self) -> bool:
        """Returns whether the file differs from the last look; a file that is now missing has changed, too."""
        version = self._find_version()
        if version == self._version:
            return False
        self._version = version
        return True

    def reload(self) -> None:
        """Reads the file again.

        Raises:
            UserError: The file is missing or invalid; `current` stays as it is.
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
