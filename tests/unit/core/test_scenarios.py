"""Runs every scenario on the core, with a fake clock."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from streaming.core.activation.events import Event
from streaming.core.activation.queue import Queue
from streaming.core.activation.settings import CoreSettings, Semantics
from streaming.core.activation.shard import step_queue
from streaming.core.times import FOREVER_MS
from streaming.wire import input_records
from streaming.wire.record_decoders import Decoder
from tests import scenarios
from tests.scenarios import Scenario

DECODERS: dict[Any, Decoder[Any]] = {
    "queue-arrivals": input_records.arrivals_decoder,
    "queue-receives": input_records.receives_decoder,
    "queue-commands": input_records.commands_decoder,
}
SHARED = Path(__file__).parents[4] / "shared" / "scenarios" / "activation.json"


@pytest.mark.parametrize("scenario", scenarios.load(), ids=lambda scenario: scenario.id)
def test_core_passes_scenario(scenario: Scenario) -> None:
    settings = core_settings(scenario)
    batches: dict[int, list[Event]] = {}
    for event in scenario.events:
        value = json.dumps(event["value"]).encode()
        record = input_records.decode(DECODERS[event["topic"]], b"Q", value, len(value))
        batches.setdefault(event["at_ms"], []).append(record.event())

    written: list[dict[str, Any]] = []
    names = (f"#{number}" for number in count(1))
    queue: Queue | None = None
    now_ms = 0
    while now_ms < scenario.until_ms:
        step = step_queue(queue, batches.pop(now_ms, []), now_ms, settings, lambda _: next(names))
        queue = step.queue
        written += [
            {"due_ms": now_ms, "event_type": notification.event_type.value, "copies": len(notification.notifications)}
            for notification in step.notifications
        ]
        started = [task for task in step.tasks.values() if task is not None and not task.is_confirmed]
        written += [{"due_ms": now_ms, "event_type": scenarios.TASK, "copies": 1} for _ in started]
        upcoming = [*batches, queue.next_wake_ms(queue.next_check_ms()) if queue else FOREVER_MS]
        assert min(upcoming) > now_ms
        now_ms = min(upcoming)

    assert written == [{name: each[name] for name in ("due_ms", "event_type", "copies")} for each in scenario.expect]


def core_settings(scenario: Scenario) -> CoreSettings:
    timeout_ms = scenario.settings["external_activation_timeout_ms"]
    return CoreSettings(
        quiet_window_ms=scenario.settings["quiet_window_ms"],
        external_activation_timeout_ms=FOREVER_MS if timeout_ms is None else timeout_ms,
        semantics=Semantics(scenario.settings["semantics"]),
    )


@pytest.mark.skipif(not SHARED.exists(), reason="there is no second copy of the scenarios beside this checkout")
def test_scenarios_of_the_design_are_among_them() -> None:
    own = json.loads(scenarios.PATH.read_text())["scenarios"]
    designed = json.loads(SHARED.read_text())["scenarios"]
    assert [each for each in own if each in designed] == designed
