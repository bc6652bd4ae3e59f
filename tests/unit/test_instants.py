"""Instants and ages for people have one format everywhere: `14:03:12`, with the date if it is not today's."""

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

import streaming
from streaming.cli import dead_letters, maintenance
from streaming.core.times import iso_time
from streaming.system import ages
from streaming.system.ages import age, as_of, instant
from tests.support.viewed import TIME
from tests.unit.test_narrow_screens import VIEWS, lines_of, program
from tests.unit.test_tables import ACTIVATION, Follower, activation, watched

NOW_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z
ROOT = Path(streaming.__file__).parent
ISO = re.compile(r"\d\d\d\d-\d\d-\d\dT")
FRACTION = re.compile(r"\d\d:\d\d:\d\d\.")
WITHOUT_DATE = re.compile(r"(?<!\d\d\d\d-\d\d-\d\d )\b\d\d:\d\d:\d\d")
WITHOUT_TIME = re.compile(r"\d\d\d\d-\d\d-\d\d(?! \d\d:\d\d:\d\d)")


def test_an_instant_of_today_has_no_date_and_another_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "today", lambda: "2026-09-21")
    assert instant(iso_time(NOW_MS)) == "14:13:20"
    assert instant(iso_time(NOW_MS - 86_400_000)) == "2026-09-20 14:13:20"
    assert instant(None) == "-"
    assert instant("") == "-"
    assert as_of(NOW_MS - 2_000, NOW_MS) == "as of 14:13:18 UTC (2 s ago)"


@pytest.mark.parametrize(
    ("ms", "said"), [(-1, "0 s"), (119_999, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (200_000_000, "2 d")]
)
def test_an_age_is_in_whole_units(ms: int, said: str) -> None:
    assert age(NOW_MS - ms, NOW_MS) == said


@pytest.mark.parametrize("name", VIEWS)
def test_each_view_has_this_format(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view, _ = VIEWS[name]
    for line in lines_of(view, 200, monkeypatch, capsys):
        for wrong in (ISO, FRACTION, WITHOUT_DATE, WITHOUT_TIME):
            assert not wrong.search(line), line


def test_a_dead_letter_a_run_and_a_line_of_watch_have_it_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Console(width=200).print(dead_letters._line({"time": TIME, "reason": "odd", **dict.fromkeys(LETTER)}))
    row = program()
    maintenance._print_run(row, row.tasks[0], has_failed=False, as_json=False)
    lines = [
        *capsys.readouterr().out.splitlines()[::2][:2],
        *watched(monkeypatch, Follower([activation(5)], []), day="2026-01-03"),
    ]
    for line, time in zip(lines, (TIME, TIME, ACTIVATION.post_time), strict=True):
        assert line.startswith(time[:10] + " " + time[11:19] + "  ")


LETTER = ("topic", "partition", "offset", "key", "value")


def test_watch_says_another_day_once_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    later = [
        msgspec.structs.replace(activation(second), post_time=f"2026-01-03T03:04:0{second}.000Z") for second in (6, 7)
    ]
    lines = watched(monkeypatch, Follower([activation(1), activation(2)], later), width=80, day="2026-01-03")
    assert [line[:10] for line in lines] == [
        *("2026-01-02", "03:04:01 o", "03:04:02 o"),
        *("2026-01-03", "03:04:06 o", "03:04:07 o"),
    ]
    assert watched(monkeypatch, Follower([], later), width=80, day="2026-01-03")[0].startswith("03:04:06 o")


def test_no_program_makes_an_instant_for_people_otherwise() -> None:
    """A part of an ISO time is taken in one place."""
    parts = {(11, 19), (11, 23), (None, 19), (None, 10)}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).as_posix() not in {"core/times.py", "system/ages.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Slice) and (_constant(node.lower), _constant(node.upper)) in parts
    ]
    assert not found


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None
