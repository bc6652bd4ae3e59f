"""The tests' own producer: what is not delivered is an error there and then."""

import pytest

from streaming.kafka.clients import Cluster
from tests.support.checked_producer import CheckedProducer


def test_a_record_that_nobody_takes_is_an_error() -> None:
    nobody = Cluster("127.0.0.1:1", {"message.timeout.ms": "50"})
    producer = CheckedProducer(nobody, log_level=0)
    producer.produce("topic", b"value")
    with pytest.raises(AssertionError, match=r"Kafka has not taken 1 records: .*topic: .*timed out"):
        producer.flush()
    with pytest.raises(AssertionError, match="Kafka has not taken 1 records"):
        producer.produce("topic", b"value")
