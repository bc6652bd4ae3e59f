"""The timeline of a queue, made from its records alone, and its picture."""

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from streaming.cli.dashboard.activations import Activated
from streaming.cli.dashboard.pictures import SPARK_MS, picture, sparkline
from streaming.cli.dashboard.queue_history import QueueHistory
from streaming.cli.dashboard.server import Dashboard, Entry, News, Page, Part
from streaming.cli.dashboard.timeline import Reader, Span, Timeline, timeline
from streaming.core.activation import events
from streaming.core.activation.events import ReceiveResult
from streaming.core.times import iso_ms, iso_time

FROM_MS = 1_760_000_000_000
UNTIL_MS = FROM_MS + 60_000
HOSTILE = "<script>alert(1)</script>"
GARBAGE = "9999-99-99T99:99:99Z"


def of(
    *dated: tuple[int, events.Event], rows: tuple[dict[str, Any], ...] = (), before: dict[str, Any] | None = None
) -> Timeline:
    """Returns the timeline of events and rows, whose times are in ms after its beginning."""
    history = QueueHistory([(FROM_MS + at_ms, event) for at_ms, event in dated], [], [(FROM_MS, row) for row in rows])
    history.before = before
    return timeline(history, FROM_MS, UNTIL_MS)


def receive(
    result: ReceiveResult, messages: int = 0, transaction_id: str | None = None, *, where: bool = False
) -> events.Receive:
    return events.Receive("s", result, messages, where, transaction_id)


def after(at_ms: int) -> str:
    return iso_time(FROM_MS + at_ms)


def row(at_ms: int, state: str = "RECEIVES_OCCURRING", **fields: Any) -> dict[str, Any]:
    values = {
        "state": state,
        "unread_messages": 1,
        "update_time": after(at_ms),
        "activation_sequence": 1,
        "last_activated_time": after(1_000),
        "next_check_time": None,
    }
    return values | fields


def spans(reader: Reader) -> list[tuple[str, int, int | None]]:
    return [
        (span.what, span.from_ms - FROM_MS, None if span.until_ms is None else span.until_ms - FROM_MS)
        for span in reader.spans
    ]


def test_a_reader_waits_until_its_result_and_works_until_its_transaction_ends() -> None:
    line = of(
        (1_000, receive(ReceiveResult.WAITING)),
        (2_000, receive(ReceiveResult.WAITING)),
        (3_000, receive(ReceiveResult.MESSAGES, 2, "t")),
        (4_000, receive(ReceiveResult.MESSAGES, 3, "t")),
        (5_000, events.Commit("s", "t")),
        (6_000, receive(ReceiveResult.MESSAGES, 1, "u")),
        (7_000, events.Rollback("s", "u")),
        (8_000, receive(ReceiveResult.WAITING)),
        (9_000, events.SessionEnded("s")),
    )
    [reader] = line.readers
    assert reader.life == Span(FROM_MS + 1_000, FROM_MS + 9_000, "lives")
    assert spans(reader) == [
        ("waits", 1_000, 3_000),
        ("works", 3_000, 5_000),
        ("works", 6_000, 7_000),
        ("waits", 8_000, 9_000),
    ]
    assert [(at - FROM_MS, count) for at, count in line.receives] == [(3_000, 2), (4_000, 3), (6_000, 1)]
    assert (reader.received, reader.last_ms) == (6, FROM_MS + 9_000)


def test_what_lasts_has_no_end_and_what_began_before_the_period_is_not_invented() -> None:
    line = of((1_000, events.Commit("s", "before")), (2_000, receive(ReceiveResult.MESSAGES, 1, "t")))
    assert [spans(reader) for reader in line.readers] == [[("works", 2_000, None)]]
    assert line.readers[0].life.until_ms is None


def test_a_session_that_only_ends_and_one_that_begins_again() -> None:
    assert of((1_000, events.SessionEnded("s"))).readers == []
    wait = receive(ReceiveResult.WAITING)
    again = of((1_000, wait), (2_000, events.SessionEnded("s")), (3_000, wait))
    assert [reader.life.from_ms - FROM_MS for reader in again.readers] == [1_000, 3_000]


def test_arrivals_members_and_only_empties_without_where() -> None:
    line = of(
        (1_000, events.MessageArrived(5)),
        (2_000, events.GroupObserved(3, True, 4)),
        (3_000, receive(ReceiveResult.EMPTY)),
        (4_000, receive(ReceiveResult.EMPTY, where=True)),
    )
    assert line.arrivals == [(FROM_MS + 1_000, 5)]
    assert line.members == [(FROM_MS + 2_000, 4)]
    assert line.empties == [FROM_MS + 3_000]


def test_the_picture_of_a_group_whose_members_report_nothing_has_no_lanes_of_reports() -> None:
    observed = (2_000, events.GroupObserved(3, True, 4))
    reported = (1_000, events.MessageArrived(5))
    for line, has_lanes in ((of(observed), False), (of(reported, observed), True), (of(), True)):
        assert (">arrivals<" in picture(line)) is has_lanes


def test_a_request_suppresses_others_until_its_answer_or_else_until_its_time_out() -> None:
    requested = row(1_100, "NOTIFIED", next_check_time=after(31_000))
    assert of(rows=(requested,)).suppressed == [Span(FROM_MS + 1_000, FROM_MS + 31_000, "1")]
    answered = of(rows=(requested, row(4_000)))
    assert answered.suppressed == [Span(FROM_MS + 1_000, FROM_MS + 4_000, "1")]
    second = row(31_100, "NOTIFIED", activation_sequence=2, last_activated_time=after(31_000))
    assert [span.from_ms - FROM_MS for span in of(rows=(requested, second)).suppressed] == [1_000, 31_000]
    never = row(1_100, "NOTIFIED")
    assert of(rows=(never,)).suppressed[0].until_ms is None


def test_quiet_windows_join_while_they_overlap_and_end_when_they_are_cut_short() -> None:
    first = row(1_000, quiet_since=after(1_000), quiet_until=after(6_000))
    assert of(rows=(first,)).quiet == [Span(FROM_MS + 1_000, FROM_MS + 6_000, "quiet")]
    longer = row(3_000, quiet_since=after(3_000), quiet_until=after(8_000))
    assert of(rows=(first, longer)).quiet == [Span(FROM_MS + 1_000, FROM_MS + 8_000, "quiet")]
    assert of(rows=(first, row(2_000))).quiet == [Span(FROM_MS + 1_000, FROM_MS + 2_000, "quiet")]
    later = row(20_000, quiet_since=after(20_000), quiet_until=after(25_000))
    assert [span.from_ms - FROM_MS for span in of(rows=(first, later)).quiet] == [1_000, 20_000]


def unknown(line: Timeline) -> dict[str, str]:
    """Returns lane -> the width of its mark for a time of which nothing is known."""
    lanes = ET.fromstring(str(picture(line)))
    names = [text.text or "" for text in lanes.iter("text") if text.get("class", "").startswith("lane")]
    bases = [float(base.attrib["y1"]) for base in lanes.iter("line") if base.get("class") == "base"]
    marks = [mark for mark in lanes.iter("rect") if mark.get("class") == "unknown"]
    return {names[sum(base < float(mark.attrib["y"]) for base in bases)]: mark.attrib["width"] for mark in marks}


@pytest.mark.parametrize("rows", [(), (row(30_000, unread_messages=2),)], ids=["no row", "a row"])
def test_before_the_first_row_of_the_period_the_state_is_that_of_the_row_before(
    rows: tuple[dict[str, Any], ...],
) -> None:
    before = row(-90_000, "NOTIFIED", unread_messages=7, last_activated_time=after(-90_000), members=3)
    before |= {"quiet_since": after(-1_000), "quiet_until": after(4_000)}
    line = of(rows=rows, before=before)
    assert line.unread == [(FROM_MS, 7), *((FROM_MS + 30_000, 2) for _ in rows)]
    assert line.members == [(FROM_MS, 3)]
    assert line.quiet == [Span(FROM_MS - 1_000, FROM_MS + 4_000, "quiet")]
    assert [(span.from_ms, span.until_ms) for span in line.suppressed] == [
        (FROM_MS - 90_000, FROM_MS + 30_000 if rows else None)
    ]
    assert unknown(line) == {}


def test_a_window_and_a_request_that_ended_before_the_period_are_not_drawn_at_its_edge() -> None:
    before = row(
        -90_000, "NOTIFIED", next_check_time=after(-2_000), quiet_since=after(-9_000), quiet_until=after(-4_000)
    )
    line = of(before=before)
    assert (line.quiet, line.suppressed) == ([], [])


def test_the_members_are_unknown_while_their_observer_is_silent() -> None:
    silent = row(-90_000, members=3, observer_silent_since=after(-95_000))
    line = of((30_000, events.GroupObserved(3, True, 4)), before=silent)
    assert line.members == [(FROM_MS + 30_000, 4)]
    assert unknown(line) == {"members": "425.0"}


def test_what_no_row_says_is_marked_as_unknown() -> None:
    lanes = {"unread", "quiet window", "reader requested"}
    assert unknown(of()) == dict.fromkeys(lanes, "850.0")
    assert unknown(of(rows=(row(30_000),))) == dict.fromkeys(lanes, "425.0")
    assert unknown(of(rows=(row(0),))) == {}
    assert "not known: no record of this time was found" in picture(of())


def test_after_the_last_sign_of_life_of_a_monitor_that_does_not_run_nothing_is_known() -> None:
    lanes = {"unread", "quiet window", "reader requested"}
    line = replace(of(rows=(row(0),)), rows_until_ms=FROM_MS + 30_000)
    assert unknown(line) == dict.fromkeys(lanes, "425.0")
    [polygon] = [each for each in ET.fromstring(str(picture(line))).iter("polygon") if each.get("class") == "unread"]
    assert {corner.split(",")[0] for corner in polygon.attrib["points"].split()} == {"150.0", "575.0"}
    assert unknown(replace(of(), rows_until_ms=FROM_MS - 1)) == dict.fromkeys(lanes, "850.0")


def test_times_that_are_none_and_counts_below_zero_break_nothing() -> None:
    broken = row(0, "NOTIFIED", last_activated_time=GARBAGE, next_check_time="soon", quiet_until="", unread_messages=-5)
    line = of(rows=(broken | {"update_time": "yesterday"}, row(0, quiet_since=GARBAGE, quiet_until=GARBAGE)))
    assert line.unread[0] == (FROM_MS, 0)
    assert "<svg" in picture(line)


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_instants_far_away_are_drawn_at_the_edge(instant: str) -> None:
    far = row(0, "NOTIFIED", last_activated_time=instant, next_check_time=instant, quiet_until=instant)
    drawn = ET.fromstring(picture(of(rows=(far,))))
    assert all(0 <= float(mark.get("x", "0")) <= 1_000 for mark in drawn.iter("rect"))


@pytest.mark.parametrize(
    ("minutes", "every_s", "ticks"), [(1, 10, (6, 7)), (5, 60, (5, 6)), (15, 300, (3, 4)), (60, 600, (6, 7))]
)
def test_the_ticks_of_the_axis_are_at_round_times(minutes: int, every_s: int, ticks: tuple[int, int]) -> None:
    for shift_ms in (0, 1, 7_777, 59_999):
        until_ms = FROM_MS + shift_ms
        drawn = ET.fromstring(picture(Timeline(until_ms - minutes * 60_000, until_ms)))
        found = [
            iso_ms(tick.attrib["data-instant"]) or 0 for tick in drawn.iter("text") if "data-instant" in tick.attrib
        ]
        assert len(found) in ticks
        assert all(at_ms % (every_s * 1_000) == 0 for at_ms in found)


def test_names_in_the_picture_are_text() -> None:
    reason = f'{HOSTILE}" onload="alert(1)'
    activation = Activated("q", "QUEUE_ACTIVATION", 1, after(1_000), reason, 5, 0, ())
    life = Span(FROM_MS, None, "lives")
    line = Timeline(FROM_MS, UNTIL_MS, activations=[(FROM_MS + 1_000, activation)], readers=[Reader(HOSTILE, life)])
    drawn = str(picture(line))
    assert "<script" not in drawn
    assert not any(name.startswith("on") for part in ET.fromstring(drawn).iter() for name in part.attrib)
    assert f"{HOSTILE} lives" in [title.text for title in ET.fromstring(drawn).iter("title")]


def test_marks_upon_each_other_are_one_and_many_readers_are_counted() -> None:
    arrivals = [(at, events.MessageArrived()) for at in range(10_000)]
    lives = [(at, events.Receive(f"reader-{at}", ReceiveResult.WAITING)) for at in range(2_000)]
    drawn = str(picture(of(*arrivals, *lives)))
    assert len(drawn) < 100_000
    assert "and 1,988 earlier" in drawn
    assert "reports: 1 arrived, 1 arrived" in drawn


def test_sparkline() -> None:
    assert sparkline([], UNTIL_MS) == ""
    assert "at most 1,000 unread" in sparkline([(1, 0), (2, 1_000), (3, 5)], 4)
    assert "nan" not in sparkline([(1, 0), (1, 0)], 1).lower()


def test_sparklines_have_one_scale_of_time_that_ends_now() -> None:
    def corners(*points: tuple[int, int]) -> list[tuple[float, float]]:
        drawn = sparkline([(UNTIL_MS + at_ms, value) for at_ms, value in points], UNTIL_MS)
        [line] = [part.attrib["points"] for part in ET.fromstring(drawn) if "points" in part.attrib]
        return [tuple(map(float, each.split(","))) for each in line.split()]  # type: ignore[misc]

    # What was so before the period, and has not changed since; what has changed in it; what is newer than now.
    assert corners((-SPARK_MS * 9, 7), (-SPARK_MS * 2, 0)) == [(0, 19), (90, 19)]
    assert corners((-SPARK_MS * 9, 0), (-SPARK_MS // 2, 4)) == [(0, 19), (45, 19), (45, 1), (90, 1)]
    assert corners((-SPARK_MS // 3, 2), (SPARK_MS, 2)) == [(60, 1), (90, 1), (90, 1), (90, 1)]


def test_a_sparkline_ends_where_the_number_is_no_longer_known() -> None:
    drawn = sparkline([(0, 3)], SPARK_MS, SPARK_MS // 2)
    assert 'points="0.0,1.0 45.0,1.0"' in drawn


def test_an_activation_names_the_new_reader_that_came_before_the_next_one() -> None:
    wait = {at: events.Receive(f"reader-{at}", ReceiveResult.WAITING) for at in (500, 2_200, 3_000, 9_000)}
    line = of(*wait.items())
    for at_ms in (1_000, 8_000, 20_000):
        activation = Activated("q", "QUEUE_ACTIVATION", 1, after(at_ms), "MESSAGES_ACCUMULATING", 5, 0, ())
        line.activations.append((FROM_MS + at_ms, activation))
    came = [line.next_reader(number) for number in range(3)]
    assert [each and (each[0].name, each[1]) for each in came] == [("reader-2200", 1_200), ("reader-9000", 1_000), None]


def test_the_length_of_the_quiet_window_is_that_of_the_last_one() -> None:
    assert of(rows=(row(1_000, quiet_since=after(1_000), quiet_until=after(6_000)),)).window_ms == 5_000
    assert of(rows=(row(1_000, quiet_until=after(6_000)),)).window_ms is None


def test_of_a_group_that_reports_nothing_the_new_reader_is_a_further_member() -> None:
    seen = ((500, 1), (1_200, 0), (3_500, 1), (5_000, 1), (6_000, 0), (9_000, 2))
    line = of(*((at_ms, events.GroupObserved(5, True, members, 0)) for at_ms, members in seen))
    for at_ms in (1_000, 6_500, 20_000):
        activation = Activated("q", "QUEUE_ACTIVATION", 1, after(at_ms), "MESSAGES_ACCUMULATING", 5, 0, ())
        line.activations.append((FROM_MS + at_ms, activation))
    came = [line.next_reader(number) for number in range(3)]
    assert [each and (each[0].name, each[1]) for each in came] == [
        ("a new member", 2_500),
        ("a new member", 2_500),
        None,
    ]


def timeline_page(line: Timeline) -> str:
    values = {"line": line, "picture": "", "periods": ["1m"], "period": "1m", "name": "orders", "most_readers": 9}
    page = Page("orders", [Part("timeline", "timeline.html", values)])
    return Dashboard([], lambda: 0, News)._rendered(Entry("/queue", lambda _: page), page)["timeline"]


def test_a_reader_that_did_not_come_is_awaited_only_after_the_last_activation() -> None:
    line = of()
    for at_ms in (1_000, 8_000):
        activation = Activated("q", "QUEUE_ACTIVATION", 1, after(at_ms), "TIMEOUT_EXPIRED", 5, 0, ())
        line.activations.append((FROM_MS + at_ms, activation))
    text = timeline_page(line)
    assert re.findall("none (?:yet|before the next activation)", text) == [
        "none yet",
        "none before the next activation",
    ]
    assert f'The last minute until <time datetime="{after(60_000)}"' in text


@pytest.mark.parametrize("is_last", [True, False])
def test_no_reader_is_awaited_after_a_queue_was_set_off(is_last: bool) -> None:
    line = of()
    for at_ms in (1_000,) if is_last else (1_000, 8_000):
        line.activations.append(
            (FROM_MS + at_ms, Activated("q", "BROKER_QUEUE_DISABLED", 1, after(at_ms), None, 5, 0, ()))
        )
    text = timeline_page(line)
    assert "The queue was set OFF" in text
    assert not re.search("none (?:yet|before the next activation)", text)
