"""Reports of refused deliveries: Kafka takes each, however long the names are that programs have chosen."""

import pytest

from streaming.core.conversations.decision_batches import MAX_RETURNED, Failure, Report
from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.kinds import Kind
from streaming.wire.service_decisions import RefusedReport, decode_report, encoded_reports

# Kafka's default limit of a record, without the key and what Kafka adds.
KAFKA_TAKES = 1_000_000


def delivery(number: int, letter: str, text: str | None = None) -> Deliver:
    """Returns a delivery whose names are as long as they may be."""
    service, group, database = letter * 256, letter * 256, letter * 128
    return Deliver(
        kind=Kind.MESSAGE if text is None else Kind.ERROR,
        conversation_id="\x01" * 128,
        is_initiator=False,
        sequence=2**40 + number,
        round=1,
        offset=2**40 + number if text is None else None,
        queue="q" * 249,
        service=service,
        from_service=service,
        group_id=group,
        error_code=None if text is None else -1,
        error_text=text,
        database=database,
        begun=2**40,
    )


@pytest.mark.parametrize("letter", ["s", "\x01", "\U00020000"])
@pytest.mark.parametrize("text", [None, "\x01" * 3_000])
def test_a_report_that_is_too_large_becomes_several_with_the_same_deliveries_in_order(
    letter: str, text: str | None
) -> None:
    returned = [delivery(number, letter, text) for number in range(MAX_RETURNED)]
    report = Report(("\x01" * 128, False), 2**40, 1, Failure(False, "the topic does not exist", 7), returned)
    records = encoded_reports(3, report)
    assert max(map(len, records)) < KAFKA_TAKES
    found = [decode_report(record) for record in records]
    assert all(isinstance(each, RefusedReport) for each in found)
    reports = [each for each in found if isinstance(each, RefusedReport)]
    assert [each.sequence for report in reports for each in report.deliveries()] == [each.sequence for each in returned]
    assert len({(each.partition, each.round, each.reason, each.number) for each in reports}) == 1


def test_an_ordinary_report_is_one_record() -> None:
    report = Report(("c", True), 0, 1, Failure(True, "no topic"), [delivery(number, "s") for number in range(100)])
    assert len(encoded_reports(0, report)) == 1
    assert len(encoded_reports(0, Report(("c", True), 0, 1, Failure(True, "no topic")))) == 1
