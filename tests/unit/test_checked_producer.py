"""The tests' own producer: a record that is not delivered is an error as soon as that is known."""

import pytest

from streaming.kafka.clients import Cluster
from tests.support.checked_producer import CheckedProducer


def test_a_record_that_kafka_does_not_take_is_an_error() -> None:
    nobody = Cluster("127.0.0.1:1", {"message.timeout.ms": "50"})
    producer = CheckedProducer(nobody, log_level=0)
    producer.produce("topic", b"value")
    with pytest.raises(AssertionError, match=r"Kafka did not take 1 records: .*topic: .*timed out"):
        producer.flush()
    with pytest.raises(AssertionError, match="Kafka did not take 1 records"):
        producer.produce("topic", b"value")
