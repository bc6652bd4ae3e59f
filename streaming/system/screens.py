"""The parts of views for people: sentences, fields and tables of records. No part breaks an identifier.

All tables of the command line are made here. A table that is too wide for the screen takes another form.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from streaming.system.logs import printable
from streaming.system.wrapped_text import spans, widest_piece

# The width of a file or a pipe, in columns. No screen is so wide. In a file, a record is one line, whatever its width.
FILE_WIDTH = 200
# A sentence in a table keeps this width, because a narrower sentence is hard to read.
_READABLE = 24
# The values without information.
_NOTHING = ("", "-")
# Before the lines of a value that begins below its name.
_INDENT = "    "


def cell(text: str, style: str = "") -> Text:
    """Returns a cell with a text from a record; in a plain string, rich would take brackets for markup."""
    return Text(printable(text), style)


class Sentence:
    """A text that is wrapped at words. It may have several lines and styles."""

    def __init__(self, text: str | Text, style: str = "", hang: int = 0) -> None:
        """Stores the text. In a string, characters that a terminal would obey are escaped.

        Args:
            text: The text.
            style: The style of a string.
            hang: The number of additional spaces where the text's first line goes on.
        """
        self._text = cell(text, style) if isinstance(text, str) else text
        self._hang = hang

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yields the lines."""
        yield from _wrapped(self._text, options.max_width, self._hang)


class Fields:
    """Names with their values beside them. The values are sentences, and are wrapped.

    A value with an identifier that has no room beside the names begins on a new line.
    """

    def __init__(self, fields: Iterable[tuple[str, Text]]) -> None:
        """Stores the fields."""
        self._fields = [*fields]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yields the lines."""
        width = max((cell_len(name) for name, _ in self._fields), default=0) + 2
        for name, value in self._fields:
            beside = options.max_width - width
            if widest_piece(value.plain) > beside:
                yield _line((name, "dim"))
                yield from (_line(_INDENT, line) for line in _wrapped(value, options.max_width - len(_INDENT)))
                continue
            for number, line in enumerate(_wrapped(value, beside)):
                yield _line((name.ljust(width) if number == 0 else " " * width, "dim"), line)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: The heading; it may have two lines.
        is_number: Whether its values are numbers, which are aligned at the right.
        is_text: Whether its values may be wrapped: sentences and instants, but no identifiers.
        is_below: Whether its values are sentences that are below their row on a screen. Short sentences are there too,
            so that the form of the table does not depend on the values.
    """

    name: str
    is_number: bool = False
    is_text: bool = False
    is_below: bool = False


class RecordTable:
    """Records as a table, or in another form on a narrow screen.

    On a narrow screen, the table first wraps headings and sentences. If that is not enough, the table with fewer
    columns replaces this table, if there is one. Otherwise, each group of records becomes a separate table. Next,
    columns with the same value in all rows are printed once above the table, and empty columns are left out. In the
    last form, each record is a block of lines.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Text]],
        *,
        gap: int = 1,
        grouped_by: int = 0,
        narrower: "RecordTable | None" = None,
    ) -> None:
        """Stores the records.

        Args:
            columns: The columns. The first column says what the record is about.
            rows: The values of each record.
            gap: The spaces between two columns, where there is room for more than one space.
            grouped_by: The number of columns at the left that have the same values in neighbouring rows.
            narrower: The same records in fewer columns.
        """
        self._columns = columns
        self._rows = rows
        self._gap = gap
        self._grouped_by = grouped_by
        self._narrower = narrower

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yields the table, or its form for a narrow screen."""
        width = options.max_width
        below = [index for index, column in enumerate(self._columns) if column.is_below and width < FILE_WIDTH]
        if below and (fitting := self._without(below)._fitting(width)) is not None:
            yield from self._with_sentences_below(below, *fitting, width)
        elif (table := self._table(width)) is not None:
            yield table
        elif width >= FILE_WIDTH:
            yield self._of_widths(self._widest(), self._gap)
        elif self._narrower is not None:
            yield self._narrower
        elif self._grouped_by:
            yield from self._groups()
        else:
            yield from self._without_sames(width)

    def _table(self, width: int) -> Table | None:
        """Returns a table of at most this width; None if the table cannot be so narrow."""
        fitting = self._fitting(width)
        return None if fitting is None else self._of_widths(*fitting)

    def _fitting(self, width: int) -> tuple[list[int], int] | None:
        """Returns the widths of the columns of a table of at most this width, and the gap; None if it is too narrow."""
        for gap in sorted({self._gap, 1}, reverse=True):
            if (widths := self._widths(width, gap)) is not None:
                return widths, gap
        return None

    def _with_sentences_below(
        self, below: Collection[int], widths: list[int], gap: int, width: int
    ) -> Iterator[RenderableType]:
        """Yields each row without the columns in `below`, and the sentences of these columns below the row."""
        for number, row in enumerate(self._rows):
            record = RecordTable(self._columns, [row])
            yield record._without(below)._of_widths(widths, gap, has_heading=number == 0)
            for index in below:
                if row[index].plain not in _NOTHING:
                    yield from (_line("  ", line) for line in _wrapped(row[index], width - 2))

    def _widths(self, width: int, gap: int) -> list[int] | None:
        """Returns a width for each column of a table of at most this width; None if the width is too small."""
        most, least = self._widest(), self._narrowest()
        excess = sum(most) + gap * (len(most) - 1) - width
        # What costs least comes first: headings alone, then long texts.
        for index in sorted(range(len(most)), key=lambda each: (self._columns[each].is_text, -most[each])):
            given = min(max(0, excess), most[index] - least[index])
            most[index] -= given
            excess -= given
        return most if excess <= 0 else None

    def _widest(self) -> list[int]:
        """Returns, for each column, the width at which nothing is wrapped."""
        return [max(map(_width, (column.name, *values))) for column, values in self._filled()]

    def _narrowest(self) -> list[int]:
        """Returns, for each column, the least width at which nothing is broken and sentences can be read."""
        found = []
        for column, values in self._filled():
            least = max(map(_width, values), default=0)
            if column.is_text:
                least = max(min(_READABLE, least // 2), *map(widest_piece, values))
            found.append(max(widest_piece(column.name), least))
        return found

    def _of_widths(self, widths: list[int], gap: int, *, has_heading: bool = True) -> Table:
        width = sum(widths) + gap * (len(widths) - 1)
        table = Table(
            box=None, header_style="bold", pad_edge=False, padding=(0, gap, 0, 0), width=width, show_header=has_heading
        )
        for column, width in zip(self._columns, widths, strict=True):
            heading = _joined(_wrapped(Text(column.name), width))
            table.add_column(heading, justify="right" if column.is_number else "left", no_wrap=True, min_width=width)
        for row in self._rows:
            table.add_row(*(_joined(_wrapped(value, width)) for value, width in zip(row, widths, strict=True)))
        return table

    def _groups(self) -> Iterator[RenderableType]:
        """Yields a heading and a table for each group."""
        left = self._grouped_by

        def group_of(row: Sequence[Text]) -> list[str]:
            return [value.plain for value in row[:left]]

        for number, (_, rows) in enumerate(groupby(self._rows, group_of)):
            group = [*rows]
            if number:
                yield Text()
            heads = zip(self._columns[:left], group[0][:left], strict=True)
            yield from (_field(column, value, "bold") for column, value in heads)
            yield RecordTable(self._columns[left:], [row[left:] for row in group], gap=self._gap)

    def _without_sames(self, width: int) -> Iterator[RenderableType]:
        """Yields the table without columns that have one value in all rows. Before the table, it yields these values.

        Leaves out no more columns than necessary. If the table is still too wide, each record becomes a block.
        """
        left_out: list[int] = []
        for index in self._sames():
            left_out.append(index)
            rest = self._without(left_out)
            if (table := rest._table(width)) is not None:
                yield from self._said(left_out)
                yield table
                return
        yield from self._said(left_out)
        if left_out:
            yield Text()
        yield from self._without(left_out)._blocks(width)

    def _sames(self) -> list[int]:
        """Returns the columns that have one value in all rows: first the empty columns, then the widest columns."""
        if len(self._rows) < 2:
            return []
        values = [each for _, each in self._filled()]
        sames = [index for index, each in enumerate(values) if index and all(value == each[0] for value in each)]
        return sorted(sames, key=lambda index: (values[index][0] not in _NOTHING, -_width(values[index][0])))

    def _without(self, left_out: Collection[int]) -> "RecordTable":
        kept = [index for index in range(len(self._columns)) if index not in left_out]
        rows = [[row[index] for index in kept] for row in self._rows]
        return RecordTable([self._columns[index] for index in kept], rows, gap=self._gap)

    def _said(self, left_out: Collection[int]) -> Iterator[Text]:
        for index in sorted(left_out):
            if (value := self._rows[0][index]).plain not in _NOTHING:
                yield _line((f"in all rows: {_one_line(self._columns[index].name)} ", "dim"), value)

    def _blocks(self, width: int) -> Iterator[RenderableType]:
        """Yields each record as lines of names and values, without empty values."""
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            first, *others = zip(self._columns, row, strict=True)
            yield _field(*first, "bold")
            for column, value in others:
                if value.plain not in _NOTHING:
                    yield from _in_block(column, value, width)

    def _filled(self) -> list[tuple[Column, list[str]]]:
        """Returns each column with its values."""
        return [(column, [row[index].plain for row in self._rows]) for index, column in enumerate(self._columns)]


def _in_block(column: Column, value: Text, width: int) -> Iterator[Text]:
    """Yields the lines of a field of a block. A value that does not fit beside its name begins on a new line."""
    name = f"  {_one_line(column.name)}: "
    if "\n" not in value.plain and cell_len(name + value.plain) <= width:
        yield _line((name, "dim"), value)
        return
    yield Text(name.rstrip(), "dim")
    lines = _wrapped(value, width - len(_INDENT)) if column.is_text else [value]
    yield from (_line(_INDENT, line) for line in lines)


def _field(column: Column, value: Text, style: str = "") -> Text:
    return _line((f"{_one_line(column.name)}: ", "dim"), (value.plain, style))


def _one_line(name: str) -> str:
    return name.replace("\n", " ")


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _line(*parts: str | Text | tuple[str, str]) -> Text:
    """Returns a line that rich neither wraps nor cuts."""
    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


def _wrapped(text: Text, width: int, hang: int = 0) -> list[Text]:
    """Returns a text as lines of at most this width, if no piece is wider. Each line has the text's indentation."""
    return [
        _line("" if start == 0 else indent + " " * more, line[start:stop], tail)
        for number, line in enumerate(text.split("\n", allow_blank=True))
        for more in [0 if number else hang]
        for indent in [line.plain[: len(line.plain) - len(line.plain.lstrip())]]
        for start, stop, tail in spans(line.plain, width, more)
    ]


def _joined(lines: list[Text]) -> Text:
    return Text("\n").join(lines)
