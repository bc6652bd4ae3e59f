"""The consumer inside a queue reader, without Kafka."""

from threading import Event

import pytest
from confluent_kafka import KafkaError, Message

from producers import queue_consumer
from producers.conversations import Statements
from producers.queue_consumer import QueueConsumer
from streaming.kafka.clients import Cluster


def test_a_consumer_that_waits_forever_for_its_close_holds_up_no_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(queue_consumer, "_CLOSE_TIMEOUT_S", 0.01)
    never = Event()
    monkeypatch.setattr(QueueConsumer, "_leave", lambda _self: never.wait())
    consumer = QueueConsumer(Cluster("127.0.0.1:1"), "orders", "orders", Statements(None))
    consumer.close()
    never.set()
    assert "queue orders: the consumer has not closed" in caplog.text


def test_a_consumer_without_kafka_closes() -> None:
    consumer = QueueConsumer(Cluster("127.0.0.1:1"), "orders", "orders", Statements(None))
    consumer.take(1, 0.0)
    consumer.close()
    assert not consumer.partitions.is_assigned


def test_a_warning_about_an_error_has_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    consumer = QueueConsumer(Cluster("127.0.0.1:1"), "orders", "orders", Statements(None))
    consumer._accept_error(Message(), KafkaError(KafkaError._TRANSPORT, "these words"))
    consumer.close()
    assert "queue orders: these words" in caplog.messages
