"""Checks a file of expected routing decisions, for continuous integration."""

import json
from dataclasses import dataclass
from pathlib import Path

from streaming.cli.routing.explained_routes import Origin, Result, read_json, results
from streaming.errors import UserError
from streaming.system import hints, wall_clock
from streaming.system.logs import printable
from streaming.wire.service_definitions import Case, DefinitionsFile, check_decoder, definitions_decoder


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        lines: The report for people.
        failures: The number of cases whose decision differs from the expected decision.
    """

    lines: list[str]
    failures: int


def read(path: Path) -> tuple[list[Case], DefinitionsFile | None]:
    """Reads the cases of a file, and its definitions if it has some; raises UserError."""
    try:
        file = read_json(path, check_decoder)
    except UserError:
        if _has_definitions(path):
            place = ("--database", "DATABASE", "--definitions", str(path))
            explain = hints.plain("route", "explain", "SERVICE", *place)
            raise UserError(
                f"{path} is a file of definitions and has no cases to check. `{explain}` explains one message with "
                "it. For `route check`, write a file with `cases`, and put these definitions "
                "into its `definitions`."
            ) from None
        raise
    if not file.cases:
        raise UserError(f"{path} has no cases, so it checks nothing.")
    for case in file.cases:
        if not case.expect:
            raise UserError(f"{path}: the case {case.name!r} expects nothing: give it `expect`, such as a `queue`.")
    return file.cases, file.definitions


def _has_definitions(path: Path) -> bool:
    """Returns whether a file is one that `--definitions` takes."""
    try:
        read_json(path, definitions_decoder)
    except UserError:
        return False
    return True


def check(source: Origin, cases: list[Case]) -> Report:
    """Compares the decision about each case with the expected decision; raises UserError for an unknown field."""
    lines = []
    failures = 0
    reached: set[tuple[str, str]] = set()
    for result in results(source, cases):
        reached.update((route.database, route.name) for route in result.explanation.used)
        differences = _differences(result)
        failures += bool(differences)
        lines.append(f"{'FAILED' if differences else 'ok'}  {result.case.name}")
        lines += [f"        {difference}" for difference in differences]
        if differences:
            lines += [f"        {line.strip()}" for line in result.as_text().splitlines()[1:]]
    definitions = source.load()
    definitions.advance(wall_clock.now_ms())
    routes = [(name, route) for name, table in definitions.tables.items() for route in sorted(table.live)]
    unreached = [f"{route} of database {database}" for database, route in routes if (database, route) not in reached]
    if unreached:
        lines.append(f"no case reaches: {', '.join(unreached)}")
    lines.append(f"{len(cases) - failures} of {len(cases)} cases as expected")
    return Report([printable(line) for line in lines], failures)


def _differences(result: Result) -> list[str]:
    values = result.values()
    expected = result.case.expect or {}
    unknown = expected.keys() - values.keys()
    if unknown:
        raise UserError(
            f"Case {result.case.name!r}: `expect` has the unknown field {min(unknown)!r}. Known fields are "
            f"{', '.join(values)}."
        )
    return [
        f"{name}: expected {json.dumps(value)}, found {json.dumps(values[name])}"
        for name, value in expected.items()
        if values[name] != value
    ]
