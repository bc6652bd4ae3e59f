"""Tests that the admin client asks only coordinators of consumer groups that answer."""

import pytest

from streaming.errors import UserError
from streaming.kafka.access import WatchfulAdmin
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster


def test_the_admin_client_asks_no_coordinator_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """If such a request timed out, librdkafka could abort the process."""
    asked: list[object] = []
    monkeypatch.setattr(WatchfulAdmin, "describe_consumer_groups", lambda *arguments, **_: asked.append(arguments))
    admin = Admin(Cluster("127.0.0.1:1"))
    with pytest.raises(UserError, match=r"Kafka cannot be reached at 127\.0\.0\.1:1"):
        admin.members("group", timeout_s=0.2)
    monkeypatch.setattr("streaming.kafka.admin.ADMIN_TIMEOUT_S", 0.2)
    admin.require_group("group")
    assert not asked
