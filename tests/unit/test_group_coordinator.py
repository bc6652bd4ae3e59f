"""Tests that the admin client asks only coordinators of consumer groups that answer.

If such a request timed out, librdkafka could abort the process.
"""

import pytest

from producers.emptiness import EmptinessProbe
from streaming.errors import UserError
from streaming.kafka.access import WatchfulAdmin
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster

_NOBODY = Cluster("127.0.0.1:1")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Returns the list of the requests to coordinators."""
    asked: list[object] = []
    monkeypatch.setattr(WatchfulAdmin, "describe_consumer_groups", lambda *arguments, **_: asked.append(arguments))
    monkeypatch.setattr(WatchfulAdmin, "list_consumer_group_offsets", lambda *arguments, **_: asked.append(arguments))
    return asked


def test_the_administration_asks_no_coordinator_that_does_not_answer(
    asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(_NOBODY)
    with pytest.raises(UserError, match=r"Kafka cannot be reached at 127\.0\.0\.1:1"):
        admin.members("group", timeout_s=0.2)
    monkeypatch.setattr("streaming.kafka.admin.ADMIN_TIMEOUT_S", 0.2)
    admin.require_group("group")
    assert not asked


def test_a_queue_reader_asks_no_coordinator_that_does_not_answer(
    asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.emptiness.QUESTION_TIMEOUT_S", 0.2)
    monkeypatch.setattr(EmptinessProbe, "_partitions", lambda _: [0, 1])
    monkeypatch.setattr(EmptinessProbe, "_offsets", lambda _, numbers, __: dict.fromkeys(numbers, 5))
    assert EmptinessProbe(_NOBODY, Admin(_NOBODY), "orders", "orders").look({0: 5}) is None
    assert not asked
