"""Reads a TOML file into a typed object. Error messages name the entry with the invalid value."""

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import msgspec.inspect

from streaming.errors import UserError

_Content = TypeVar("_Content", bound=msgspec.Struct)

# msgspec's messages end with the path of the invalid value.
_AT_PATH = re.compile(r"^(?P<reason>.*) - at `\$\.?(?P<entry>[^`]*)`$", re.DOTALL)
_IN_LIST = re.compile(r"(?P<list>\w+)\[(?P<number>\d+)\]\.?(?P<rest>.*)", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_INVALID_ENUM = "Invalid enum value "
_ONE_TABLE = "Expected `array`, got `object`"
# A key that only one of the config files has -> the purpose of that file.
_FILES = {
    "programs": "the activator's file, for `activator`, `observe` and `run`. `host` needs one with [[procedures]]",
    "procedures": "the host's file, for `host`. `activator`, `observe` and `run` need one with [[programs]]",
}
# The keys that name an entry of a list.
_NAMES = ("queue", "group", "name", "address")


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
            entry (such as `[[programs]] number 2, queue 'orders', max`) and the reason.
    """
    content = read(path)
    try:
        return msgspec.convert(content, content_type)
    except RecursionError:
        raise UserError(f"{path} is not usable TOML: it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {_entry_first(content, content_type, str(error))}") from None


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
        """Returns whether the file has changed since the last call. A file that is now missing has changed, too."""
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


def _entry_first(content: dict[str, Any], content_type: type, message: str) -> str:
    """Returns msgspec's message with the entry first, and with the key that the user probably meant."""
    found, kind = _AT_PATH.match(message), msgspec.inspect.type_info(content_type)
    reason, place = (message, "") if found is None else (found["reason"], f"{_place(content, found['entry'])}: ")
    if found is not None and reason == _ONE_TABLE and found["entry"] in _lists_of_tables(kind):
        return f"{place}{reason}. Did you mean [[{found['entry']}]], with two brackets?"
    if found is not None and reason.startswith(_INVALID_ENUM):
        *others, last = sorted(repr(value) for value in _choices(kind, re.sub(r"\[[^]]*\]", ".[]", found["entry"])))
        return f"{place}{reason}. It can be {', '.join(others)}{' or ' if others else ''}{last}"
    unknown = _UNKNOWN.search(reason)
    if unknown and found is None and unknown[1] in _FILES:
        return f"This is {_FILES[unknown[1]]}."
    near = get_close_matches(unknown[1], sorted(_keys(kind)), 1) if unknown else []
    return f"{place}{reason}" + (f". Did you mean `{near[0]}`?" if near else "")


def _place(content: dict[str, Any], entry: str) -> str:
    """Returns the place of an entry in words, such as `[[programs]] number 2, queue 'orders', max`."""
    found = _IN_LIST.fullmatch(entry)
    if found is None or not isinstance(content.get(found["list"]), list):
        return entry
    number = int(found["number"])
    values = content[found["list"]][number]
    named = isinstance(values, dict) and next((name for name in _NAMES if isinstance(values.get(name), str)), None)
    name = f", {named} {values[named]!r}" if named else ""
    rest = f", {found['rest']}" if found["rest"] else ""
    return f"[[{found['list']}]] number {number + 1}{name}{rest}"


def _choices(kind: msgspec.inspect.Type, entry: str) -> list[Any]:
    """Returns the valid values of an entry.

    Args:
        kind: The type that contains the entry.
        entry: The path of the entry in this type, with `[]` for an element of a list or of a table of any keys.
    """
    if isinstance(kind, msgspec.inspect.UnionType):
        return [value for each in kind.types for value in _choices(each, entry)]
    if isinstance(kind, msgspec.inspect.EnumType):
        return [each.value for each in kind.cls]
    if isinstance(kind, msgspec.inspect.LiteralType):
        return [*kind.values]
    key, _, rest = entry.partition(".")
    if isinstance(kind, msgspec.inspect.StructType):
        return [value for field in kind.fields if field.encode_name == key for value in _choices(field.type, rest)]
    if isinstance(kind, msgspec.inspect.CollectionType):
        return _choices(kind.item_type, rest)
    return _choices(kind.value_type, rest) if isinstance(kind, msgspec.inspect.DictType) else []


def _lists_of_tables(kind: msgspec.inspect.Type) -> set[str]:
    """Returns the keys of a table whose values are lists of tables."""
    fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
    return {
        field.encode_name
        for field in fields
        if isinstance(field.type, msgspec.inspect.ListType)
        and isinstance(field.type.item_type, msgspec.inspect.StructType)
    }


def _keys(kind: msgspec.inspect.Type) -> set[str]:
    """Returns the keys of a table and of the tables in it."""
    if isinstance(kind, msgspec.inspect.StructType):
        inner = [_keys(field.type) for field in kind.fields]
        return {field.encode_name for field in kind.fields}.union(*inner)
    return _keys(kind.item_type) if isinstance(kind, msgspec.inspect.ListType) else set()
