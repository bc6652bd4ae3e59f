"""The accounts of the demo of services: it must notice what is lost, repeated, out of order or in the wrong place."""

import io

import pytest
from rich.console import Console

from streaming.cli.demo.service_plan import ANSWER, INVOICES, NORTH, ORDERS, SOUTH, STOCKS
from streaming.cli.demo.service_records import Delivery, Differences, ServiceRecords, compare
from streaming.cli.demo.service_story import ServiceStory
from streaming.wire.delivered import KindName

ANSWERS, AT_NORTH, AT_SOUTH = ORDERS.queue, STOCKS[NORTH].queue, STOCKS[SOUTH].queue
ALTERED_S, IN_FORCE_S = 10.0, 11.0


@pytest.mark.parametrize(
    ("found", "lost", "twice", "out_of_order"),
    [
        (b"abc", 0, 0, 0),
        (b"ac", 1, 0, 0),
        (b"", 3, 0, 0),
        (b"abbc", 0, 1, 0),
        (b"abcab", 0, 2, 1),
        (b"acb", 0, 0, 1),
        (b"abcx", 0, 1, 0),
    ],
)
def test_a_conversation_is_compared_with_what_was_said(found: bytes, lost: int, twice: int, out_of_order: int) -> None:
    expected, those = ([each.to_bytes() for each in letters] for letters in (b"abc", found))
    assert compare(expected, those) == Differences(lost, twice, out_of_order)


class Scene:
    """A whole demo, in which a test then changes something."""

    def __init__(self) -> None:
        self.output = io.StringIO()
        self.story = ServiceStory(Console(file=self.output, width=100), {})
        self.records = self.story.records
        self.records.altered_s, self.records.in_force_s, self.records.created_s = ALTERED_S, IN_FORCE_S, 20.0
        self.story.held = 1
        self.story._most_held = 1, 9796
        self.converse("pinned", AT_NORTH, (1.0, 12.0))
        self.converse("new", AT_SOUTH, (12.0, 13.0))
        self.converse("invoice", INVOICES.queue, (15.0,))
        self.records.timers_s["pinned"] = 29.0
        self.deliver("pinned", ANSWERS, "TIMER", b"", 30.0)

    def converse(self, conversation_id: str, queue: str, times_s: tuple[float, ...]) -> None:
        """Lets a conversation take place: a message at each time, its answer, and an end."""
        for at_s in times_s:
            body = b"at %d" % at_s
            self.story.said.setdefault(conversation_id, []).append(body)
            self.records.note_sent(conversation_id, True, body, at_s)
            self.records.note_sent(conversation_id, False, ANSWER + body, at_s + 0.5)
            self.deliver(conversation_id, queue, "MESSAGE", body, at_s + 0.25)
            self.deliver(conversation_id, ANSWERS, "MESSAGE", ANSWER + body, at_s + 1.0)
        self.deliver(conversation_id, ANSWERS, "END", b"", times_s[-1] + 2)

    def deliver(self, conversation_id: str, queue: str, kind: KindName, body: bytes, at_s: float) -> None:
        """Puts a message into a queue."""
        self.records.deliveries.append(Delivery(queue, conversation_id, kind, body, at_s, at_s))

    def is_good(self) -> bool:
        return self.story.summarize()


def test_a_whole_demo_is_good() -> None:
    scene = Scene()
    assert scene.is_good(), scene.output.getvalue()
    lines = {" ".join(line.split()) for line in scene.output.getvalue().splitlines()}
    assert {
        "sent, delivered, answered 5, 5, 5",
        "lost, twice, out of order 0, 0, 0",
        "pinned, new conversations 1 stayed in stock_north, 1 in stock_south",
        "timer 1000 ms after it was due",
        # Four messages took 250 ms to the stock, their answers 500 ms back, and that of the invoice too.
        "send -> delivery p50 500 ms, p99 500 ms (9 messages not held)",
    } <= lines


@pytest.mark.parametrize("number", range(len(Scene().records.deliveries)))
def test_a_record_that_is_missing_or_comes_twice_is_noticed(number: int) -> None:
    missing, repeated = Scene(), Scene()
    del missing.records.deliveries[number]
    repeated.records.deliveries.append(repeated.records.deliveries[number])
    assert not missing.is_good()
    assert not repeated.is_good()


def test_messages_in_the_wrong_order_are_noticed() -> None:
    scene = Scene()
    scene.records.deliveries.reverse()
    assert scene.records.differences(scene.story.said).out_of_order > 0
    assert not scene.is_good()


@pytest.mark.parametrize(
    ("conversation_id", "queue", "times_s"),
    [
        ("an old one that does not stay", AT_SOUTH, (1.0, 12.0)),
        ("a new one that does not follow the route", AT_NORTH, (12.0,)),
    ],
)
def test_a_conversation_in_the_wrong_database_is_noticed(
    conversation_id: str, queue: str, times_s: tuple[float, ...]
) -> None:
    scene = Scene()
    scene.converse(conversation_id, queue, times_s)
    assert scene.records.route_change().wrong == 1
    assert not scene.is_good()


def test_a_conversation_in_two_databases_is_noticed_also_while_the_route_changes() -> None:
    scene = Scene()
    scene.converse("between", AT_NORTH, (10.5,))
    assert scene.is_good()
    scene.converse("between", AT_SOUTH, (11.5,))
    assert scene.records.route_change().wrong == 1


def test_a_demo_without_a_change_of_the_route_is_not_good() -> None:
    scene = Scene()
    scene.records.altered_s = scene.records.in_force_s = None
    assert not scene.is_good()


def test_records_that_were_never_seen_are_reported() -> None:
    story = ServiceStory(Console(file=(output := io.StringIO()), width=100), {})
    story.said["c"] = [b"1"]
    story.gave_up()
    assert not story.summarize()
    assert "never arrived" in output.getvalue()
    assert ServiceRecords().held_until_s() is None
