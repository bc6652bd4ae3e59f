"""Leases of `monitor` that are shorter than the interval of the reports that renew them."""

from dataclasses import replace
from typing import Any

import pytest

from streaming.cli.monitor import short_leases
from streaming.core.activation.settings import CoreSettings


def test_the_defaults_are_long_enough() -> None:
    assert short_leases(CoreSettings()) == []


@pytest.mark.parametrize(
    ("field", "lease_ms", "said"),
    [
        ("session_lease_ms", 10_000, "--session-lease 10s ends before QueueReader reports again, every 10s"),
        ("transaction_lease_ms", 2_000, "--transaction-lease 2s ends before QueueReader reports again, every 10s"),
        ("task_lease_ms", 15_000, "--task-lease 15s ends before a host reports a task again, every 20s"),
    ],
)
def test_a_lease_that_ends_before_the_next_report_is_told(field: str, lease_ms: int, said: str) -> None:
    changed: dict[str, Any] = {field: lease_ms}
    [warning] = short_leases(replace(CoreSettings(), **changed))
    assert warning.startswith(said)
