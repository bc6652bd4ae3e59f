"""Requests to delete records: those that fail are repeated at the turn of their periodic task."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming.core.conversations.decision_batches import Carrying, Position
from streaming.core.conversations.decisions import CleanUp
from streaming.daemons.transport.clean_up import CleanUps
from streaming.daemons.transport.share import Partition
from streaming.kafka.admin import Admin
from streaming.wire.topics import Topics

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))
CLEAN_UP = CleanUp(10, 5, decided_ms=1)


class Kafka:
    """Takes the place of Kafka's client for administrators. It fails as it is told."""

    def __init__(self) -> None:
        self.is_away = self.is_broken = False
        self.deleted: list[tuple[str, int]] = []
        self.failed: set[str] = set()

    def delete_records(self, places: list[TopicPartition], request_timeout: float) -> dict[TopicPartition, Any]:
        assert request_timeout > 0
        [place] = places
        is_failed = self._answer_fails() or place.topic in self.failed
        if not is_failed:
            self.deleted.append((place.topic, place.offset))
        return {place: future(None, is_failed=is_failed)}

    def list_offsets(self, asked: dict[TopicPartition, Any], request_timeout: float) -> dict[TopicPartition, Any]:
        assert request_timeout > 0
        return {place: future(SimpleNamespace(offset=3), is_failed=self._answer_fails()) for place in asked}

    def _answer_fails(self) -> bool:
        if self.is_broken:
            raise AWAY
        return self.is_away


def future(result: object, *, is_failed: bool) -> Future[object]:
    found: Future[object] = Future()
    if is_failed:
        found.set_exception(AWAY)
    else:
        found.set_result(result)
    return found


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


def clean_ups(kafka: Kafka, said: list[str]) -> CleanUps:
    return CleanUps(cast("Admin", SimpleNamespace(client=kafka)), Topics(), said.append)


def partition() -> Partition:
    return Partition(0, Carrying(Position(), {}, 0), cleaned_up_to=7)


def finish(found: CleanUps) -> None:
    """Takes all answers; that to a question leads to a request."""
    found.look()
    found.look()


ALL = [("service-decisions", 3), ("service-incoming", 5), ("service-messages", 10)]


@pytest.mark.parametrize("fault", ["is_away", "is_broken"])
def test_requests_that_failed_are_repeated_until_they_succeed(kafka: Kafka, fault: str) -> None:
    said: list[str] = []
    found = clean_ups(kafka, said)
    setattr(kafka, fault, True)
    found.start(partition(), 20, CLEAN_UP)
    finish(found)
    assert found.resume() == 3
    finish(found)
    assert kafka.deleted == []
    setattr(kafka, fault, False)
    assert found.resume() == 3
    finish(found)
    assert sorted(kafka.deleted) == ALL
    assert found.resume() == 0
    assert len(said) == 1, "the same is not said again and again"


def test_only_what_failed_is_repeated(kafka: Kafka) -> None:
    found = clean_ups(kafka, [])
    kafka.failed = {"service-incoming"}
    found.start(partition(), 20, CLEAN_UP)
    finish(found)
    kafka.failed = set()
    assert found.resume() == 1
    finish(found)
    assert sorted(kafka.deleted) == ALL


def test_a_later_request_replaces_one_that_failed(kafka: Kafka) -> None:
    found = clean_ups(kafka, [])
    kafka.failed = {"service-messages"}
    found.start(partition(), 20, CLEAN_UP)
    finish(found)
    kafka.failed = set()
    found.start(partition(), 30, CleanUp(40, 0, 0))
    finish(found)
    assert found.resume() == 0
    assert kafka.deleted[-1] == ("service-messages", 40)


def test_without_a_failure_nothing_is_repeated(kafka: Kafka) -> None:
    found = clean_ups(kafka, [])
    found.start(partition(), 20, CLEAN_UP)
    finish(found)
    assert sorted(kafka.deleted) == ALL
    assert found.resume() == 0
