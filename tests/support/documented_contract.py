"""Reads the tables of docs/contract.md, and describes the code in the words of their cells."""

import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args

from msgspec import inspect

from streaming.system.durations import parse_or_none
from tests.support.command_lines import ROOT

DOCUMENT = (ROOT / "docs" / "contract.md").read_text()
# The end of a cell about a field that ALTER_QUEUE may leave out. In the code the field's default is UNSET.
UNCHANGED = "; ALTER_QUEUE: unchanged"
_INTEGERS = {(-(2**63), 2**63 - 1): "64 bits", (-(2**31), 2**31 - 1): "32 bits"}
_PLAIN_TYPES = {
    inspect.BoolType: "boolean",
    inspect.DictType: "object",
    inspect.NoneType: "null",
    inspect.RawType: "JSON",
    inspect.StructType: "object",
}

Row = dict[str, str]


@cache
def found_in_sources(pattern: str) -> frozenset[str]:
    """Returns what the group of a pattern matches anywhere in the modules of `streaming`."""
    return frozenset(re.findall(pattern, "".join(path.read_text() for path in (ROOT / "streaming").rglob("*.py"))))


def section(document: str, heading: str) -> str:
    """Returns the text below a heading, up to the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", document, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading {heading!r}"
    return found[1]


def rows_of(document: str, heading: str, first: str) -> list[Row]:
    """Returns the rows of a section's tables whose first column is named `first`: name of the column -> cell."""
    rows: list[Row] = []
    columns: list[str] = []
    for line in section(document, heading).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not columns or not cells:
            columns = cells
        elif columns[0] == first and set(line) != {"|", "-"}:
            rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def names_in(cell: str) -> list[str]:
    """Returns the texts between backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def unique(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Returns a dictionary of the pairs; fails if a key comes twice."""
    found: dict[Any, Any] = {}
    for key, value in pairs:
        assert key not in found, f"{key} comes twice"
        found[key] = value
    return found


def cells_of(row: Row) -> tuple[str, str]:
    """Returns the type of a field and the consequence of its absence, as `fields_of` does."""
    absent = row.get("if absent", "required")
    return row["type and bounds"], UNCHANGED if absent.endswith(UNCHANGED) else absent.partition(";")[0]


def fields_of(struct: type) -> dict[str, tuple[str, str]]:
    """Returns each field of a record with its type and the consequence of its absence, in the document's words."""
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    found = {}
    for field in described.fields:
        default = UNCHANGED if field.default is inspect.NODEFAULT else f"`{json.dumps(field.default)}`"
        found[field.encode_name] = type_in_words(field.type), "required" if field.required else default
    return found


def tag_of(struct: type) -> str | None:
    """Returns the `type` of a record; None if it has none."""
    described = inspect.type_info(struct)
    return str(described.tag) if isinstance(described, inspect.StructType) and described.tag is not None else None


def type_in_words(kind: inspect.Type) -> str:
    """Returns a type with its bounds."""
    text = _PLAIN_TYPES.get(type(kind), "")
    match kind:
        case inspect.UnionType(types=types):
            null_last = sorted(types, key=lambda one: isinstance(one, inspect.NoneType))
            text = ", or ".join(dict.fromkeys(map(type_in_words, null_last)))
        case inspect.LiteralType(values=values):
            text = _one_of(values)
        case inspect.EnumType(cls=members):
            text = _one_of(sorted(one.value for one in members))
        case inspect.IntType(ge=least, le=most, lt=beyond):
            most = beyond - 1 if beyond is not None else most
            bounds = "" if least is None or most is None else _INTEGERS.get((least, most), f"{least:,} to {most:,}")
            text = f"integer, {bounds}" if bounds else "integer"
        case inspect.StrType(min_length=least, max_length=most):
            bounds = "at most" if least is None else f"{least} to"
            text = "string" if most is None else f"string, {bounds} {most:,} characters"
        case inspect.ListType(item_type=item):
            word, comma, bounds = type_in_words(item).partition(", ")
            plural = "s" if word.isalpha() else ""
            text = f"list of {word}{plural}{' of ' * bool(plural and comma) or comma}{bounds}"
        case inspect.TupleType(item_types=items):
            text = f"[{', '.join(map(type_in_words, items))}]"
    assert text, kind
    return text


def _one_of(values: Iterable[object]) -> str:
    *others, last = (f"`{value}`" for value in values)
    return f"{', '.join(others)} or {last}" if others else last


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the words and the object of each command of a group, without groups that only contain commands."""
    if path and (not hasattr(command, "commands") or command.invoke_without_command):
        yield path, command
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from commands(subcommand, f"{path} {name}".strip())


def is_argument(parameter: Any) -> bool:
    """Returns whether a parameter of a command is an argument rather than an option."""
    return not parameter.opts[0].startswith("-")


def in_usage(argument: Any) -> str:
    """Returns an argument as the document has it: `QUEUE`, `[TEXT]` if it may be left out, `FILE...` if repeatable."""
    name = argument.metavar or argument.name.upper()
    if argument.nargs != 1:
        return f"{name}..."
    return name if argument.required else f"[{name}]"


def values_in_words(option: Any) -> str:
    """Returns a description of the values that an option accepts."""
    told, kind = option.type_descriptor.parameter_info, option.type_descriptor.annotation
    if option.is_flag:
        text = "flag"
    elif told.parser is not None:
        text = "duration or `none`" if told.parser is parse_or_none else "duration"
    elif option.multiple:
        [kind] = get_args(kind)
        text = f"{_choices(kind) if issubclass(kind, Enum) else 'text'}, repeatable"
    elif issubclass(kind, Enum):
        text = _choices(kind)
    elif kind is Path:
        text = "path" if told.dir_okay and told.file_okay else "file" if told.file_okay else "folder"
    elif option.min is not None:
        text = f"from {option.min:g}" if option.max is None else f"{option.min:,} to {option.max:,}"
    else:
        text = {int: "integer", str: "text"}[kind]
    return text


def _choices(kind: type[Enum]) -> str:
    return ", ".join(f"`{one.value}`" for one in kind)


def default_in_words(option: Any) -> str:
    """Returns an option's default."""
    default = option.default.value if isinstance(option.default, Enum) else option.default
    if option.required:
        return "required"
    if option.is_flag:
        return "on" if default else "off"
    if default is None or default == "":
        return "none" if default is None else "empty"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """Yields the paths of the keys of a JSON value: `a.b` in objects, `a[].b` in lists."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from keys_of(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from keys_of(value[0] if value else None, f"{path}[]")
    else:
        yield path
