"""The name that a monitor shows to others. tests/integration/test_sole_monitor.py has the other tests."""

import os
import socket

import pytest

from streaming.daemons.query.sole_program import client_id


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/data/checkpoints/monitor", "monitor"),
        ("s3a://bucket/for orders/", "for-orders"),
        ("hdfs://host/größe", "gr-e"),
        ("/" + "x" * 300, "x" * 64),
    ],
)
def test_a_monitors_name_has_host_process_and_checkpoint_in_characters_that_kafka_takes(
    location: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "db 1.example")
    assert client_id(location) == f"db-1.example_{os.getpid()}_{name}"
