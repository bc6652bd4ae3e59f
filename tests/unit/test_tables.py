"""The lines that `queues` prints below its table: the meanings of the states, and the procedures that fail."""

import io
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from streaming.cli import monitor_rows, monitors_view, tables
from streaming.cli.main import app
from streaming.cli.present import NOBODY_MISSING, Present
from streaming.cli.task_failures import failure
from streaming.core.times import iso_time
from streaming.system import ages, wall_clock
from streaming.wire.notifications import Activation

ROW: dict[str, Any] = {
    "queue": "orders",
    "state": "NOTIFIED",
    "unread_messages": 3,
    "tasks_waiting": 0,
    "tasks_running": 0,
    "max_queue_readers": 2,
    "is_procedure_failed": False,
    "is_receive_enabled": True,
    "activation_sequence": 7,
    "last_activated_time": "2026-01-02T03:04:05.678Z",
    "next_check_time": None,
}
ACTIVATION = Activation("QUEUE_ACTIVATION", "2026-01-02T03:04:05.678Z", "orders", "id", 1, 3, 0, "default")
TIME = "2026-01-02 03:04:05 UTC"
FAILING = {"failing_since": "2026-01-02T03:04:05.678Z", "failing_procedure": "read_orders", "task_failure": "no host"}


def shown(*rows: dict[str, Any], present: Present = NOBODY_MISSING, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(monitors_view.view(list(rows), present=present))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def test_only_the_states_that_occur_are_explained() -> None:
    text = shown(ROW, ROW | {"queue": "off", "state": None, "is_receive_enabled": False})
    assert "NOTIFIED: a reader was requested" in text
    assert "queue OFF: no notification is written" in text
    assert "INACTIVE:" not in text
    assert "at (UTC)" in text
    assert "`queue-activation queue show QUEUE` says why" in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task_failures": 1}, f"procedure read_orders has failed since {TIME}: no host"),
        (
            {"task_failures": 3},
            f"procedure read_orders has failed 3 times in a row since {TIME}: no host",
        ),
        (
            {"task_failures": 3, "next_start_time": "9999-01-02T03:04:25.678Z"},
            f"has failed 3 times in a row since {TIME}, and is tried again at 9999-01-02 03:04:25 UTC: no host",
        ),
    ],
)
def test_a_procedure_that_fails_is_named(fields: dict[str, Any], said: str) -> None:
    row = ROW | FAILING | fields
    assert said in str(failure(row, NOBODY_MISSING))
    assert "orders: procedure read_orders has failed" in shown(row)
    assert "0/2 failed" in shown(row)


def test_the_number_of_a_row_is_called_its_sequence_because_it_does_not_count_activations_alone() -> None:
    # Five rollbacks after one activation: BROKER_QUEUE_DISABLED has the number 2.
    disabled = ROW | {"state": None, "is_receive_enabled": False, "activation_sequence": 2}
    for width, said in ((200, "sequence"), (60, "sequence 2, last request at")):
        assert said in (text := shown(disabled, width=width))
        assert "times" not in text


def test_a_row_of_an_older_monitor_has_no_failure() -> None:
    assert failure(ROW, NOBODY_MISSING) is None


def test_a_procedure_without_a_name_can_fail() -> None:
    assert "procedure without a name has failed" in str(failure(ROW | {"task_failures": 1}, NOBODY_MISSING))


def test_the_version_and_the_completion() -> None:
    version = CliRunner().invoke(app, ["--version"])
    assert version.exit_code == 0
    assert version.output.startswith("queue-activation 0.")
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def activation(second: int, queue: str = "orders", **fields: Any) -> Activation:
    time = f"2026-01-02T03:04:{second:02d}.678Z"
    return msgspec.structs.replace(ACTIVATION, queue=queue, post_time=time, sequence=second, **fields)


class Follower:
    """Gives one partition after the other, as Kafka does for what is there already, and then news."""

    def __init__(self, old: list[Activation], new: list[Activation]) -> None:
        self._old, self._new = old, new

    def to_end(self) -> Iterator[Any]:
        return iter(self._old)

    def forever(self, _meanwhile: object) -> Iterator[Any]:
        return iter(self._new)


def watched(
    monkeypatch: pytest.MonkeyPatch,
    follower: Follower,
    *,
    width: int = 200,
    is_old: bool = True,
    day: str = "2026-01-02",
) -> list[str]:
    monkeypatch.setattr(ages, "today", lambda: day)
    monkeypatch.setattr(tables, "decode", lambda message: message)
    console = Console(file=io.StringIO(), width=width)
    tables.watch(follower, console, False, is_old)  # type: ignore[arg-type]
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_watch_shows_what_is_there_in_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower([activation(1), activation(5), activation(2), activation(4)], [activation(3)])
    assert [line[6:8] for line in watched(monkeypatch, follower)] == ["01", "02", "04", "05", "03"]
    assert [line[6:8] for line in watched(monkeypatch, follower, is_old=False)] == ["03"]


def test_watch_keeps_no_more_than_so_many_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_SORTED", 2)
    follower = Follower([activation(second) for second in (3, 2, 4, 1)], [])
    assert [line[6:8] for line in watched(monkeypatch, follower)] == ["02", "01", "03", "04"]


@pytest.mark.parametrize("reason", ["MESSAGE_ARRIVED_ON_EMPTY_QUEUE", "MESSAGES_ACCUMULATING", "TIMEOUT_EXPIRED"])
def test_a_line_of_watch_fits_into_80_columns(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    one = activation(1, "customer-orders", unread_messages=12_345, reason=reason)
    [line] = watched(monkeypatch, Follower([one], []), width=80)
    assert len(line) <= 80
    assert all(word in line for word in ("customer-orders", "#1", "12345", reason))


def all_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from all_commands(inner, (*words, name))


@pytest.mark.parametrize("words", [*all_commands(typer.main.get_command(app))], ids=" ".join)
def test_help_has_whole_sentences(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}, terminal_width=80).output
    assert "..." not in shown.partition("Commands:")[2]
    usage, *lines = shown.splitlines()
    assert usage.startswith("Usage: ")
    assert all(len(line) <= 80 and not line.endswith(("...", "…")) for line in lines)


def test_an_uncertain_count_has_a_question_mark_that_is_explained() -> None:
    text = shown(ROW | {"is_count_uncertain": True})
    assert " 3? " in text
    assert "?: reports were deleted by Kafka" in text
    assert "?" not in shown(ROW | {"is_count_uncertain": False})


def test_a_task_that_no_host_has_taken_is_called_so_since_when_and_with_what_to_do() -> None:
    def shown(*rows: dict[str, Any]) -> str:
        console = Console(file=io.StringIO(), width=200)
        console.print(tables.tasks_view(list(rows)))
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    taken = {
        "queue": "orders",
        "procedure_name": "read_orders",
        "sequence": 1,
        "task_id": "0123456789",
        "start_time": "2026-01-02T03:04:05.678Z",
        "is_confirmed": True,
        "host": "host-1",
    }
    waiting = taken | {"is_confirmed": False, "host": None, "start_time": "2026-01-02T03:04:01.678Z"}
    earlier = waiting | {"start_time": "2026-01-02T03:03:59.678Z"}
    what_to_do = "Does a host run? One is started with: `queue-activation host --config FILE`"
    assert "host-1" in shown(taken)
    assert "no host" not in shown(taken)
    assert "not taken yet" in shown(taken, waiting)
    assert f"no host has taken 1 task, since 2026-01-02 03:04:01 UTC. {what_to_do}" in shown(taken, waiting)
    assert f"no host has taken 2 tasks, the first since 2026-01-02 03:03:59 UTC. {what_to_do}" in shown(
        waiting, earlier
    )


SEEN = {"members": 2, "one_more": True}
UNHEARD = {"members": 2, "one_more": None, "observer_silent_since": "2026-01-02T03:04:05.678Z"}


def test_queues_whose_readers_report_nothing_have_members_and_an_answer_beside_their_state() -> None:
    text = shown(ROW | SEEN, ROW | {"queue": "told"}, ROW | SEEN | {"queue": "idle", "one_more": False, "members": 0})
    assert "one more: of a queue whose readers report nothing, whether one more would have work" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if "NOTIFIED " in line}
    assert lines["orders"][4:6] == ["2", "yes"]
    assert lines["told"][4:6] == ["-", "-"]
    assert lines["idle"][4:6] == ["0", "no"]
    assert "one more" not in shown(ROW)


def test_queues_of_which_no_observer_reports_are_named_with_what_to_do() -> None:
    rows = [*(ROW | UNHEARD | {"queue": f"q{number}"} for number in range(5)), ROW | SEEN]
    text = " ".join(shown(*rows).split())
    assert "5 queues: q0, q1, q2 and 2 more: nothing has been heard of an observer since its last report, so no" in text
    assert "unknown" in text
    text = " ".join(shown(*rows, present=Present(observer=True)).split())
    assert (
        "5 queues: q0, q1, q2 and 2 more: an observer runs, but has said nothing of it for longer than the quiet "
        "window, so no reader is requested. Does an entry of its file name the consumer group?"
    ) in text
    assert "q0, q1" not in shown(*rows, present=Present(observer=False)), "that none runs is said before the table"


@pytest.mark.parametrize(
    ("observer_runs", "members", "answer"), [(True, "0", "no"), (None, "0", "no"), (False, "unknown", "unknown")]
)
def test_silence_about_a_group_that_has_nothing_is_no_trouble(
    observer_runs: bool | None, members: str, answer: str
) -> None:
    idle = ROW | UNHEARD | {"members": 0, "unread_messages": 0}
    text = shown(idle, ROW | SEEN | {"queue": "other"}, present=Present(observer=observer_runs))
    [line] = [line.split() for line in text.splitlines() if line.startswith("orders")]
    assert line[4:6] == [members, answer]
    assert "said nothing" not in text
    assert "nothing has been heard" not in text


def test_only_an_answer_that_should_be_known_is_yellow() -> None:
    idle = UNHEARD | {"members": 0}
    for observer_runs, fields, unread, style in (
        (True, idle, 0, ""),
        (True, idle, 3, "yellow"),
        (True, UNHEARD, 0, "yellow"),
        (False, idle, 0, "yellow"),
        (True, SEEN | {"one_more": None}, 3, ""),
    ):
        seen = monitor_rows.observed(ROW | fields, Present(observer=observer_runs))
        assert monitors_view._group_cells(seen, unread)[1].style == style


@pytest.mark.parametrize(("fields", "observer_runs"), [(UNHEARD, True), (UNHEARD, None), (SEEN, False)])
def test_members_that_an_observer_saw_before_are_not_shown_as_present(
    fields: dict[str, Any], observer_runs: bool | None
) -> None:
    text = shown(ROW | fields, present=Present(observer=observer_runs))
    [line] = [line.split() for line in text.splitlines() if line.startswith("orders")]
    assert line[4:6] == ["unknown", "unknown"]
    narrow = " ".join(shown(ROW | fields, present=Present(observer=observer_runs), width=50).split())
    assert "group unknown, one more: unknown" in narrow
    screen = shown(ROW | fields | {"queue": "parcel-readers-1"}, present=Present(observer=observer_runs), width=80)
    assert "group unknown, one more: unknown" in screen, "on one line"


def test_of_a_group_that_no_entry_names_nothing_is_shown_as_known() -> None:
    idle = ROW | UNHEARD | {"state": "INACTIVE", "members": 0, "unread_messages": 0}
    present = Present(observer=True, unwatched=frozenset({"orders"}))
    text = shown(idle, idle | {"queue": "watched"}, present=present)
    lines = {line.split()[0]: line.split() for line in text.splitlines() if " unknown " in line or " INACTIVE " in line}
    assert lines["orders"][1:7] == ["not", "watched", "unknown", "0", "unknown", "unknown"]
    assert lines["watched"][4:6] == ["0", "no"]
    assert "not watched: whether its consumer group has messages or readers is unknown" in text
    assert "INACTIVE: no reported message is unread\n" in re.sub(" +\n", "\n", text)
    assert "has said nothing of it" not in text
    for width in (40, 60, 100):
        narrow = " ".join(shown(ROW | UNHEARD | {"state": "RECEIVES_OCCURRING"}, present=present, width=width).split())
        assert "not watched" in narrow
        assert "RECEIVES_OCCURRING" not in narrow
        assert "3 unread messages" not in narrow
    mixed = " ".join(shown(ROW | UNHEARD, ROW | {"queue": "told"}).split())
    assert "has not come yet; of a consumer group whose members are unknown, a reader was requested" in mixed


def test_without_an_observer_it_is_not_known_that_there_is_nothing_to_receive() -> None:
    idle = ROW | UNHEARD | {"state": "INACTIVE", "members": 0, "unread_messages": 0}
    assert "INACTIVE: no reported message was unread" in shown(idle, present=Present(observer=False))
    assert "INACTIVE: no reported message is unread" in shown(idle, present=Present(observer=True))


def test_a_number_of_messages_is_not_read_as_one_of_readers() -> None:
    for width in (50, 80):
        for fields, present in ((UNHEARD, Present()), (SEEN, Present(observer=False))):
            text = shown(ROW | fields, present=present, width=width)
            assert not re.search(r"\d +members", text), text


def test_without_a_monitor_the_table_says_what_was() -> None:
    rows = [ROW | SEEN, ROW | {"queue": "told", "max_queue_readers": 3, "tasks_running": 1, "tasks_waiting": 2}]
    for width in (60, 200):
        text = " ".join(shown(*rows, present=Present(monitor=False), width=width).split())
        assert "waited" in text
        for now in ("waiting", "running", "one is requested", "an observer sees"):
            assert now not in text, now
        assert "one more would have had work, as an observer last saw their consumer group" in text


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (None, "Does a host run? One is started with"),
        (
            True,
            "Each host runs at most `handlers` of its file at a time; if it runs fewer, the end of its log says why",
        ),
        (False, "None runs"),
    ],
)
def test_tasks_says_of_tasks_that_no_host_has_taken_whether_one_runs(host: bool | None, said: str) -> None:
    task = {"queue": "q", "procedure_name": "p", "sequence": 1, "start_time": "2026-01-02T03:04:05.678Z", "host": None}
    console = Console(file=io.StringIO(), width=200)
    console.print(tables.tasks_view([task | {"is_confirmed": False, "task_id": "t"}], Present(host=host)))
    assert f"no host has taken 1 task, since {TIME}. {said}" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("host", "is_said"), [(None, False), (True, False), (False, True)])
def test_a_task_that_was_just_requested_is_only_not_taken_yet_unless_it_is_known_why(
    host: bool | None, is_said: bool
) -> None:
    requested = iso_time(wall_clock.now_ms() - 3_000)
    task = {"queue": "q", "procedure_name": "p", "sequence": 1, "start_time": requested, "host": None}
    console = Console(file=io.StringIO(), width=200)
    console.print(tables.tasks_view([task | {"is_confirmed": False, "task_id": "t"}], Present(host=host)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "not taken yet" in text
    assert ("no host has taken" in text) is is_said


def test_tasks_says_which_hosts_are_stopping() -> None:
    task = {"queue": "q", "procedure_name": "p", "sequence": 1, "start_time": "2026-01-02T03:04:05.678Z"}
    taken = [task | {"is_confirmed": True, "task_id": host, "host": host} for host in ("vm:1", "vm:2")]
    asked = task | {"is_confirmed": False, "task_id": "t", "host": None}
    console = Console(file=io.StringIO(), width=200)
    console.print(tables.tasks_view([*taken, asked], Present(host=False, stopping=frozenset({"vm:1"}))))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "vm:1, stopping" in text
    assert "vm:2, stopping" not in text
    assert "None runs that would take a further one" in text


@pytest.mark.parametrize(
    ("present", "heading"),
    [
        (Present(), "running"),
        (Present(host=True), "running"),
        (Present(host=False), "requested"),
        (Present(host=False, stopping=frozenset({"vm:1"})), "running"),
    ],
)
def test_tasks_that_no_host_can_have_taken_are_not_called_running(present: Present, heading: str) -> None:
    row = ROW | {"max_queue_readers": 3, "tasks_running": 1}
    assert shown(row, present=present).splitlines()[1].split().count(heading) == 1
    narrow = " ".join(shown(row, present=present, width=50).split())
    assert f"tasks {'requested ' if heading == 'requested' else ''}1/3" in narrow


PASSED, TO_COME = "2026-01-02T03:04:25.678Z", "9999-01-02T03:04:25.678Z"


@pytest.mark.parametrize(
    ("next_start", "monitor", "said"),
    [
        (
            PASSED,
            True,
            "has failed 3 times in a row since {}, and is tried again with one of the monitor's next batches",
        ),
        (PASSED, False, "had failed 3 times in a row since {}, and is tried again as soon as a monitor runs"),
        (
            TO_COME,
            False,
            "had failed 3 times in a row since {}, and is tried again as soon as a monitor runs, but not before "
            "9999-01-02 03:04:25 UTC",
        ),
    ],
)
def test_a_task_is_not_tried_again_at_an_instant_that_has_passed_nor_without_a_monitor(
    next_start: str, monitor: bool, said: str
) -> None:
    row = ROW | FAILING | {"task_failures": 3, "next_start_time": next_start}
    assert failure(row, Present(monitor)) == f"procedure read_orders {said.format(TIME)}: no host"


def test_the_next_check_is_to_come_or_due_and_nobody_checks_without_a_monitor() -> None:
    for at, monitor, cell in ((TO_COME, True, "03:04:25"), (PASSED, True, "due"), (TO_COME, False, "-")):
        text = shown(ROW | {"next_check_time": at}, present=Present(monitor))
        assert text.splitlines()[2].rstrip().endswith(cell)
        assert ("due: the instant of the next check has passed" in text) == (cell == "due")


@pytest.mark.parametrize("lease", [{"tasks_running": 1}, {"tasks_waiting": 1}, {"hindrance": "NOTHING_UNREAD"}])
def test_a_lease_that_reports_postpone_is_no_check_that_is_due(lease: dict[str, Any]) -> None:
    for at, cell in ((TO_COME, "03:04:25"), (PASSED, "-")):
        row = ROW | lease | {"next_check_time": at}
        assert shown(row).splitlines()[2].rstrip().endswith(cell)
        assert "due" not in shown(row) + shown(row, width=60)


@pytest.mark.parametrize(("at", "cell"), [(TO_COME, "03:04:25"), (PASSED, "due")])
def test_the_end_of_a_quiet_window_is_a_check_whatever_lease_ends_before(at: str, cell: str) -> None:
    row = ROW | {"state": "RECEIVES_OCCURRING", "tasks_running": 1, "hindrance": "QUIET_WINDOW", "quiet_until": at}
    assert shown(row | {"next_check_time": PASSED}).splitlines()[2].rstrip().endswith(cell)


def test_without_a_monitor_the_legend_says_what_was() -> None:
    rows = [ROW | {"queue": state, "state": state} for state in ("NOTIFIED", "INACTIVE", "RECEIVES_OCCURRING")]
    text = shown(*rows, present=Present(monitor=False))
    for meaning in (
        "had not come yet",
        "INACTIVE: no reported message was unread",
        "RECEIVES_OCCURRING: there were messages",
    ):
        assert meaning in text
    assert "has not come yet" in shown(*rows)


@pytest.mark.parametrize(
    ("fields", "present", "is_asked"),
    [
        ({}, Present(), True),
        ({}, Present(host=True), True),
        ({}, Present(host=False), False),
        ({}, Present(host=False, stopping=frozenset({"vm:1"})), True),
        ({}, Present(monitor=False), False),
        ({"state": "RECEIVES_OCCURRING"}, Present(), False),
        ({"tasks_running": 0}, Present(), False),
        ({"last_activated_time": TO_COME}, Present(), False),
        ({"is_activation_enabled": False}, Present(), False),
    ],
)
def test_of_a_task_that_runs_and_does_not_receive_it_is_asked_whether_it_hangs(
    fields: dict[str, Any], present: Present, is_asked: bool
) -> None:
    asked = (
        f"1 task runs, and nobody has called RECEIVE since activation 7 at {TIME}: does it report, or does it hang? "
        "See docs/guide/reporting.md"
    )
    row = ROW | {"tasks_running": 1} | fields
    assert failure(row, present) == (asked if is_asked else None)
    assert (f"orders: {asked}" in shown(row, present=present)) == is_asked
    assert "2 tasks run, and" in str(failure(ROW | {"tasks_running": 2}, Present()))
