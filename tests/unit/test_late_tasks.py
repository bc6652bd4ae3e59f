"""A host that finds tasks which came too late tells the first, and how many more there were."""

from streaming.daemons.host.late_tasks import LateTasks


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
