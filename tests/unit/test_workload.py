"""The timeline of the workload."""

import itertools
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from producers import workload
from producers.workload import WorkloadSettings, timeline
from streaming.cli import clients
from streaming.cli.main import app
from streaming.kafka.admin import Admin, GroupMember
from streaming.kafka.clients import Cluster
from streaming.system import durations
from streaming.wire.input_records import Commit, MessageArrived, Receive

LONGEST_MS = durations.LONGEST_MS


def settings(duration_ms: int, seed: int = 1) -> WorkloadSettings:
    return WorkloadSettings(queues=5, rate=50.0, duration_ms=duration_ms, seed=seed, has_readers=True)


def test_the_longest_workload_begins_at_once() -> None:
    begin = list(itertools.islice(timeline(settings(LONGEST_MS)), 1_000))
    assert [one.at_ms for one in begin] == sorted(one.at_ms for one in begin)


def test_the_same_seed_is_the_same_timeline_and_another_one_is_not() -> None:
    first, again, other = (list(timeline(settings(60_000, seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_what_arrives_is_read_once_and_never_before() -> None:
    unread = 0
    taken: dict[tuple[str, str | None], int] = {}
    for happening in timeline(settings(60_000)):
        record = happening.record
        if isinstance(record, MessageArrived):
            unread += record.count
        elif isinstance(record, Receive) and record.result == "MESSAGES":
            taken[record.session_id, record.transaction_id] = record.messages or 0
        elif isinstance(record, Commit):
            unread -= taken[record.session_id, record.transaction_id]
            assert unread >= 0
    assert unread == 0


class Nowhere:
    """A producer that sends nothing."""

    def produce(self, topic: str, key: bytes, value: bytes) -> None:
        pass

    def poll(self, timeout_s: float) -> None:
        pass

    def flush(self) -> None:
        pass


def test_a_workload_says_how_many_of_its_queues_got_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admin, "require_topics", lambda _admin, _rights: {})
    monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember("1", "monitor", "127.0.0.1", 1)])
    monkeypatch.setattr(Cluster, "producer", lambda _cluster, _config: Nowhere())
    done = CliRunner().invoke(app, ["workload", "--queues", "5", "--rate", "50", "--duration", "300ms"])

    assert done.output.startswith("12 messages to 4 of 5 queues in 300ms (seed 1)")


def test_a_workload_that_falls_behind_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    instants_s = itertools.count(step=20)
    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: next(instants_s)))
    monkeypatch.setattr(Admin, "require_topics", lambda _admin, _rights: {})
    monkeypatch.setattr(Admin, "members", lambda *_: [GroupMember("1", "monitor", "127.0.0.1", 1)])
    monkeypatch.setattr(workload, "report", lambda *_: Counter({"queue-1": 2}))
    done = CliRunner().invoke(app, ["workload", "--queues", "5", "--duration", "10s"])
    assert re.fullmatch(r"2 messages to 1 of 5 queues in 10s \(seed 1\), \d+\.0 s behind\n", done.output)
