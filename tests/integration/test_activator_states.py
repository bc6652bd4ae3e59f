"""The activator tells of its queues, to whoever asks from another machine; on a real broker."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producers.queue_topics import create_queue_topics
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from tests.support.activating import DEADLINE_S, Activating
from tests.support.bad_output import valid_fields
from tests.support.shared_broker import SharedBroker
from tests.support.shell import run_command
from tests.support.waiting import wait_until


@pytest.fixture
def activating(broker: SharedBroker, tmp_path: Path) -> Iterator[Activating]:
    with Activating(broker.bootstrap_servers, tmp_path) as its:
        yield its


def test_queue_show_says_from_anywhere_why_no_program_is_started(activating: Activating) -> None:
    activating.write_config("q*", backoff="1h", max_backoff="1h", log_file=f"{activating.folder}/{{queue}}.log")
    kafka = ("--bootstrap-servers", activating.bootstrap_servers, "--topic-prefix", activating.prefix)
    for queue in ("q", "other"):
        run_command("queue", "create", queue, "--only", "definition", *kafka)
    program = activating.folder / "program.sh"
    program.write_text(f"echo 'no module named orders'; {program.read_text()}")

    def shown(queue: str, part: str) -> dict[str, Any]:
        """Returns what `queue show` tells of the activator, once a part of it is there."""

        def found() -> dict[str, Any] | None:
            lines = run_command("queue", "show", queue, "--json", *kafka).splitlines()  # before: no monitor runs
            told = json.loads(lines[-1])["activators"]
            return told[0] if part in json.dumps(told) else None

        row = wait_until(found, DEADLINE_S, f"{part!r} about {queue}")
        assert row is not None
        return row

    with activating.running() as process:
        assert "none has acted on a notification of this queue" in run_command("queue", "show", "q", *kafka)
        activating.notify("q", 1)
        activating.notify("other", 1)
        [start] = activating.wait_for_starts("q", 1)
        activating.wait_for_log("other: not started")
        row = shown("q", str(start.pid))
        assert (row["is_running"], [each["pid"] for each in row["programs"]]) == (True, [start.pid])
        assert "no entry of the activator on " in shown("other", "activator-")["why"][0]
        activating.end("q.end", 3)
        activating.wait_for_log("crash 1 in a row")
        row = shown("q", "after a crash: exit code 3")
        assert (row["entry"], row["programs"], row["last_line"]) == ("q*", [], "no module named orders")
        assert f"log {activating.folder}/q.log, last line: no module named orders" in row["why"]
        status = activating.status_of("q")
        assert {name: status[name] for name in row if name in status} == {
            name: row[name] for name in row if name in status
        }
        fields = valid_fields("queue-monitors", "q", 1)
        activating.producer.produce(activating.topics.monitors, json.dumps(fields), "q")
        activating.producer.flush()
        shown_by_queues = " ".join(run_command("queues", *kafka).split())
        assert "q: nothing is started until" in shown_by_queues
        assert "no module named orders" in shown_by_queues
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    admin = Admin(Cluster(activating.bootstrap_servers, {}))
    assert admin.members(row["group_id"], DEADLINE_S) == [], "one that was stopped does not look alive"
    absence, past = shown("q", "")["why"]
    assert "does not run: it is not in the consumer group" in absence
    assert past.startswith("when it last wrote about the queue, ")
    assert "there had been a crash: exit code 3, the last one at " in past
    assert past.endswith(f"; log {activating.folder}/q.log, last line: no module named orders")


def test_a_plain_consumer_is_asked_about_after_the_third_exit_without_a_receive(activating: Activating) -> None:
    activating.write_config("q", startup_grace="1ms")
    kafka = ("--bootstrap-servers", activating.bootstrap_servers, "--topic-prefix", activating.prefix)
    run_command("queue", "create", "q", "--only", "definition", *kafka)
    place = ("--state-directory", str(activating.state_directory))
    question = "3 readers in a row exited without a RECEIVE: does the program report?"
    commands = (("queue", "show", "q", *kafka), ("activator", "status", *place))

    def exits(count: int) -> bool:
        return activating.log().count("q: exited") == count

    def says(is_asked: bool, *command: str) -> bool:
        return (question in " ".join(run_command(*command).split())) == is_asked

    activating.end("q.end", 0)
    with activating.running():
        for sequence in (1, 2, 3):
            assert sequence == 1 or "without a RECEIVE" not in run_command(*commands[1])
            activating.notify("q", sequence, "TIMEOUT_EXPIRED")
            wait_until(partial(exits, sequence), DEADLINE_S, f"exit {sequence}")
        for command in commands:
            wait_until(partial(says, True, *command), DEADLINE_S, "the question")
        activating.show("q", 3, "RECEIVES_OCCURRING")
        for command in commands:
            wait_until(partial(says, False, *command), DEADLINE_S, "the end of the question")


def test_no_more_programs_run_than_the_queues_topic_has_partitions(activating: Activating) -> None:
    queue = f"q-{uuid.uuid4().hex[:8]}"
    create_queue_topics(activating.bootstrap_servers, [queue], partitions=2, replication_factor=1)
    activating.write_config("q-*", max=3, startup_grace="1ms")
    with activating.running():
        for sequence in (1, 2):
            activating.notify(queue, sequence, "MESSAGES_ACCUMULATING")
            activating.wait_for_starts(queue, sequence)
        activating.notify(queue, 3, "MESSAGES_ACCUMULATING")
        activating.wait_for_log("held: #3: 2 programs run, and the queue's topic has no more partitions")
        limit = f"{queue}: limited: topic {queue} has 2 partitions, so no more than 2 of max 3 programs run at a time"
        assert activating.log().count(limit) == 1
        status = activating.status_of(queue)
        assert (status["max"], status["partitions"], status["running"]) == (3, 2, 2)
        # For a queue that is no topic, `max` counts as it is.
        activating.write_config("*", max=3, startup_grace="1ms")
        activating.wait_for_log("config: reloaded")
        for sequence in (1, 2, 3):
            activating.notify("elsewhere", sequence, "MESSAGES_ACCUMULATING")
            activating.wait_for_starts("elsewhere", sequence)
        assert len(activating.starts(queue)) == 2


def test_a_row_goes_with_its_reason_and_a_restart_writes_none_again(activating: Activating) -> None:
    def records(queue: str) -> list[bytes | None]:
        with TopicFollower(cluster, [activating.topics.activators], Start.BEGINNING) as follower:
            end = f"/{queue}".encode()
            return [each.value() for each in follower.to_end() if (each.key() or b"").endswith(end)]

    def wait_for(queue: str, count: int, is_there: bool) -> None:
        def is_so() -> bool:
            found = records(queue)
            return len(found) == count and (found[-1] is not None) == is_there

        wait_until(is_so, DEADLINE_S, f"record {count} of {queue}")

    cluster = Cluster(activating.bootstrap_servers, {})
    activating.write_config("q")
    activating.end("q.end", 0)
    with activating.running():
        activating.notify("q", 1)
        activating.wait_for_log("q: exited")
        activating.notify("other", 1)
        wait_for("other", 1, is_there=True)
        activating.write_config("*", max=2)
        wait_for("other", 2, is_there=False)
        activating.write_config("q")
        wait_until(lambda: activating.log().count("reloaded") == 2, DEADLINE_S, "the first config")
        activating.notify("other", 2)
        wait_for("other", 3, is_there=True)
    written = len(records("q"))
    with activating.running():
        activating.producer.produce(activating.topics.monitors, None, "other")
        activating.producer.flush()
        wait_for("other", 4, is_there=False)
        assert len(records("q")) == written


def test_rows_are_written_once_the_topic_is_there(activating: Activating) -> None:
    cluster = Cluster(activating.bootstrap_servers, {})
    admin, topic = Admin(cluster), activating.topics.activators
    admin.delete_topic(topic)
    gone = {topic: None}
    wait_until(lambda: admin.visible_partitions([topic], DEADLINE_S) == gone, DEADLINE_S, "the end of the topic")
    activating.write_config("q")
    with activating.running():
        activating.notify("q", 1)
        activating.wait_for_starts("q", 1)
        activating.wait_for_log("do not tell what this activator does: Topics are missing")
        admin.create_topics([spec for spec in activating.topics.specs() if spec.name == topic], 1, 1)
        activating.wait_for_log("works again: `queue show` and `queues` tell what this activator does")
        assert activating.log().count("do not tell") == 1
        with TopicFollower(cluster, [topic], Start.BEGINNING) as follower:
            assert [json.loads(each.value() or b"")["queue"] for each in follower.to_end()] == ["q"]
