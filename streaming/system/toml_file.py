"""Reads a TOML file into a typed object; what is wrong with it is told with its line.

`tomllib` knows the line of a syntax error only, and `msgspec` the path of a wrong value only (`$.programs[1].max`), so
the line of a path is looked up in the text. For that lists of tables are written as `[[programs]]`. A check of a type's
own (`__post_init__`) has its message begin with the key in back quotes, and gets the key's line too.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from streaming.errors import UserError

_Content = TypeVar("_Content", bound=msgspec.Struct)
# Keys, and the numbers of tables in a list: ("programs", 1, "max").
_Place = tuple[str | int, ...]

# What msgspec appends to its messages, and the steps in it. A key of a table with free keys is `[...]`: not told.
_AT_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
_NAMED_KEY = re.compile(r"^(?:Object contains unknown field )?`(?P<key>[^`]+)`")

_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_LINE = re.compile(rf"\s*(?:(?P<brackets>\[\[?)\s*(?P<header>{_KEYS})\s*\]|(?P<keys>{_KEYS})\s*=)")
_LONG_STRING = re.compile(r'"""|' + r"'''")


def load(path: Path, content_type: type[_Content]) -> _Content:
    """The file's content.

    Raises:
        UserError: It cannot be read, is no TOML, or has a wrong value; the message names the line and the reason.
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
        reason = _AT_PATH.sub("", str(error))
        line = _line_of(text, _place_of(str(error), reason))
        at = f", line {line}" if line is not None else ""
        raise UserError(f"{path}{at}: {reason}") from None
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


def _place_of(message: str, reason: str) -> _Place:
    """What a message is about."""
    path = _AT_PATH.search(message)
    steps = _STEP.finditer(path["path"] if path is not None else "")
    place: _Place = tuple(int(step["index"]) if step["index"] is not None else step["key"] for step in steps)
    named = _NAMED_KEY.search(reason)
    return (*place, named["key"]) if named is not None else place


def _line_of(text: str, place: _Place) -> int | None:
    """The line of a place, or of the closest thing around it that has a line; None if nothing around it has one."""
    lines = dict(_places(text))
    around = (place[:length] for length in range(len(place), 0, -1))
    return next((lines[found] for found in around if found in lines), None)


def _places(text: str) -> Iterator[tuple[_Place, int]]:
    """What begins in which line: tables, tables of a list, keys."""
    counts: dict[_Place, int] = {}

    def resolve(keys: list[str]) -> _Place:
        """A header's keys with the number of the table where a key is a list of them: the latest one is meant."""
        place: _Place = ()
        for key in keys:
            place += (key,)
            if place in counts:
                place += (counts[place],)
        return place

    table: _Place = ()
    is_in_string = False
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.match(line) if not is_in_string else None
        is_in_string ^= len(_LONG_STRING.findall(line)) % 2 == 1
        if found is None:
            continue
        keys = [key.strip("\"'") for key in re.findall(_KEY, found["header"] or found["keys"])]
        if found["keys"]:
            yield table + tuple(keys), number
            continue
        if found["brackets"] == "[[":
            place = (*resolve(keys[:-1]), keys[-1])
            counts[place] = counts.get(place, -1) + 1
        table = resolve(keys)
        yield table, number
