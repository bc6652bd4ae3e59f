"""The watch on topics: it reports topics that are no longer those of the checkpoint's offsets."""

import logging
from collections.abc import Iterable, Mapping
from typing import cast

import pytest

from streaming.errors import UserError
from streaming.kafka import topic_watch
from streaming.kafka.access import RightMissingError
from streaming.kafka.admin import Admin
from streaming.kafka.topic_watch import TopicWatch, replaced_topics

KNOWN = {"queue-arrivals": "id-1", "queue-receives": "id-2"}


def test_the_same_topics_and_further_ones_are_no_problem() -> None:
    assert replaced_topics(KNOWN, KNOWN | {"queue-commands": "id-3"}) is None


def test_a_checkpoint_that_knows_no_ids_has_no_problem() -> None:
    assert replaced_topics({}, KNOWN) is None


def test_a_topic_that_was_created_again_or_is_gone_is_named() -> None:
    again = replaced_topics(KNOWN, KNOWN | {"queue-receives": "id-9"})
    gone = replaced_topics(KNOWN, {"queue-arrivals": "id-1"})
    assert again == gone
    assert again is not None
    assert "created again: queue-receives." in again
    assert "another --checkpoint-location" in again


def test_without_its_ticks_a_checkpoint_can_be_continued_from() -> None:
    known = KNOWN | {"p-queue-ticks": "id-3"}
    assert "set --continue-from to the old one" in str(replaced_topics(known, known | {"p-queue-ticks": "id-9"}))
    both = str(replaced_topics(known, known | {"p-queue-ticks": "id-9", "queue-receives": "id-9"}))
    assert "queue-receives" in both
    assert "p-queue-ticks" in both
    assert "--continue-from" not in both


class FakeAdmin:
    """Gives the answers one after the other. None means that Kafka cannot be reached."""

    def __init__(self, *answers: Mapping[str, str] | UserError | None) -> None:
        self.answers = list(answers)

    def topic_ids(self, _names: Iterable[str], _timeout_s: float) -> Mapping[str, str]:
        answer = self.answers.pop(0)
        if answer is None:
            raise UserError("Kafka cannot be reached")
        if isinstance(answer, UserError):
            raise answer
        return answer


def test_a_problem_that_was_found_remains_when_kafka_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "INTERVAL_S", 0.0)
    watch = TopicWatch(cast("Admin", FakeAdmin(None, KNOWN, {}, None)), KNOWN)
    assert watch.problem() is None
    assert watch.problem() is None
    found = watch.problem()
    assert found is not None
    assert watch.problem_now() == found


def test_kafka_is_asked_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "INTERVAL_S", 3_600.0)
    watch = TopicWatch(cast("Admin", FakeAdmin(KNOWN, {})), KNOWN)
    assert watch.problem() is None
    assert watch.problem() is None
    assert watch.problem_now() is not None
    assert watch.problem() is not None


def test_an_outage_is_logged_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_watch, "INTERVAL_S", 0.0)
    caplog.set_level(logging.INFO, topic_watch.__name__)
    watch = TopicWatch(cast("Admin", FakeAdmin(KNOWN, None, None, KNOWN, KNOWN, None)), KNOWN)
    for _ in range(6):
        assert watch.problem() is None
    away = "Batches wait until Kafka answers: Kafka cannot be reached"
    assert [record.getMessage() for record in caplog.records] == [away, "Kafka answers again", away]


def test_a_right_that_is_missing_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_watch, "INTERVAL_S", 0.0)
    watch = TopicWatch(cast("Admin", FakeAdmin(RightMissingError("Kafka does not grant DESCRIBE"), KNOWN)), KNOWN)
    assert watch.problem() is None
    assert watch.problem() is None
    assert not caplog.records
