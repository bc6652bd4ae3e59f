"""The transport with a real broker: the test decides, and looks at what readers of committed records see."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streaming.core.conversations.decisions import DIALOG_TIMER, END_DIALOG, ERROR, CleanUp, DeadLetter
from streaming.core.conversations.kinds import Kind, Source
from streaming.wire.service_decisions import RefusedReport, decode_report
from tests.support.http_answers import free_port, get
from tests.support.killable_programs import Program
from tests.support.metric_names import documented_transport_metrics
from tests.support.shared_broker import SharedBroker
from tests.support.transporting import DEADLINE_S, PARTITIONS, Scene, deliver, envelope, headers_of
from tests.support.waiting import wait_until


@pytest.fixture
def scene(broker: SharedBroker, tmp_path: Path) -> Scene:
    return Scene(broker.bootstrap_servers, tmp_path)


@pytest.fixture
def transport(scene: Scene) -> Iterator[Program]:
    """A running transport, which ends in order with exit code 0."""
    program = scene.transport()
    program.start()
    try:
        program.wait_until_ready()
        yield program
        program.check()
        assert program.stop() == 0
        assert program.log_file.read_text().splitlines()[-1] == "transport stopped"
    finally:
        if program.process is not None:
            program.process.stop(0)


def reports_of(scene: Scene, count: int) -> list[RefusedReport]:
    """Returns the reports of the transport, as soon as there are so many."""
    found = [decode_report(each.value()) for each in scene.read(scene.topics.service_reports, count)]
    return [each for each in found if isinstance(each, RefusedReport)]


@pytest.mark.usefixtures("transport")
def test_a_message_is_delivered_with_its_headers_and_its_arrival(scene: Scene) -> None:
    queue = scene.create_queue("stock")
    offset = scene.send(1, "c-1", b"body", ("traceparent", b"00-1"), ("service", b"forged"), message_type_name="Order")
    scene.decide(1, deliver("c-1", offset, queue, 7))

    [message] = scene.read(queue, 1)
    assert (message.key(), message.value()) == (b"group-c-1", b"body")
    assert headers_of(message) == {
        "conversation_id": "c-1",
        "conversation_group_id": "group-c-1",
        "message_sequence_number": "7",
        "message_type_name": "Order",
        "service": "//Stock",
        "from_service": "//Shop",
        "is_initiator": "true",
        "traceparent": "00-1",
    }
    assert scene.arrivals(1) == {queue: 1}


@pytest.mark.usefixtures("transport")
def test_each_kind_of_message_has_its_type_and_body(scene: Scene) -> None:
    queue = scene.create_queue("kinds")
    fields = {"type": "ERROR", "error_code": 7, "error_text": "a < b & c"}
    offsets = [
        scene.send(0, "c-1", b"ignored", ("traceparent", b"00-1"), **found)
        for found in ({"type": "MESSAGE"}, {"type": "END"}, fields)
    ]
    null = scene.send(0, "c-1", None)
    scene.decide(
        0,
        deliver("c-1", offsets[0], queue, 0),
        deliver("c-1", offsets[1], queue, 1, kind=Kind.END),
        deliver("c-1", offsets[2], queue, 2, kind=Kind.ERROR),
        deliver("c-1", None, queue, 3, kind=Kind.ERROR, error_code=8489, error_text="over\x00", is_initiator=False),
        deliver("c-1", None, queue, None, kind=Kind.TIMER),
        deliver("c-1", null, queue, 4),
    )
    found = scene.read(queue, 6)
    types = ["DEFAULT", END_DIALOG, ERROR, ERROR, DIALOG_TIMER, "DEFAULT"]
    assert [headers_of(each)["message_type_name"] for each in found] == types
    assert [headers_of(each).get("message_sequence_number") for each in found] == ["0", "1", "2", "3", None, "4"]
    assert [headers_of(each).get("traceparent") for each in found] == ["00-1"] * 3 + [None] * 3
    assert headers_of(found[3])["is_initiator"] == "false"
    assert [found[at].value() for at in (0, 1, 4, 5)] == [b"ignored", b"", b"", None]
    for message, expected in ((found[2], ("7", "a < b & c")), (found[3], ("8489", "over\ufffd"))):
        root = ElementTree.fromstring(message.value() or b"")
        assert (root.tag, tuple(each.text for each in root)) == (f"{{{ERROR}}}Error", expected)
    assert scene.arrivals(6) == {queue: 6}


@pytest.mark.usefixtures("transport")
def test_what_a_failed_attempt_has_left_takes_no_effect(scene: Scene) -> None:
    queue = scene.create_queue("attempts")
    offsets = scene.send_many(0, [("c-1", b"%d" % number) for number in range(6)])
    records = [[deliver("c-1", offset, queue, at)] for at, offset in enumerate(offsets)]
    scene.write_decisions(0, 1, records[0], 1)
    scene.write_decisions(0, 3, records[2], 2)  # 2 is lost: a gap within the batch
    for number in (2, 3):
        scene.write_decisions(0, number, records[number - 1], 2)
    scene.write_decisions(0, 1, records[0], 1)  # a repeat
    scene.write_decisions(0, 4, records[3], 4)
    scene.write_decisions(0, 6, records[5], 4)  # the middle of an attempt is lost
    for number in (4, 5, 6):
        scene.write_decisions(0, number, records[number - 1], 4)
    scene.numbers[0] = 6
    last = scene.send(0, "c-1", b"last")
    scene.decide(0, deliver("c-1", last, queue, 6))
    assert [each.value() for each in scene.read(queue, 7)] == [b"0", b"1", b"2", b"3", b"4", b"5", b"last"]
    assert scene.arrivals(7) == {queue: 7}


@pytest.mark.usefixtures("transport")
def test_a_missing_topic_holds_its_conversation_until_a_higher_round(scene: Scene) -> None:
    good, bad = scene.create_queue("good"), f"{scene.prefix}bad"
    offsets = scene.send_many(0, [("c-1", b"1"), ("c-2", b"2"), ("c-1", b"3")])
    decisions = [
        deliver("c-1", offsets[0], bad, 0),
        deliver("c-2", offsets[1], good, 0),
        deliver("c-1", offsets[2], bad, 1),
    ]
    scene.decide(0, *decisions)
    assert [each.value() for each in scene.read(good, 1)] == [b"2"]
    [report] = reports_of(scene, 1)
    assert (report.partition, report.conversation_id, report.is_initiator, report.round) == (0, "c-1", True, 1)
    assert (report.is_lasting, report.reason) == (False, f"topic {bad} does not exist")
    assert report.deliveries() == [decisions[0], decisions[2]]

    scene.create_queue("bad")
    more = scene.send(0, "c-1", b"4")
    scene.decide(0, deliver("c-1", more, bad, 2))  # of the refused round
    scene.decide(
        0, *(deliver("c-1", offset, bad, at, round=2) for at, offset in enumerate([offsets[0], offsets[2], more]))
    )
    assert [each.value() for each in scene.read(bad, 3)] == [b"1", b"3", b"4"]
    reports = reports_of(scene, 2)
    assert [len(each.refused) for each in reports] == [2, 1]
    assert scene.arrivals(4) == {good: 1, bad: 3}


@pytest.mark.usefixtures("transport")
def test_what_can_never_be_delivered_is_a_dead_letter_and_its_neighbours_go_on(scene: Scene) -> None:
    queue = scene.create_queue("small", config={"max.message.bytes": "20000"})
    topic = scene.topics.service_messages
    body = b"x" * 30_000
    offsets = scene.send_many(0, [("c-1", b"1"), ("c-2", b"2"), ("c-3", body), ("c-3", b"4"), ("c-4", b"5")])
    other_key = scene.write(topic, 0, b"6", b"c-0", [("envelope", envelope("c-5"))])
    decisions = [deliver(f"c-{name}", offsets[at], queue, 0) for at, name in enumerate((1, 2, 3, 3, 4))]
    gone = scene.write(topic, 0, b"7", b"c-7", [("envelope", envelope("c-7"))])
    scene.write(topic, 0, b"8", b"c-8")
    decisions += [deliver("c-5", other_key, queue), deliver("c-7", gone + 1, queue), deliver("c-6", None, queue)]
    scene.decide(0, *decisions, DeadLetter(Source.MESSAGES, offsets[0], "unknown conversation", 8426))

    assert [each.value() for each in scene.read(queue, 4)] == [b"1", b"2", b"5", b""]
    letters = scene.read(scene.topics.service_dead_letters, 4)
    found = {int(headers_of(each)["source_offset"]): headers_of(each) for each in letters}
    assert found.keys() == {offsets[0], offsets[2], other_key, gone + 1}
    assert "too large" in found[offsets[2]]["reason"]
    assert "another key" in found[other_key]["reason"]
    assert found[offsets[0]]["number"] == "8426"
    reports = {each.conversation_id: each for each in reports_of(scene, 3)}
    assert {name: each.is_lasting for name, each in reports.items()} == {"c-3": True, "c-5": True, "c-7": True}
    assert reports["c-3"].deliveries() == [decisions[3]]
    assert scene.arrivals(4) == {queue: 4}


@pytest.mark.usefixtures("transport")
def test_a_deleted_record_and_an_invalid_decision_are_dead_letters(scene: Scene) -> None:
    queue = scene.create_queue("deleted")
    offsets = scene.send_many(1, [("c-1", b"1"), ("c-2", b"2")])
    scene.delete_records(scene.topics.service_messages, 1, offsets[1])
    invalid = scene.write(scene.topics.service_decisions, 1, b'{"generation": 1}')
    scene.decide(1, deliver("c-1", offsets[0], queue), deliver("c-2", offsets[1], queue))
    assert [each.value() for each in scene.read(queue, 1)] == [b"2"]
    letters = [headers_of(each) for each in scene.read(scene.topics.service_dead_letters, 2)]
    places = [(each["source_topic"].removeprefix(scene.prefix), int(each["source_offset"])) for each in letters]
    assert places == [("service-decisions", invalid), ("service-messages", offsets[0])]
    assert "source_timestamp" not in letters[1]


@pytest.mark.usefixtures("transport")
def test_records_that_nobody_needs_are_deleted_but_not_what_was_returned(scene: Scene) -> None:
    queue = scene.create_queue("clean")
    offsets = scene.send_many(0, [("c-1", b"1"), ("c-2", b"2"), ("c-1", b"3"), ("c-1", b"4")])
    scene.decide(0, deliver("c-1", offsets[0], queue), deliver("c-2", offsets[1], f"{scene.prefix}missing"))
    scene.read(scene.topics.service_reports, 1)
    scene.decide(0, deliver("c-1", offsets[2], queue), CleanUp(offsets[3], 0, 0))
    wait_until(
        lambda: scene.low(scene.topics.service_messages, 0) == offsets[1], DEADLINE_S, "the first record is deleted"
    )
    scene.read(queue, 2)
    # The transport counts batches from when it has looked at the end of the decisions, a moment after its report.
    for _ in range(2):
        scene.decide(0, CleanUp(offsets[3], 0, 0))
    wait_until(lambda: scene.low(scene.topics.service_messages, 0) == offsets[3], DEADLINE_S, "more records deleted")
    decisions = scene.read(scene.topics.service_decisions, 0)
    assert decisions[0].offset() == 0, "decisions are deleted by their age only"
    scene.decide(0, CleanUp(offsets[3], 0, decisions[2].timestamp()[1]))
    wait_until(lambda: scene.low(scene.topics.service_decisions, 0) > 0, DEADLINE_S, "decisions are deleted")
    assert scene.low(scene.topics.service_decisions, 0) <= (decisions[2].offset() or 0)


def test_lost_decisions_stop_their_partition_only(scene: Scene) -> None:
    queue = scene.create_queue("lost")
    program = scene.transport()
    program.start()
    program.wait_until_ready()
    offsets = [scene.send(each, "c-1", b"%d" % each) for each in range(2)]
    scene.write_decisions(0, 1, [deliver("c-1", offsets[0], queue)], 1)
    scene.write_decisions(0, 3, [deliver("c-1", offsets[0], queue)], 3)
    assert program.process is not None
    program.process.wait_until_said("service-decisions[0] has stopped")
    scene.decide(1, deliver("c-1", offsets[1], queue))
    assert sorted(each.value() or b"" for each in scene.read(queue, 2)) == [b"0", b"1"]
    assert program.stop() == 1
    assert "decisions 2 to 2 of generation 1 are missing" in program.log_file.read_text()


def write_load(scene: Scene, partition: int, turn: int, queue: str) -> dict[str, list[bytes]]:
    """Sends 500 messages of 20 conversations, and decides to deliver them; returns the bodies by conversation group."""
    names = [f"c-{partition}-{at % 20}" for at in range(500)]
    bodies = [b"%d-%d" % (turn, at) for at in range(500)]
    offsets = scene.send_many(partition, zip(names, bodies, strict=True))
    for at in range(0, 500, 50):
        found = zip(names[at : at + 50], offsets[at : at + 50], strict=True)
        scene.decide(partition, *(deliver(name, offset, queue) for name, offset in found))
    sent: dict[str, list[bytes]] = {}
    for name, body in zip(names, bodies, strict=True):
        sent.setdefault(f"group-{name}", []).append(body)
    return sent


@pytest.fixture
def programs(scene: Scene) -> Iterator[list[Program]]:
    """Three transports that are not started."""
    found = [scene.transport(name=f"transport-{number}") for number in range(3)]
    yield found
    for program in found:
        if program.process is not None:
            program.process.stop(0)


def test_killed_and_rebalanced_transports_deliver_once_and_in_order(scene: Scene, programs: list[Program]) -> None:
    queue = scene.create_queue("load", 2)
    for program in programs[:2]:
        program.start()
    for program in programs[:2]:
        program.wait_until_ready()
    expected: dict[str, list[bytes]] = {}
    changes = {1: programs[0].kill, 2: programs[2].start, 4: programs[1].stop}
    for turn in range(6):
        for partition in range(PARTITIONS):
            for group, bodies in write_load(scene, partition, turn, queue).items():
                expected.setdefault(group, []).extend(bodies)
        changes.get(turn, lambda: None)()
    seen: dict[str, list[bytes]] = {}
    for message in scene.read(queue, 6_000):
        seen.setdefault((message.key() or b"").decode(), []).append(message.value() or b"")
    assert seen == expected
    assert scene.arrivals(6_000) == {queue: 6_000}
    programs[2].check()
    assert programs[2].stop() == 0


def test_metrics_and_probes_say_what_the_transport_does(scene: Scene) -> None:
    queue = scene.create_queue("measured")
    port = free_port()
    program = scene.transport("--metrics-port", str(port))
    program.start()
    try:
        program.wait_until_ready()
        scene.decide(0, deliver("c-1", scene.send(0, "c-1", b"1"), queue), DeadLetter(Source.MESSAGES, 0, "bad"))
        scene.write_decisions(0, 1, [], 1)
        scene.decide(0, deliver("c-2", scene.send(0, "c-2", b"2"), f"{scene.prefix}missing"))
        names = {"delivered_messages": 1, "dead_letters": 1, "refused_deliveries": 1, "passed_over_records": 1}

        def samples() -> dict[str, float]:
            families = text_string_to_metric_families(get(port, "/metrics")[1])
            return {each.name: each.value for family in families for each in family.samples if each.value}

        expected = {f"queue_activation_transport_{name}_total": count for name, count in names.items()}
        wait_until(lambda: expected.items() <= samples().items(), DEADLINE_S, f"{expected}")
        wait_until(lambda: get(port, "/readyz")[0] == 200, DEADLINE_S, "readyz")
        assert get(port, "/healthz")[0] == 200
        text = get(port, "/metrics")[1]
        assert set(re.findall(r"^# TYPE (queue_activation_\w+)", text, re.MULTILINE)) == documented_transport_metrics()
        scene.write_decisions(1, 5, [], 5)
        wait_until(lambda: "has stopped: decisions 1 to 4" in get(port, "/readyz")[1], DEADLINE_S, "readyz says why")
        assert samples()["queue_activation_transport_stopped_partitions"] == 1
        assert program.stop() == 1
    finally:
        if program.process is not None:
            program.process.stop(0)
