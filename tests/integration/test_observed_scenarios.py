"""The scenarios that plain consumers can express, with real consumers, the observer and the monitor, in real time.

A scenario tells of a queue whose readers report. Here nobody reports, and Kafka shows the same history:

- MESSAGE_ARRIVED: messages are sent to the group's topic.
- RECEIVE: a consumer joins the group, reads and commits so many messages, and leaves when the observer has seen it.
- with an open transaction: it does not commit, and stays a member.
- WAITING: it stays a member until its wait or its session ends. What it gets, it commits.
- EMPTY: it commits nothing, and leaves. One that finds nothing and one that fails look alike.

Commands are sent as they are: an observed queue has them too.
"""

import json
import re
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import scenarios
from tests.scenarios import Scenario
from tests.support.monitor_topics import Tail
from tests.support.monitors import Monitored, warm_up
from tests.support.observed_scenarios import Due, Plan, Played, Seen, play
from tests.support.observing import DEADLINE_S, Observing
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

# `commit_interval` of the groups, and L, which is one and a half times as long.
COMMIT_INTERVAL, L_MS = "1s", 1_500
# The observer's default: the longest time between two reports of a group with a backlog.
REPORT_INTERVAL_MS = 2_500
# The monitors' defaults. A scenario with another time-out sets it by a command before it begins.
DEFAULT_TIMEOUT_MS = 30_000
QUIET_WINDOW_MS = 5_000
# Nothing new happens later: after the one scenario that lasts longer, 200 s, there would have been six time-outs.
LONGEST_MS = 70_000
# A notification may be late by one look of the observer and its interval (0.5 s), and by a check of the monitor, as in
# test_scenarios. A time-out begins with the notification before it, so what that one was late is added.
LATE_MS = 1_000 + 3_000
BATCHES_MS = 500
# On a slow machine, so many times as late. With more, rule B would pass for rule A.
MOST_SLOWNESS = 2.0
# The monitor's time is the start of its batch, and the observer's report waits in it.
EARLY_MS = 50

# The reasons for which plain consumers cannot express a scenario.
LITERAL = "the semantics are the monitor's, and this one has the default"
TASKS = "a task's host reports it, and the monitor counts it"
ROLLBACK = "messages that were not committed are unread in Kafka throughout, so none are given back"
WHERE = "no part of a partition can be asked for"
COUNT = "only a reader that reports tells its own count"
TWICE = "no member gets messages that are not sent yet, or that another one has"

UNKNOWN_TO_KAFKA = {"activation": TASKS, "where": WHERE, "unread": COUNT}


class Different(NamedTuple):
    """The notifications of a scenario where the rules of observed queues (docs/decisions.md) lead to others.

    Attributes:
        why: The reason.
        due: The notifications.
        later_ms: How much later the scenario ends.
    """

    why: str
    due: list[Due]
    later_ms: int = 0


ONE_OWNER = Different("a partition has one owner, so one more would find nothing, and rule B never holds", [Due(0)])
DIFFERENT = {
    "one-reader-is-too-slow-(observed)": Different(
        "one more would have work when messages have waited for L, and rule B holds W later",
        [Due(0), Due(6_000 + L_MS)],
        L_MS,
    ),
    "one-conversation,-the-second-reader-waits-(observed)": ONE_OWNER,
    "the-waiting-reader-gives-up-empty-(observed)": ONE_OWNER,
    "a-wait-that-runs-out-is-no-empty-result-(observed)": ONE_OWNER,
    "drop-and-create-again-(observed)": Different(
        "the message is still in the topic, so rule A holds with the next report after the DROP at 1 s",
        [Due(0), Due(1_000 + REPORT_INTERVAL_MS, early_ms=REPORT_INTERVAL_MS)],
    ),
}

LEFT_OUT = {
    "one-reader-is-too-slow-(literal)": LITERAL,
    "empty-result-does-not-hold-back-rule-A-(literal)": LITERAL,
    "rollback-(observed)": ROLLBACK,
    "rollback-after-an-empty-result-(observed)": ROLLBACK,
    "RECEIVE-with-WHERE-is-no-empty-result-(observed)": WHERE,
    "RECEIVE-with-WHERE-is-no-empty-result-(literal)": LITERAL,
    "waiting-with-WHERE-does-not-hold-back-(observed)": WHERE,
    "a-reader-waits-on-the-empty-queue-(literal)": LITERAL,
    "receive-seen-before-its-arrival-(observed)": TWICE,
    "five-rollbacks-(observed)": ROLLBACK,
    "count-corrected-by-the-reader-(observed)": COUNT,
    "stale-count-beside-an-arrival-(observed)": COUNT,
    "rollback-beside-a-backlog-(observed)": ROLLBACK,
    "received-twice-after-a-crash-(observed)": TWICE,
    "a-task-exits-without-a-RECEIVE-(observed)": TASKS,
    "a-failed-task-beside-an-event-notification-(observed)": TASKS,
    "a-task-is-slow-to-its-first-RECEIVE-(observed)": TASKS,
    "tasks-are-not-suppressed-(literal)": LITERAL,
    "all-tasks-exit-without-a-RECEIVE-(literal)": LITERAL,
    "tasks-beside-an-event-notification-(literal)": LITERAL,
    "three-useless-activations-(literal)": LITERAL,
}


def why_left_out(scenario: Scenario) -> str | None:
    """Returns why plain consumers cannot express a scenario; None if they can."""
    if scenario.settings["semantics"] != "observed":
        return LITERAL
    unread = 0
    for event in scenario.events:
        value = event["value"]
        unread += unread_by(value)
        for name, why in UNKNOWN_TO_KAFKA.items():
            if name in value:
                return why
        if value["type"] == "ROLLBACK":
            return ROLLBACK
        if unread < 0:
            return TWICE
    return None


def unread_by(value: dict[str, Any]) -> int:
    """Returns by how much an event changes the number of unread messages."""
    return int(value.get("count", 1)) if value["type"] == "MESSAGE_ARRIVED" else -int(value.get("messages", 0))


def partitions(scenario: Scenario) -> int:
    """Returns the partitions of the topic: one if a session waits beside unread messages, of which it gets none.

    They are of a conversation that another session has. In Kafka they are in that member's partition.
    """
    unread = 0
    for event in scenario.events:
        if event["value"].get("result") == "WAITING" and unread > 0:
            return 1
        unread += unread_by(event["value"])
    return 2


def expected(scenario: Scenario) -> Different:
    """Returns the notifications that are due."""
    as_designed = [Due(each["due_ms"], each["event_type"]) for each in scenario.expect for _ in range(each["copies"])]
    return DIFFERENT.get(scenario.id, Different("no difference", as_designed))


def plan_of(scenario: Scenario, prefix: str) -> Plan:
    name = prefix + re.sub(r"\W+", "-", scenario.name)
    _, due, later_ms = expected(scenario)
    until_ms = min(scenario.until_ms + later_ms, LONGEST_MS)
    return Plan(scenario, f"{name}-readers", name, partitions(scenario), due, until_ms)


PLAYED = [scenario for scenario in scenarios.load() if why_left_out(scenario) is None]


@pytest.fixture(scope="module")
def played(
    broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Played]:
    """Plays all of them side by side, each with a group and a topic of its own."""
    monitored = Monitored(broker.bootstrap_servers, tmp_path_factory.mktemp("monitor"), [], spark)
    plans = [plan_of(scenario, monitored.prefix) for scenario in PLAYED]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(plan.topic, plan.partitions, 1) for plan in plans]).values():
        created.result()
    observing = Observing(broker.bootstrap_servers, tmp_path_factory.mktemp("observer"), monitored.prefix)
    observing.config.write_text("\n".join(entry(plan) for plan in plans))
    with monitored.running(), monitored.activations() as notifications:
        warm_up([(monitored, notifications)])
        for plan in plans:
            set_timeout(monitored, plan)
        reports = Tail(broker.bootstrap_servers, monitored.topics.receives, "read_uncommitted")
        with observing.running(), closing(reports), Seen(reports, notifications).reading() as seen:
            wait_until(lambda: seen.has_reported([plan.group for plan in plans]), DEADLINE_S, "the first reports")
            return play(monitored, plans, seen)


def entry(plan: Plan) -> str:
    """Returns the group's entry in the file of observer and activator."""
    fields = {"group": plan.group, "topics": [plan.topic], "commit_interval": COMMIT_INTERVAL, "command": "true"}
    return "\n".join(["[[programs]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items()), ""])


def set_timeout(monitored: Monitored, plan: Plan) -> None:
    """Sets the time-out of a group's queue, if it is not the default."""
    settings = plan.scenario.settings
    assert settings["quiet_window_ms"] == QUIET_WINDOW_MS
    timeout_ms = settings["external_activation_timeout_ms"]
    if timeout_ms != DEFAULT_TIMEOUT_MS:
        command = {"type": "ALTER_QUEUE", "queue": plan.group, "external_activation_timeout_ms": timeout_ms}
        monitored.send("queue-commands", command)
        monitored.producer.flush()


def test_every_scenario_is_played_or_has_a_reason() -> None:
    reasons = {scenario.id: why_left_out(scenario) for scenario in scenarios.load()}
    assert {name: why for name, why in reasons.items() if why is not None} == LEFT_OUT
    assert {scenario.id for scenario in PLAYED} == reasons.keys() - LEFT_OUT.keys()
    assert {scenario.id for scenario in PLAYED} >= DIFFERENT.keys()


@pytest.mark.parametrize("scenario", PLAYED, ids=lambda scenario: scenario.id)
def test_observed_scenario_in_real_time(scenario: Scenario, played: dict[str, Played]) -> None:
    plan, found = plan_of(scenario, ""), played[scenario.id]
    why, written, due = expected(scenario).why, found.written, plan.due
    assert [kind for _, kind in written[: len(due)]] == [each.event_type for each in due], (why, written, found.events)
    for number, ((at_ms, _), each) in enumerate(zip(written, due, strict=False), 1):
        begin_ms, end_ms = found.real_ms(each.at_ms)
        late_ms = (LATE_MS + number * BATCHES_MS) * min(found.slowness, MOST_SLOWNESS)
        assert begin_ms - each.early_ms - EARLY_MS <= at_ms <= end_ms + late_ms, (why, written, found.events, late_ms)
    end_ms, _ = found.real_ms(plan.until_ms)
    # The scenario says nothing about records after its end.
    assert not [at_ms for at_ms, _ in written[len(due) :] if at_ms < end_ms], (why, written, found.events)
