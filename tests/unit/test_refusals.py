"""The reasons for dead letters: the workers count them, and the driver logs each reason once a minute at most."""

import logging
from collections import Counter

import pytest

from streaming.spark.activation import refusals
from streaming.spark.activation.refusals import MAX_REASONS, OTHER_REASONS, RefusalLog, RefusalsParam, reasons_in
from streaming.wire.output_records import OutputRow
from tests.support.fake_spark import SETTINGS, FakeShard, Record, Source, run_shard, table


def letter(reason: str, topic: str = "queue-dead-letters") -> OutputRow:
    return topic, b"key", b"value", [("reason", reason.encode()), ("source_topic", b"queue-arrivals")], None


def test_the_dead_letters_of_a_batch_are_counted_by_reason() -> None:
    bad = [Record(Source.ARRIVALS, b"{", b"Q", offset=number) for number in range(3)]
    rows = run_shard(FakeShard().state.value, table(bad), 1_000, SETTINGS).rows
    reasons = reasons_in(rows, "queue-dead-letters")
    assert reasons.total() == 3
    assert all("invalid JSON" in reason for reason in reasons)
    assert reasons_in([("queue-monitors", b"Q", None, None, None)], "queue-dead-letters") == {}


def test_however_many_reasons_there_are_few_are_kept_and_all_letters_counted() -> None:
    once = reasons_in([letter(f"reason {number}") for number in range(1_000)], "queue-dead-letters")
    more = reasons_in([letter(f"further reason {number}") for number in range(1_000)], "queue-dead-letters")
    both = RefusalsParam().addInPlace(once, more)
    assert len(once) == len(both) == MAX_REASONS
    assert (once.total(), both.total()) == (1_000, 2_000)
    assert OTHER_REASONS in both


def test_each_reason_is_logged_once_a_minute_with_its_number_of_dead_letters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    instants_s = iter((1_000.0, 1_030.0, 1_061.0))
    monkeypatch.setattr(refusals.time, "monotonic", lambda: next(instants_s))
    log = RefusalLog()
    with caplog.at_level(logging.WARNING):
        for counts in ({"a": 1}, {"a": 5, "b": 2}, {"a": 8, "b": 2}):
            log.look(Counter(counts))
    said = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert said == ["1 dead letter: a", "2 dead letters: b", "7 dead letters: a"]
