"""Checks docs/decisions.md against the code: the numbers of the decisions, and the default values."""

import re
from dataclasses import fields
from typing import Any, get_args

import pytest

from producers import session_reports
from streaming.core.activation import definition, held_notifications, program_starts, settings, task_handlers
from streaming.core.activation.settings import CoreSettings
from streaming.daemons.query import sole_program
from streaming.spark import shard_worker
from streaming.system import stop_signals
from streaming.system.durations import Duration
from streaming.wire import input_records
from tests.support.command_lines import ROOT, parse

DOCUMENT = (ROOT / "docs" / "decisions.md").read_text()
# Each name in the table of default values is in one of these.
MODULES = (
    settings,
    definition,
    task_handlers,
    held_notifications,
    program_starts,
    session_reports,
    sole_program,
    shard_worker,
    stop_signals,
    input_records,
)
# The monitor computes it from --max-queues and the number of shards.
DERIVED = {"max_queues_per_shard"}

_NUMBER = re.compile(r"\bD[1-9][0-9]*\b")
_DURATION = re.compile(r"\b([0-9]+(?:\.[0-9]+)?) (ms|s|min|minutes?|h|hours?|days?)\b")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TABLE = "## Default values"


def decisions(document: str) -> list[str]:
    """Returns the decisions' numbers in the headings, in their order."""
    return re.findall(r"^### (D[0-9]+):", document, re.MULTILINE)


def numbers_in(*folders: str) -> set[str]:
    """Returns the decisions' numbers that the Python files of these folders mention."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {number for path in files for number in _NUMBER.findall(path.read_text())}


def default_rows(document: str) -> list[list[str]]:
    """Returns the cells of each row in the table of default values: value, default, option, name in the code."""
    lines = [line for line in document.partition(_TABLE)[2].splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[1:]]


def duration_ms(number: str, unit: str) -> float:
    return float(number) * _UNITS_MS.get(unit, _UNITS_MS[unit[0]])


def as_written(text: str) -> Any:
    """Returns the value of a cell; durations in milliseconds."""
    if duration := _DURATION.fullmatch(text):
        return duration_ms(*duration.groups())
    if re.fullmatch(r"[0-9,]+", text):
        return int(text.replace(",", ""))
    return {"on": True, "off": False}.get(text, text)


def in_code(name: str) -> Any:
    """Returns the value of a constant, a setting's default, or the length of a text; durations in milliseconds."""
    name, _, attribute = name.partition(".")
    found = next(getattr(module, name) for module in MODULES if hasattr(module, name))
    if attribute:
        return getattr(found(), attribute)
    if get_args(found):
        return get_args(found)[1].max_length
    return found * 1_000 if name.endswith("_S") else found


def of_option(option: str) -> Any:
    """Returns the default of an option of `monitor`; durations in milliseconds."""
    value = parse(["monitor"])[option.removeprefix("--").replace("-", "_")]
    return value.ms if isinstance(value, Duration) else value


def wrong_defaults(document: str) -> list[str]:
    """Returns the values in the table that the code contradicts."""
    return [
        value
        for value, default, option, name in default_rows(document)
        if as_written(default) != in_code(name) or (option and as_written(default) != of_option(option))
    ]


def unknown_durations(document: str) -> list[str]:
    """Returns the durations in the text before the table that the table does not have."""
    known = {as_written(default) for _, default, *_ in default_rows(document)}
    text = " ".join(document.partition(_TABLE)[0].split())
    return [found[0] for found in _DURATION.finditer(text) if duration_ms(*found.groups()) not in known]


def test_the_decisions_are_numbered_one_by_one() -> None:
    assert decisions(DOCUMENT) == [f"D{number}" for number in range(1, 13)]


def test_each_number_in_the_code_is_a_decision() -> None:
    assert numbers_in("streaming", "producers") <= set(decisions(DOCUMENT))


def test_each_decision_is_named_by_code_or_tests() -> None:
    assert set(decisions(DOCUMENT)) <= numbers_in("streaming", "producers", "tests")


@pytest.mark.parametrize("number", decisions(DOCUMENT))
def test_a_decision_has_a_question_a_reason_and_a_source(number: str) -> None:
    text = DOCUMENT.partition(f"\n### {number}:")[2].partition("\n#")[0]

    assert re.findall(r"^- \*(\w+):\*", text, re.MULTILINE) == ["Question", "Decision", "Reason", "Source"]


def test_a_statement_that_raises_an_error_has_no_record() -> None:
    """D7: a reader has no `result` with which it could report such a statement."""
    record = b'{"type": "RECEIVE", "queue": "q", "session_id": "s", "result": "ERROR"}'

    with pytest.raises(input_records.InvalidRecordError, match="result"):
        input_records.decode(input_records.receives_decoder, b"q", record, len(record))


def test_default_values_are_those_of_the_code() -> None:
    assert wrong_defaults(DOCUMENT) == []


def test_all_settings_are_in_the_table() -> None:
    named = {name.partition(".")[2] for *_, name in default_rows(DOCUMENT) if name.startswith("CoreSettings.")}

    assert named == {field.name for field in fields(CoreSettings)} - DERIVED


def test_durations_are_those_of_the_table() -> None:
    assert unknown_durations(DOCUMENT) == []


def test_the_tests_would_notice() -> None:
    assert wrong_defaults(DOCUMENT.replace("W | 5 s |", "W | 6 s |")) == ["quiet window, W"]
    assert wrong_defaults(DOCUMENT.replace("| 1,000 |", "| 1,001 |")) == ["marks of a queue"]
    assert unknown_durations(DOCUMENT.replace("T is 30 s", "T is 31 s")) == ["31 s"]
