"""A host refuses tasks that come too late. It tells the first, and how many more there were."""

from streaming.daemons.host.config import HostConfig, Procedure
from streaming.daemons.host.invocation import Invocation
from streaming.daemons.host.late_tasks import LateTasks
from streaming.daemons.host.start_records import StartRecord
from streaming.daemons.host.task_decisions import Refusal, decide
from streaming.wire.output_records import StartActivatedTask


def test_many_late_tasks_are_told_in_two_lines() -> None:
    lines: list[str] = []
    late = LateTasks(lines.append)
    assert [late.is_first() for _ in range(1_001)] == [True, *[False] * 1_000]
    late.end()
    assert lines == ["1,000 more tasks came too late, and failed to start: the monitor had given up waiting for a host"]


def test_a_single_late_task_needs_no_further_line() -> None:
    lines: list[str] = []
    late = LateTasks(lines.append)
    for _ in range(3):
        assert late.is_first()
        late.end()
    late.end()
    assert lines == []


TASK = StartActivatedTask("orders", "task-1", "p", None, 7, "2026-01-01T00:00:00.000Z")
RECORD = StartRecord(0, 1, TASK, expires_ms=1_000, is_repeat=False)
RUNS, OTHER = (HostConfig([Procedure(name, command="true")]) for name in ("p", "q"))


def test_what_comes_too_late_is_refused_as_such_whatever_the_configuration_has() -> None:
    for config in (RUNS, OTHER):
        refused = decide(RECORD, config, {}, 1_000)
        assert isinstance(refused, Refusal)
        assert refused.is_late
        assert refused.reason.startswith("it came too late: the monitor gave it up at ")


def test_what_comes_in_time_runs_or_is_refused_for_another_reason() -> None:
    assert isinstance(decide(RECORD, RUNS, {}, 999), Invocation)
    refused = decide(RECORD, OTHER, {}, 999)
    assert refused == Refusal("the host's configuration has no entry for the procedure 'p'", is_late=False)
