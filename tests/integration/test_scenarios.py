"""All scenarios through real Kafka and real Spark, in real time and side by side, each on its own queue.

Where the first batch is late several times, because the machine is slow or busy, the scenarios are played slower: all
their times, and those of the monitors' settings, become longer.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streaming.core.activation.settings import CoreSettings
from tests import scenarios
from tests.scenarios import Scenario
from tests.support.monitors import Activations, Monitored, warm_up
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication

# The monitor's default. A scenario with another time-out sets it by a command before it begins.
DEFAULT_TIMEOUT_MS = 30_000
QUIET_WINDOW_MS = 5_000
# All of these are of the scenarios' time. The monitor writes a notification at the first check that is due: at most a
# check interval late, plus the time of its batch and of a batch in progress, which probes measure during the play.
CHECKED_MS = 3_000
BATCHES_MS = 500
PROBE_INTERVAL_MS = 1_000
# A batch that is later may read events together that most scenarios have a second apart. Then the play begins again.
MERGED_MS = 1_000
# The monitor's time is the start of its batch, which begins after the event was sent.
EARLY_MS = 50
# The first batch of the scenarios may have to wait for a slow batch, and then also read the events of the next second.
# Such a play is not the history of the scenarios, so it begins again: at first in the same time, since other tests load
# the machine for minutes, then slower.
PROMPT_MS = 450
LOOKED_AT_MS = 2_000

SLOWER = 1.5
PLAYS_IN_OWN_TIME = 4
MOST_PLAYS = 9
# The settings of a monitor that are durations.
DURATIONS = (
    "quiet_window",
    "external_activation_timeout",
    "session_lease",
    "transaction_lease",
    "task_lease",
    "check_interval",
)

# Milliseconds since 1970 and event type of each record.
Records = list[tuple[float, str]]


class Played(NamedTuple):
    """A play of all scenarios.

    Attributes:
        begin_s: Its beginning, in seconds since 1970.
        late_ms: How late a batch was, at most, in the scenarios' time.
        slowness: How many times as long as the scenarios' own time it took.
        of_scenario: Scenario -> its records.
    """

    begin_s: float
    late_ms: int
    slowness: float
    of_scenario: dict[str, Records]


@dataclass
class Play:
    """All scenarios of one semantics, on one monitor, each second of them in `slowness` seconds."""

    monitored: Monitored
    follower: Activations
    tasks: Activations
    scenarios: dict[str, Scenario]
    slowness: float

    def begin(self) -> None:
        """Sets time-outs. ALTER_QUEUE creates a queue as an arrival does."""
        for queue, scenario in self.scenarios.items():
            assert scenario.settings["quiet_window_ms"] == QUIET_WINDOW_MS
            timeout_ms = scenario.settings["external_activation_timeout_ms"]
            if timeout_ms != DEFAULT_TIMEOUT_MS:
                command = {"type": "ALTER_QUEUE", "queue": queue, "external_activation_timeout_ms": timeout_ms}
                self.monitored.send("queue-commands", slower(command, self.slowness))
        self.monitored.producer.flush()

    def timeline(self) -> Iterator[tuple[int, "Play", str, dict[str, Any]]]:
        for queue, scenario in self.scenarios.items():
            for event in scenario.events:
                value = slower(event["value"], self.slowness)
                yield event["at_ms"], self, event["topic"], {**value, "queue": queue}

    def send(self, topic: str, value: dict[str, Any]) -> None:
        """Sends an event; #1 as its task is the first task of the queue."""
        if "task_id" in value:
            number = int(value["task_id"].removeprefix("#"))
            value["task_id"] = self.tasks.wait_for(value["queue"], number)[number - 1]["task_id"]
        self.monitored.send(topic, value)
        self.monitored.producer.flush()

    def records(self) -> dict[str, Records]:
        """Returns the notifications and the starts of tasks of each queue, in order of the monitor's time."""
        notified, started = self.follower.by_queue(), self.tasks.by_queue()
        lease_ms = CoreSettings().task_lease_ms * self.slowness
        return {
            queue: sorted(
                [(_ms(record["PostTime"]), record["EventType"]) for record in notified.get(queue, [])]
                + [(_ms(record["expires_at"]) - lease_ms, record["type"]) for record in started.get(queue, [])]
            )
            for queue in self.scenarios
        }

    def is_prompt(self, begin_s: float) -> bool:
        """Returns whether all records due at 0 ms are from a batch that began soon after the first events."""
        at_once = [
            queue
            for queue, scenario in self.scenarios.items()
            if scenario.expect[:1] and scenario.expect[0]["due_ms"] == 0
        ]
        records = self.records()
        first = [records[queue][:1] for queue in at_once]
        return all(found and found[0][0] - begin_s * 1000 <= PROMPT_MS * self.slowness for found in first)

    def probe(self, ended: threading.Event) -> list[tuple[str, float]]:
        """Makes new queues until the play has ended; returns their names, and when each arrival was sent."""
        sent: list[tuple[str, float]] = []
        while not ended.wait(PROBE_INTERVAL_MS / 1000 * self.slowness):
            sent.append((f"probe-{len(sent)}", time.time()))
            self.monitored.arrive(sent[-1][0])
        return sent

    def late_ms(self, sent: list[tuple[str, float]]) -> int:
        """Returns the longest time from a probe's arrival to the batch that has read it, in the scenarios' time."""
        found = self.follower.by_queue()
        return max(
            round((_ms(found[queue][0]["PostTime"]) - sent_s * 1000) / self.slowness)
            for queue, sent_s in sent
            if queue in found
        )


def slower(value: dict[str, Any], slowness: float) -> dict[str, Any]:
    """Returns a record with longer durations."""
    return {
        name: round(found * slowness) if name.endswith("_ms") and found is not None else found
        for name, found in value.items()
    }


@dataclass
class Theatre:
    """Two monitors, one for each semantics, which are started anew for each play."""

    broker: SharedBroker
    spark: SparkApplication
    folder: Path

    @contextmanager
    def plays(self, number: int, slowness: float) -> Iterator[list[Play]]:
        """Runs the monitors."""
        with ExitStack() as stack:
            plays = []
            for semantics in ("observed", "literal"):
                folder = self.folder / f"{semantics}-{number}"
                folder.mkdir()
                options = ["--semantics", semantics, *_durations(slowness)]
                monitored = Monitored(self.broker.bootstrap_servers, folder, options, self.spark)
                stack.enter_context(monitored.running())
                follower = stack.enter_context(monitored.activations())
                tasks = stack.enter_context(monitored.started_tasks())
                found = [each for each in scenarios.load() if each.settings["semantics"] == semantics]
                plays.append(
                    Play(
                        monitored, follower, tasks, {f"scenario-{at}": each for at, each in enumerate(found)}, slowness
                    )
                )
            yield plays


def _durations(slowness: float) -> Iterator[str]:
    for name in DURATIONS:
        yield f"--{name.replace('_', '-')}"
        yield f"{round(getattr(CoreSettings(), f'{name}_ms') * slowness)}ms"


@pytest.fixture(scope="module")
def written(broker: SharedBroker, spark: SparkApplication, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Plays all scenarios."""
    theatre = Theatre(broker, spark, tmp_path_factory.mktemp("scenarios"))
    for number in range(MOST_PLAYS):
        slowness = SLOWER ** max(0, number + 1 - PLAYS_IN_OWN_TIME)
        with theatre.plays(number, slowness) as plays:
            warm_up([(play.monitored, play.follower) for play in plays])
            begun = _play(plays, slowness)
            if begun is not None:
                found = {
                    play.scenarios[queue].id: records for play in plays for queue, records in play.records().items()
                }
                return Played(*begun, slowness, found)
        print(f"scenarios: play {number}, {slowness:.1f} times as slow, was late")  # noqa: T201  (if the test fails)
    pytest.fail(f"none of {MOST_PLAYS} plays had all records that are due at 0 ms within {PROMPT_MS} ms")


def _play(plays: list[Play], slowness: float) -> tuple[float, int] | None:
    """Plays all scenarios to their ends.

    Returns when they began and how late a batch was, at most; None if a batch may have read events together.
    """
    for play in plays:
        play.begin()
    timeline = sorted((event for play in plays for event in play.timeline()), key=lambda event: event[0])
    looked_at = sum(at_ms <= LOOKED_AT_MS for at_ms, *_ in timeline)
    begin_s = time.time()
    _send(timeline[:looked_at], begin_s, slowness)
    _sleep_until(begin_s + LOOKED_AT_MS / 1000 * slowness)
    if not all(play.is_prompt(begin_s) for play in plays):
        return None
    ended = threading.Event()
    with ThreadPoolExecutor() as threads:
        probes = [threads.submit(play.probe, ended) for play in plays]
        _send(timeline[looked_at:], begin_s, slowness)
        until_ms = max(scenario.until_ms for play in plays for scenario in play.scenarios.values())
        # Until then the monitors may write nothing else.
        _sleep_until(begin_s + (until_ms + CHECKED_MS + BATCHES_MS) / 1000 * slowness)
        ended.set()
    for play in plays:
        play.follower.read_all()
        play.tasks.read_all()
    late_ms = max(play.late_ms(probe.result()) for play, probe in zip(plays, probes, strict=True))
    return None if late_ms > MERGED_MS else (begin_s, late_ms)


def _send(timeline: list[tuple[int, Play, str, dict[str, Any]]], begin_s: float, slowness: float) -> None:
    for at_ms, play, topic, value in timeline:
        _sleep_until(begin_s + at_ms / 1000 * slowness)  # the event's time; this does not wait for a result
        play.send(topic, value)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


# All of it is in the fixture of the first.
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("scenario", scenarios.load(), ids=lambda scenario: scenario.id)
def test_scenario_in_real_time(scenario: Scenario, written: Played) -> None:
    slowness = written.slowness
    due: list[tuple[float, str]] = [
        (_real_ms(expected, slowness), expected["event_type"])
        for expected in scenario.expect
        for _ in range(expected["copies"])
    ]
    of_scenario = written.of_scenario[scenario.id]
    seen = [(round(at_ms - written.begin_s * 1000), event_type) for at_ms, event_type in of_scenario]
    assert [event_type for _, event_type in seen[: len(due)]] == [event_type for _, event_type in due], seen
    # A time-out begins with the record before it, so what is late makes those after it late, too.
    for number, ((at_ms, _), (due_ms, _)) in enumerate(zip(seen, due, strict=False), 1):
        late_ms = (CHECKED_MS + number * max(BATCHES_MS, written.late_ms)) * slowness
        assert due_ms - EARLY_MS * slowness <= at_ms <= due_ms + late_ms, (seen, due, late_ms)
    # The scenario says nothing about records after its end.
    assert not [at_ms for at_ms, _ in seen[len(due) :] if at_ms < scenario.until_ms * slowness], seen


def _real_ms(expected: dict[str, Any], slowness: float) -> float:
    """Returns when a record is due, after the beginning. No setting makes the fixed part of this time longer."""
    fixed_ms = expected.get("fixed_ms", 0)
    return float((expected["due_ms"] - fixed_ms) * slowness + fixed_ms)


def _ms(iso_time: str) -> float:
    return datetime.fromisoformat(iso_time).timestamp() * 1000
