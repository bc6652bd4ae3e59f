"""The tick's thread: it survives passing errors, and keeps any other for the monitor."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.daemons.query.ticker import Ticker
from streaming.kafka import clients
from streaming.kafka.access import RightMissingError
from streaming.kafka.clients import Cluster
from tests.support.waiting import wait_until

CLUSTER = Cluster("127.0.0.1:1", {})


class FakeProducer:
    """A producer that raises the given errors, then accepts everything."""

    errors: deque[Exception]
    taken: int

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def produce(self, *_arguments: object, **_more: object) -> None:
        if type(self).errors:
            raise type(self).errors.popleft()
        type(self).taken += 1

    def poll(self, _timeout_s: float) -> None:
        pass


@contextmanager
def ticking(
    monkeypatch: pytest.MonkeyPatch, *errors: Exception, is_due: Callable[[], bool] = lambda: True
) -> Iterator[tuple[Ticker, type[FakeProducer]]]:
    class Producer(FakeProducer):
        pass

    Producer.errors, Producer.taken = deque(errors), 0
    monkeypatch.setattr(clients, "Producer", Producer)
    with Ticker(CLUSTER, "queue-ticks", 1, 10_000, is_due) as running:
        yield running, Producer


@pytest.mark.parametrize(
    "error",
    [
        BufferError("Local: Queue full"),
        KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
        KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC)),
        KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)),
    ],
    ids=str,
)
def test_a_passing_error_does_not_end_the_ticks(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with ticking(monkeypatch, error, error) as (running, producer):
        wait_until(lambda: producer.taken > 2, 10, "ticks after the error")
        assert running.failure is None
        assert running.denied is None


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._FATAL)), ValueError("a bug")])
def test_any_other_error_is_kept_for_the_monitor(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with ticking(monkeypatch, error) as (running, _):
        wait_until(lambda: running.failure is not None, 10, "the failure")
        assert running.failure is error


def test_an_error_in_the_check_for_due_shards_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_due() -> bool:
        raise KeyError(7)

    with ticking(monkeypatch, is_due=is_due) as (running, _):
        wait_until(lambda: isinstance(running.failure, KeyError), 10, "the failure")


def test_a_refusal_is_kept_as_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    with ticking(monkeypatch, KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))) as (running, _):
        wait_until(lambda: isinstance(running.denied, RightMissingError), 10, "the refusal")
