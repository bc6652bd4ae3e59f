"""Fixtures of the tests against a real broker."""

import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.wire.topics import Topics
from tests.support.monitor_topics import MonitorTopics
from tests.support.shared_broker import SharedBroker


@pytest.fixture
def monitor_topics(broker: SharedBroker) -> MonitorTopics:
    """Returns queue-arrivals and queue-receives, with three partitions each, under a prefix for this test alone."""
    prefix = f"t-{uuid.uuid4().hex[:8]}-"
    topics = Topics(prefix)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 3, 1) for name in (topics.arrivals, topics.receives)]).values():
        future.result()
    return MonitorTopics(broker.bootstrap_servers, prefix)
