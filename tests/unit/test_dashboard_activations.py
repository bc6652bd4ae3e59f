"""Activations on the pages: of event notifications, of internal activation, and of both at once."""

import json
from typing import Any

import pytest
from confluent_kafka import Message

from streaming.cli.dashboard.activations import Activated, Activations, of_task
from streaming.cli.dashboard.pictures import SPARK_MS
from streaming.core.times import iso_time
from streaming.system import wall_clock
from streaming.wire.record_decoders import InvalidRecordError
from tests.support.dashboards import RowsInMemory, application_of, ask, row

AT_MS = 1_760_000_000_000
REASON = "MESSAGES_ACCUMULATING"


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_clock, "now_ms", lambda: AT_MS)


def record(value: Any) -> Message:
    data = None if value is None else json.dumps(value).encode()
    return Message(topic="", partition=0, offset=0, key=b"payments", value=data, timestamp=(1, AT_MS))


def task(**fields: Any) -> Message:
    values = {
        "type": "START_ACTIVATED_TASK",
        "queue": "payments",
        "task_id": "5f0c3d0e-93c1",
        "procedure_name": "read_payments",
        "execute_as": None,
        "sequence": 4,
        "expires_at": iso_time(AT_MS + 60_000),
        "reason": REASON,
        "unread_messages": 31,
        "tasks_waiting": 0,
    }
    return record({name: value for name, value in (values | fields).items() if value is not ...})


def activated(sequence: int, at_ms: int = AT_MS, queue: str = "payments", asked: str = "notification n") -> Activated:
    return Activated(queue, "QUEUE_ACTIVATION", sequence, iso_time(at_ms), REASON, 1, 0, (asked,))


def test_a_task_that_an_activation_has_requested_is_on_the_page_with_its_reason() -> None:
    view = RowsInMemory([row("payments", activation_sequence=4)])
    view._take_task(task())
    text = ask(application_of(view), "/activity").text
    for part in (
        "payments",
        "messages accumulating",
        ">31<",
        "task read_payments 5f0c3d0e",
        "1 entry in the last",
    ):
        assert part in text, part
    assert "messages accumulating" in ask(application_of(view)).text


def test_a_task_that_is_started_again_and_a_tombstone_are_no_activations() -> None:
    again = task(reason=..., unread_messages=..., tasks_waiting=...)
    assert of_task(again) is None
    assert of_task(record(None)) is None


@pytest.mark.parametrize("fields", [{"queue": "a\nb"}, {"task_id": ""}, {"sequence": "4"}])
def test_other_records_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        of_task(task(**fields))


def test_an_activation_with_notifications_and_a_task_is_one() -> None:
    found = Activations(10)
    for asked, late_ms in (("notification n", 0), ("task p", 300), ("notification n", 0), ("notification m", 0)):
        found.take(activated(1, AT_MS + late_ms, asked=asked))
    [one] = found.newest_first()
    assert one.asked == ("notification n", "task p", "notification m")
    assert one.post_time == iso_time(AT_MS)


@pytest.mark.parametrize("is_row_first", [False, True])
def test_an_activation_has_the_instant_at_which_the_monitor_decided(is_row_first: bool) -> None:
    view = RowsInMemory([])
    decided = iso_time(AT_MS - 1_500)
    value = row("payments", activation_sequence=4, last_activated_time=decided)
    takers = [(view._take_monitor, record(value)), (view._take_task, task())]
    for take, message in takers if is_row_first else reversed(takers):
        take(message)
    last = view.last_activation("payments")
    assert last is not None
    assert [each.post_time for each in (last, *view.activations())] == [decided, decided]


def test_a_task_that_is_started_again_later_does_not_change_the_instant_of_the_activation() -> None:
    found = Activations(10)
    found.take(activated(1))
    for at_ms in (AT_MS - 1_000, AT_MS + 30_000):
        found.take_row("payments", {"activation_sequence": 1, "last_activated_time": iso_time(at_ms)})
    assert [each.post_time for each in found.newest_first()] == [iso_time(AT_MS - 1_000)]


def test_a_queue_that_is_created_again_begins_with_one_again() -> None:
    found = Activations(10)
    found.take(activated(1))
    found.take(activated(1, AT_MS + 3_600_000))
    assert [each.post_time for each in found.newest_first()] == [iso_time(AT_MS + 3_600_000)]


def test_the_newest_come_first_whatever_topic_is_read_first_and_the_oldest_are_forgotten() -> None:
    found = Activations(3)
    for sequence in (1, 2, 5, 3, 4):
        found.take(activated(sequence, AT_MS + sequence * 1_000))
    assert [each.sequence for each in found.newest_first()] == [5, 4, 3]
    last = found.last("payments")
    assert last is not None
    assert last.sequence == 5


def test_short_peaks_of_unread_messages_are_kept_and_few_points_for_each_queue() -> None:
    view = RowsInMemory([])

    def take(unread: int, late_ms: int) -> None:
        value = json.dumps(row("payments", unread_messages=unread)).encode()
        stamp = (1, AT_MS + late_ms)
        view._take_monitor(Message("", 0, 0, b"payments", value, timestamp=stamp))

    for begin_ms in range(0, 3_600_000, 10_000):
        for number, unread in enumerate((1, 7, 2, 0)):
            take(unread, begin_ms + number * 200)
    points = view.unread("payments")
    assert {unread for _, unread in points} == {7, 0}
    assert points[-1] == (AT_MS + 3_590_400, 0)
    assert points[0][0] <= AT_MS + 3_590_000 - SPARK_MS
    for number in range(10_000):
        take(number % 2, 3_600_000 + number * 100)
    assert len(view.unread("payments")) <= 130
    assert view.unread("payments")[0][0] <= AT_MS + 4_600_000 - SPARK_MS
