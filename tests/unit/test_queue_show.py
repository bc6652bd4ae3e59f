"""The output of `queue show` for people."""

import io
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from streaming.cli import queue_facts
from streaming.cli.activators import Told
from streaming.cli.group_facts import GroupFacts
from streaming.cli.present import Present
from streaming.cli.queue_facts import QueueFacts
from streaming.cli.queue_show import as_json, headline_of, show
from streaming.core.activation.definition import ActivationClause, QueueDefinition
from streaming.core.activation.sessions import Lease, Session, Wait
from streaming.wire.activator_rows import ActivatorRow
from streaming.wire.notifications import Activation

# The row of a queue that was set OFF after its second activation.
OFF: dict[str, Any] = {
    "queue": "orders",
    "state": None,
    "unread_messages": 3,
    "tasks_waiting": 0,
    "tasks_running": 0,
    "max_queue_readers": None,
    "is_procedure_failed": False,
    "is_receive_enabled": False,
    "activation_sequence": 2,
    "last_empty_rowset_time": None,
    "last_activated_time": None,
    "next_check_time": None,
}
ACTIVATION = Activation(
    event_type="QUEUE_ACTIVATION",
    post_time="2026-01-02T03:04:05.678Z",
    queue="orders",
    notification="default",
    notification_id="id",
    sequence=2,
    reason="MESSAGES_ACCUMULATING",
    unread_messages=3,
    tasks_waiting=0,
)


def shown(row: dict[str, Any], *activations: Activation) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(show(QueueFacts("orders", 1, None, row, activations=list(activations))))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_queue_that_is_off_is_called_so_and_has_its_last_activations() -> None:
    text = shown(OFF, ACTIVATION)
    assert "queue OFF, 3 unread" in text
    assert "The queue is OFF: no notification is written" in text
    assert "no monitor" not in text
    assert "#2  2026-01-02 03:04:05 UTC  MESSAGES_ACCUMULATING, 3 unread" in text


def test_the_notification_that_every_queue_has_is_told_from_a_setting() -> None:
    assert "default, which a queue has unless a command says otherwise" in shown(OFF)


def test_without_a_monitor_the_state_begins_with_that() -> None:
    for row, after in ((None, "No monitor runs, and the last one"), (OFF, "No monitor runs. This is as the last one")):
        facts = QueueFacts("orders", 1, None, row, present=Present(monitor=False))
        console = Console(file=io.StringIO(), width=200)
        console.print(show(facts))
        assert after in console.file.getvalue()  # type: ignore[attr-defined]
        assert as_json(facts)["why"][:1] == (
            [] if row is None else ["No monitor runs. This is as the last one has left it."]
        )


def test_a_queue_without_notifications_has_no_monitor() -> None:
    assert "no monitor, 3 unread" in shown(OFF | {"is_receive_enabled": True})


def test_a_procedure_that_fails_is_shown_with_how_often_since_when_and_when_it_is_tried_next() -> None:
    failing = {
        "state": "NOTIFIED",
        "is_receive_enabled": True,
        "max_queue_readers": 1,
        "task_failures": 3,
        "task_failure": "it exited without calling RECEIVE",
        "failing_since": "2026-01-02T03:04:05.678Z",
        "failing_procedure": "read_orders",
        "next_start_time": "9999-01-02T03:04:45.678Z",
    }
    definition = QueueDefinition(activation=ActivationClause(procedure_name="read_orders"))
    console = Console(file=io.StringIO(), width=200)
    console.print(show(QueueFacts("orders", 1, definition, OFF | failing)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "If no RECEIVE comes first, the next one starts at 9999-01-02 03:04:45 UTC." in text
    assert (
        "procedure read_orders has failed 3 times in a row since 2026-01-02 03:04:05 UTC, and is tried again at "
        "9999-01-02 03:04:45 UTC: it exited without calling RECEIVE"
    ) in text


def test_readers_that_wait_beside_unread_messages_have_no_partition_with_messages() -> None:
    waiting = {"state": "RECEIVES_OCCURRING", "is_receive_enabled": True, "unread_messages": 63, "tasks_waiting": 2}
    text = shown(OFF | waiting | {"hindrance": "READER_WAITS"})
    assert "2 readers wait in RECEIVE although 63 messages are unread" in text
    assert "they have no partition with messages" in text


def test_activations_are_looked_for_from_the_beginning_if_the_time_of_the_last_one_was_cleared() -> None:
    assert queue_facts._activations_since_ms(None) == 0
    assert queue_facts._activations_since_ms("1970-01-01T02:00:00.000Z") == 3_600_000


def test_a_count_below_zero_is_explained() -> None:
    text = shown(OFF | {"unread_messages": -5})
    assert "-5" not in text
    assert "0 unread" in text
    assert "Readers have received 5 more than was reported as arrived: does each sender report?" in text


def test_an_uncertain_count_is_called_so() -> None:
    text = shown(OFF | {"is_count_uncertain": True})
    assert "queue OFF, 3? unread" in text
    assert "this count is uncertain until a reader finds the queue empty" in text
    assert "?" not in shown(OFF)


def test_a_queue_whose_readers_report_nothing_is_explained_by_what_its_observer_says() -> None:
    seen = {"state": "RECEIVES_OCCURRING", "is_receive_enabled": True, "members": 2, "one_more": False}
    text = shown(OFF | seen)
    assert "An observer says that their consumer group has 2 members." in text
    assert "one more reader would have no work" in text
    text = shown(OFF | SILENT)
    assert re.search(r"An observer said that .* had 2 members at 2026-01-02 03:04:05 UTC \(\d+ d ago\)\.", text)
    assert "Nothing has been heard of an observer since." in text


SILENT: dict[str, Any] = {
    "state": "RECEIVES_OCCURRING",
    "is_receive_enabled": True,
    "members": 2,
    "one_more": None,
    "observer_silent_since": "2026-01-02T03:04:05.678Z",
}
IDLE = SILENT | {"state": "INACTIVE", "members": 0, "unread_messages": 0}
GROUP = GroupFacts("readers", "Stable", 2, {"parcels": 3, "gone": None})
NOBODY = GroupFacts("readers")
TOLD = ActivatorRow("orders", "a", "activators", "host-1", "/etc/a.toml", entry="orders", group="readers")


def lines_of(facts: QueueFacts) -> dict[str, str]:
    """Returns section -> its lines."""
    console = Console(file=io.StringIO(), width=400)
    console.print(show(facts))
    found: dict[str, str] = {}
    for line in console.file.getvalue().splitlines()[1:]:  # type: ignore[attr-defined]
        name, text = line[:15].strip() or [*found][-1], line[15:].strip()
        found[name] = f"{found[name]} {text}" if name in found else text
    return found


def test_of_a_queue_that_stands_for_a_group_the_group_and_its_topics_are_shown() -> None:
    facts = QueueFacts("orders", None, None, OFF | SILENT, group=GROUP, present=Present(observer=True))
    sections = lines_of(facts)
    assert [*sections] == ["state", "group", "topics", "activator", "last notified"]
    assert sections["group"] == "readers: Stable, 2 members"
    assert sections["topics"] == "parcels: 3 partitions gone: does not exist, or this user may not see it"
    assert as_json(facts)["group"] == {
        "name": "readers",
        "state": "Stable",
        "members": 2,
        "backlog": None,
        "topics": {"parcels": 3, "gone": None},
    }
    denied = lines_of(QueueFacts("orders", None, None, OFF | SILENT, group=GroupFacts("readers", problem="unknown: x")))
    assert denied["group"] == "readers: unknown: x"


def test_what_a_command_or_a_reader_has_said_of_a_group_is_shown_too() -> None:
    definition = QueueDefinition(activation=ActivationClause(procedure_name="read_orders"))
    sections = lines_of(
        QueueFacts(
            "orders", 3, definition, OFF | SILENT, sessions={"s": Session(None, {"t": 2}, Lease(0))}, group=GROUP
        )
    )
    assert {"definition", "procedure", "sessions"} <= sections.keys()
    assert not {"topic", "tasks"} & sections.keys()
    assert as_json(QueueFacts("orders", 1, None, OFF))["group"] is None


def test_a_group_that_only_the_activators_file_knows_is_explained() -> None:
    told = [Told(TOLD, True, 0)]
    facts = QueueFacts("orders", None, None, None, activators=told, group=NOBODY)
    state = lines_of(facts)["state"]
    assert (
        "unknown to the monitor, which has read no record of this consumer group: no observer has reported it" in state
    )
    needs_topics = "nobody knows which topics it reads: name them in its entry of the activator's file, with `topics`."
    assert needs_topics in state
    assert needs_topics in as_json(facts)["why"][0]
    facts.present = Present(monitor=False)
    assert needs_topics in lines_of(facts)["state"]
    facts.group = GroupFacts("readers", topics={"parcels": 1})
    assert needs_topics not in lines_of(facts)["state"]


def test_a_group_whose_topic_does_not_exist_gets_no_promise() -> None:
    group, missing = GroupFacts("readers", topics={"leters": None}), ["topic leters does not exist. Create it"]
    facts = QueueFacts("orders", None, None, OFF | IDLE, group=group, present=Present(observer=True))
    assert "The next message" in lines_of(facts)["state"]
    facts.missing_topics = missing
    state = lines_of(facts)["state"]
    assert "Topic leters does not exist. Create it." in state
    assert "The next message" not in state


def test_a_group_that_no_entry_names_any_more_gets_no_promise() -> None:
    no_entry = (
        "No entry of the activator's file names its consumer group, so nobody watches it. The last report was at "
    )
    for row in (IDLE, SILENT):
        for entry, is_running, is_told in ((None, True, True), ("orders", True, False), (None, False, False)):
            told = [Told(msgspec.structs.replace(TOLD, entry=entry), is_running, 0)]
            facts = QueueFacts(
                "orders", None, None, OFF | row, activators=told, group=GROUP, present=Present(observer=True)
            )
            state = lines_of(facts)["state"]
            assert (no_entry in state) == is_told
            drop = "add an entry, or drop what is not needed any more: `queue-activation queue drop orders`."
            assert (f"and no reader is requested: {drop}" in state) == is_told
            before = f"not watched any more; before: {row['state']}, "
            assert state.startswith(before if is_told else row["state"])
            assert (" unread when an observer last reported it, " in state) == (is_told or row is SILENT)
            assert ("The next message" in state) == (row is IDLE and not is_told)
    assert no_entry not in lines_of(QueueFacts("orders", None, None, OFF | SILENT, group=GROUP))["state"]


SEEN = {name: value for name, value in SILENT.items() if name != "observer_silent_since"}
# Rows of which the observer's word is old: it is silent, it does not run, or no monitor has heard it.
OLD = [
    (SILENT, Present(observer=True)),
    (SILENT, Present(observer=False)),
    (SEEN, Present(observer=False)),
    (SILENT, Present(monitor=False)),
    (SEEN, Present(monitor=False, observer=True, as_of_ms=1_700_000_000_000)),
]


@pytest.mark.parametrize(("row", "present"), OLD)
def test_without_an_observer_or_a_monitor_nobody_is_said_to_do_anything(row: dict[str, Any], present: Present) -> None:
    unknown = GroupFacts("readers", problem="unknown: no right")
    state = lines_of(QueueFacts("orders", None, None, OFF | row, group=unknown, present=present))["state"]
    assert "An observer said that their consumer group had 2 members" in state
    assert "observer says" not in state
    if row is SILENT or present.as_of_ms is not None:
        assert re.search(r"had 2 members at [0-9-]+ [0-9:]+ UTC \(\d+ d ago\)", state)


@pytest.mark.parametrize(("row", "present"), OLD)
def test_members_that_an_observer_saw_before_are_not_told_beside_those_of_now(
    row: dict[str, Any], present: Present
) -> None:
    empty = GroupFacts("readers", "Empty", 0, {"parcels": 3})
    sections = lines_of(QueueFacts("orders", None, None, OFF | row, group=empty, present=present))
    assert sections["group"] == "readers: Empty, 0 members"
    assert "2 members" not in sections["state"]
    assert "Its readers report nothing." in sections["state"]
    if row is SILENT and present.observer:
        assert "has said nothing of this group since 2026-01-02 03:04:05 UTC (" in sections["state"]


def test_of_a_group_that_nobody_looks_at_any_more_the_count_is_told_as_that_of_then() -> None:
    group = GroupFacts("readers", "Empty", 0, {"parcels": 3}, backlog=3)
    for present in (Present(observer=False), Present(monitor=False, observer=False)):
        sections = lines_of(QueueFacts("orders", None, None, OFF | IDLE, group=group, present=present))
        assert sections["group"] == "readers: Empty, 0 members, backlog 3"
        assert sections["state"].startswith("INACTIVE, 0 unread when an observer last reported it, ")
        assert "There was nothing to receive. Messages that have come since activate the queue" in sections["state"]
    group = replace(group, backlog=0)
    seen = lines_of(QueueFacts("orders", None, None, OFF | IDLE, group=group, present=Present(observer=True)))["state"]
    assert seen.startswith("INACTIVE, 0 unread, ")


@pytest.mark.parametrize(("unread", "backlog"), [(0, 0), (0, 3), (1, 0), (1, 1), (2, 5), (1, None)])
@pytest.mark.parametrize("state", ["NOTIFIED", "RECEIVES_OCCURRING", "INACTIVE"])
def test_a_count_that_differs_from_the_present_backlog_is_told_as_that_of_a_report(
    state: str, unread: int, backlog: int | None
) -> None:
    group = GroupFacts("readers", "Empty", 0, {"parcels": 3}, backlog=backlog)
    unread = 0 if state == "INACTIVE" else unread  # by the definition of this state
    row = OFF | IDLE | {"state": state, "unread_messages": unread, "observer_silent_since": None}
    facts = QueueFacts("orders", None, None, row, group=group, present=Present(observer=True))
    told, is_same = lines_of(facts)["state"], backlog in (None, unread)
    assert told.startswith(f"{state}, {unread} unread{'' if is_same else ' when an observer last reported it'}, ")
    assert not (backlog and re.search("There is nothing to receive|Nothing is unread", told))


def test_members_that_have_come_or_gone_since_are_those_of_now() -> None:
    for now, told in ((2, True), (1, False)):
        group = GroupFacts("readers", "Stable", now, {"parcels": 3})
        state = lines_of(QueueFacts("orders", None, None, OFF | SEEN, group=group, present=Present(observer=True)))
        assert ("An observer says that their consumer group has 2 members." in state["state"]) == told


def test_of_a_view_that_no_monitor_keeps_up_to_date_it_is_said_why() -> None:
    starts = Present(monitor=False, gone="The monitor is just starting")
    [first, *_] = as_json(QueueFacts("orders", 1, None, OFF, present=starts))["why"]
    assert first == "The monitor is just starting. This is as the last one has left it."
    unknown = lines_of(QueueFacts("orders", 1, QueueDefinition(), None, present=starts))["state"]
    assert unknown.startswith("The monitor is just starting, and the last one, if there was one, has read no record")


def test_a_task_that_no_host_takes_waits_for_nobody_if_none_runs() -> None:
    task = {"task_id": "0123456789", "sequence": 4, "start_time": "2026-01-02T03:04:05.678Z", "host": None}
    for host, said in (
        (None, "not taken by a host yet; does `queue-activation host --config FILE` run?"),
        (True, "not taken by a host yet"),
        (False, "not taken by a host: none runs"),
    ):
        facts = QueueFacts("orders", 1, None, OFF, tasks=[task | {"is_confirmed": False}], present=Present(host=host))
        assert lines_of(facts)["tasks"].endswith(said)
    facts.present = Present(host=False, stopping=frozenset({"vm:1"}))
    assert lines_of(facts)["tasks"].endswith("not taken by a host: none runs that would take it")
    facts.tasks = [task | {"is_confirmed": True, "host": "vm:1"}]
    assert lines_of(facts)["tasks"].endswith("runs on vm:1, which is stopping")


@pytest.mark.parametrize(("waiting", "waits", "is_told"), [(1, 0, True), (1, 1, False), (0, 1, True), (0, 0, False)])
def test_sessions_that_differ_from_the_count_of_the_state_are_said_to_be_of_another_time(
    waiting: int, waits: int, is_told: bool
) -> None:
    sessions = {"s": Session(Wait(False, 0, Lease(0)), {}, Lease(0))} if waits else {}
    facts = QueueFacts("orders", 1, None, OFF | {"tasks_waiting": waiting}, sessions=sessions)
    text = lines_of(facts)["sessions"]
    assert text.startswith("s  waits in RECEIVE" if waits else "none")
    note = "(by the reports of the last 10m until now; the state above is that of the monitor's last batch)"
    assert (note in text) == is_told


def test_a_reader_is_not_expected_that_no_host_would_start() -> None:
    row = OFF | {"state": "NOTIFIED", "is_receive_enabled": True, "max_queue_readers": 1}
    task = {"task_id": "0123456789", "sequence": 4, "start_time": "2026-01-02T03:04:05.678Z", "host": "vm:1"}
    for present, is_confirmed, is_told in (
        (Present(host=False), False, True),
        (Present(host=False), True, False),  # a host with another --group-id has taken it
        (Present(host=False, stopping=frozenset({"vm:1"})), False, False),
        (Present(host=True), False, False),
        (Present(), False, False),
    ):
        tasks = [task | {"is_confirmed": is_confirmed}]
        facts = QueueFacts("big", 1, None, row, tasks=tasks, present=present)
        assert (
            "no RECEIVE has come since: no host runs that would take its task." in lines_of(facts)["state"]
        ) == is_told
    facts = QueueFacts("big", 1, None, row | {"hindrance": "UNANSWERED"}, present=Present(host=False))
    assert headline_of(facts).endswith(", but no host runs that would take its task.")


def test_without_a_monitor_procedure_and_tasks_are_as_the_last_one_has_left_them() -> None:
    row = OFF | {"state": "NOTIFIED", "is_receive_enabled": True, "max_queue_readers": 1, "task_failures": 3}
    task = {"task_id": "0123456789", "sequence": 4, "start_time": "2026-01-02T03:04:05.678Z", "host": "vm:1"}
    definition = QueueDefinition(activation=ActivationClause(procedure_name="read_orders"))
    facts = QueueFacts("orders", 1, definition, row, tasks=[task | {"is_confirmed": True}])
    for monitor, how, has in ((True, "runs on vm:1", "has"), (False, "ran on vm:1, when a monitor last wrote", "had")):
        facts.present = Present(monitor)
        assert lines_of(facts)["tasks"].endswith(how)
        assert f"procedure without a name {has} failed" in lines_of(facts)["procedure"]


def test_the_monitor_does_not_look_again_at_an_instant_that_has_passed() -> None:
    row = OFF | {"state": "NOTIFIED", "is_receive_enabled": True, "last_activated_time": "2026-01-02T03:04:05.678Z"}
    for at, said in (
        ("2026-01-02T03:04:35.678Z", "the monitor looks again with one of its next batches."),
        ("9999-01-02T03:04:35.678Z", "the monitor looks again at 9999-01-02 03:04:35 UTC."),
    ):
        assert said in shown(row | {"next_check_time": at})


@pytest.mark.parametrize("state", ["INACTIVE", "NOTIFIED", "RECEIVES_OCCURRING"])
@pytest.mark.parametrize("lease", [{"tasks_running": 1, "max_queue_readers": 2}, {"tasks_waiting": 1}])
@pytest.mark.parametrize("hindrance", [None, "UNANSWERED", "NOTHING_UNREAD", "QUIET_WINDOW"])
def test_nothing_is_said_of_a_check_whose_instant_was_the_end_of_a_lease(
    state: str, lease: dict[str, Any], hindrance: str | None
) -> None:
    row = OFF | lease | {"state": state, "is_receive_enabled": True, "hindrance": hindrance}
    row |= {"next_check_time": "2026-01-02T03:04:35.678Z", "last_activated_time": "2026-01-02T03:04:05.678Z"}
    facts = QueueFacts("orders", 1, None, row)
    text = " ".join((headline_of(facts), lines_of(facts)["state"]))
    assert "looks" not in text
    assert "03:04:35" not in text
    assert "never expires" not in text


@pytest.mark.parametrize("row", [None, OFF])
def test_without_a_monitor_the_headline_says_that_whatever_is_known_of_the_queue(row: dict[str, Any] | None) -> None:
    for gone, said in (("No monitor runs", "no monitor runs"), ("The monitor is just starting", "the monitor is just")):
        facts = QueueFacts("orders", 1, None, row, present=Present(monitor=False, gone=gone))
        assert headline_of(facts).startswith(f"No reader is started: {said}")
    runs = headline_of(QueueFacts("orders", 1, None, None))
    assert runs == "No reader is started: the monitor has read no record of this queue."


def test_the_headline_promises_nothing_for_an_instant_that_has_passed() -> None:
    quiet = OFF | {"state": "RECEIVES_OCCURRING", "is_receive_enabled": True, "hindrance": "QUIET_WINDOW"}
    for at, said in (
        ("2026-01-02T03:04:35.678Z", "No reader was to be started before 2026-01-02 03:04:35 UTC"),
        ("9999-01-02T03:04:35.678Z", "No reader is started before 9999-01-02 03:04:35 UTC"),
    ):
        facts = QueueFacts("orders", 1, None, quiet | {"quiet_until": at, "next_check_time": at})
        assert as_json(facts)["headline"].startswith(said)


def test_what_has_set_a_queue_off_is_known_by_its_commands() -> None:
    on, off = QueueDefinition(), QueueDefinition(is_on=False)
    assert QueueFacts("orders", 1, on, OFF, definition_then=on).off_by == "Five rollbacks in a row have set it OFF."
    assert QueueFacts("orders", 1, on, OFF | {"is_receive_enabled": True}).off_by == ""
    assert QueueFacts("orders", 1, None, OFF).off_by == ""
    soon = QueueFacts("orders", 1, on, OFF, definition_then=off)
    assert "A command has set it OFF. A later command sets it ON, once the monitor" in lines_of(soon)["state"]
    facts = QueueFacts("orders", 1, off, OFF)
    assert "A command has set it OFF. `queue-activation queue alter orders --status ON`" in lines_of(facts)["state"]
    assert "STATUS OFF" in lines_of(QueueFacts("orders", 1, on, OFF))["definition"]


def test_of_a_queue_that_is_off_the_activator_promises_no_start() -> None:
    told = msgspec.structs.replace(TOLD, crashes=3, backoff_until="9999-01-01T00:00:00.000Z", log_file="/a.log")
    off = lines_of(QueueFacts("orders", 1, None, OFF, activators=[Told(told, True, 0)]))["activator"]
    assert off.endswith("nothing is started, because the queue is OFF log /a.log")
    on = OFF | {"is_receive_enabled": True}
    assert (
        "nothing is started until"
        in lines_of(QueueFacts("orders", 1, None, on, activators=[Told(told, True, 0)]))["activator"]
    )


def test_a_queue_without_event_notifications_says_what_its_activations_were_instead() -> None:
    definition = QueueDefinition(activation=ActivationClause(procedure_name="p"))
    row = OFF | {"max_queue_readers": 1, "last_activated_time": "2026-01-02T03:04:05.678Z"}
    shown_as = lines_of(QueueFacts("orders", 1, definition, row))["last notified"]
    assert (
        shown_as == "none: it has no event notification. The last sequence is 2. A task was last requested at "
        "2026-01-02 03:04:05 UTC"
    )
    assert lines_of(QueueFacts("orders", 1, definition, row | {"activation_sequence": 0}))["last notified"] == "none"
    assert lines_of(QueueFacts("orders", 1, None, row))["last notified"] == "none"
