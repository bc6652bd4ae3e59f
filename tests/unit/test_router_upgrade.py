"""A shard of an older router goes on: its state opens, and nothing in it is lost or kept for ever."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.core.conversations.snapshot import FORMAT_VERSION
from streaming.core.routing.conversation import Instance
from streaming.spark.blocks import RECORDS
from streaming.spark.routing.run_shard import run_shard
from streaming.spark.routing.shard_settings import RouterShardSettings
from streaming.spark.routing.shard_state import STATE_SCHEMA, StateRow
from streaming.spark.routing.sources import RouterSource

SETTINGS = RouterShardSettings("", 1, 1, Instance(frozenset(["tcp://here:9092"])), secret="s")  # noqa: S106
MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * 60 * MINUTE_MS
BROKER_INSTANCE = "11111111-0000-4000-8000-000000000000"


def stored(version: int) -> StateRow:
    """Returns a shard as a router of an older version has stored it."""
    file = Path(__file__).parents[1] / "snapshots" / f"router-version-{version}.json"
    found = json.loads(file.read_text())
    packed = (base64.b64decode(found[name]) for name in ("head", "definitions", "conversations"))
    return found["version"], found["clock_ms"], found["batch_ms"], found["wake_ms"], *packed


class Shard:
    """The shard, with the views that it has written."""

    def __init__(self, state: StateRow) -> None:
        self.state = state
        self.now_ms = state[2]
        self.views: dict[str, dict[bytes, Any]] = {"service-conversations": {}, "service-transmissions": {}}

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        tick = {"source": RouterSource.TICKS, "timestamp_ms": self.now_ms}
        columns = [
            pa.array([tick.get(each.name, 0 if pa.types.is_integer(each.type) else None)], each.type)
            for each in RECORDS
        ]
        taken = run_shard(self.state, pa.table(columns, schema=RECORDS), self.now_ms, SETTINGS, 0)
        self.state = taken.state or self.state
        for topic, key, value, _, _ in taken.rows:
            if topic in self.views:
                self.views[topic][key or b""] = None if value is None else json.loads(value)


def test_a_shard_of_format_3_goes_on() -> None:
    shard = Shard(stored(3))
    shard.wait(1_000)
    assert shard.state[0] == FORMAT_VERSION
    assert len(shard.state) == len(STATE_SCHEMA.split(","))
    shard.wait(30 * MINUTE_MS)
    gone = {key for key, row in shard.views["service-conversations"].items() if row is None}
    assert {b"closed/initiator", b"closed/target"} <= gone
    # The Error that ended the other lifetime was never acknowledged.
    for _ in range(8):
        shard.wait(WEEK_MS // 7)
    shard.wait(30 * MINUTE_MS)
    assert shard.views["service-transmissions"][b"limited/initiator"] is None
    assert shard.views["service-transmissions"][b"far/initiator"] is not None, "an open conversation waits"
