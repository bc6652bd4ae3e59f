"""The commands that show what a monitor has written say first that none runs."""

import json
import uuid

import pytest

from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.wire.topics import Topics
from tests.support.shared_broker import SharedBroker
from tests.support.shell import Shell


@pytest.fixture
def shell(broker: SharedBroker) -> Shell:
    """Returns a shell on topics that no monitor has ever read."""
    prefix = f"nobody-{uuid.uuid4().hex[:8]}-"
    topics = Topics(prefix)
    Admin(Cluster(broker.bootstrap_servers)).create_topics([*topics.specs(), *topics.service_specs()], 1, 1)
    return Shell(broker.bootstrap_servers, prefix)


def test_each_command_says_that_no_monitor_runs(shell: Shell) -> None:
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    assert "no monitor is running" in shell.run("queue", "create", queue)
    [sent, warning] = shell.run("send", queue, "a message").splitlines()
    assert sent == f"1 message sent to {queue}"
    assert "no reader is started for the messages that arrive" in warning
    for words in (("queues",), ("tasks",), ("queue", "show", queue)):
        first = shell.run(*words).splitlines()[0]
        assert first.startswith("no monitor is in the consumer group"), first
        assert "What follows is what the last one has written." in first
    [fault] = [json.loads(line) for line in shell.run("diagnose", "--json", code=1).splitlines()]
    assert (fault["kind"], fault["where"]) == ("program down", "monitor")
