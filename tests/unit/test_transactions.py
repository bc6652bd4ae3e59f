"""A transactional producer whose Kafka does not answer: what it says about its transaction."""

from threading import Event

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.kafka import transactions
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import ClientUnusableError, TransactionAbortedError
from streaming.kafka.transactions import TransactionalProducer

NO_ANSWER = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))
REFUSED = KafkaException(KafkaError(KafkaError.INVALID_RECORD, "refused"))


class FakeProducer:
    """A client of librdkafka's, whose commits and aborts fail as a test says."""

    def __init__(self) -> None:
        self.commit_error: KafkaException | None = None
        self.abort_error: KafkaException | None = None
        self.aborts = 0

    def init_transactions(self, _timeout_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, _timeout_s: float) -> None:
        if self.commit_error is not None:
            raise self.commit_error

    def abort_transaction(self, _timeout_s: float) -> None:
        self.aborts += 1
        if self.abort_error is not None:
            raise self.abort_error


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    for name in ("_COMMIT_GRACE_S", "_RETRY_BACKOFF_S"):
        monkeypatch.setattr(transactions, name, 0.0)
    fake = FakeProducer()
    monkeypatch.setattr(Cluster, "producer", lambda *_: fake)
    return fake


def producer_of(_fake: FakeProducer) -> TransactionalProducer:
    return TransactionalProducer(Cluster("localhost:1"), transaction_timeout_ms=1)


def transact(producer: TransactionalProducer) -> None:
    with producer.transaction():
        pass


def test_the_outcome_of_a_commit_without_an_answer_is_unknown(fake: FakeProducer) -> None:
    producer = producer_of(fake)
    # Kafka may have committed, although librdkafka then takes an abort and waits for its answer.
    fake.commit_error = fake.abort_error = NO_ANSWER
    with pytest.raises(ClientUnusableError):
        transact(producer)
    assert fake.aborts == 0
    fake.commit_error = fake.abort_error = None
    with pytest.raises(ClientUnusableError):
        transact(producer)


def test_a_refused_commit_is_aborted(fake: FakeProducer) -> None:
    producer = producer_of(fake)
    fake.commit_error = REFUSED
    with pytest.raises(TransactionAbortedError):
        transact(producer)
    fake.commit_error = None
    transact(producer)
    assert fake.aborts == 1


def test_a_producer_that_waits_for_an_abort_for_too_long_is_given_up(
    fake: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_of(fake)
    fake.commit_error, fake.abort_error = REFUSED, NO_ANSWER
    for _ in range(3):
        with pytest.raises(TransactionAbortedError):
            transact(producer)
    fake.abort_error = fake.commit_error = None
    transact(producer)
    # The next abort without an answer is another one, with a time of its own.
    fake.commit_error, fake.abort_error = REFUSED, NO_ANSWER
    with pytest.raises(TransactionAbortedError):
        transact(producer)
    monkeypatch.setattr(transactions, "_ABORT_PATIENCE_S", 0.0)
    with pytest.raises(ClientUnusableError):
        transact(producer)


def test_a_client_that_waits_forever_for_its_close_holds_up_no_program(
    fake: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_CLOSE_TIMEOUT_S", 0.01)
    never, closing = Event(), Event()

    def close() -> None:
        closing.set()
        never.wait()

    fake.close = close  # type: ignore[attr-defined]
    producer = producer_of(fake)
    producer.close()
    assert closing.is_set()
    never.set()
