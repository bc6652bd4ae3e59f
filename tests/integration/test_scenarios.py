"""All scenarios through real Kafka and real Spark, in real time and side by side, each on its own queue."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streaming.system.embedded_broker import EmbeddedBroker
from tests import scenarios
from tests.scenarios import Scenario
from tests.support.monitors import Activations, Monitored

# The monitor's default. A scenario with another time-out sets it by a command before it begins.
DEFAULT_TIMEOUT_MS = 30_000
QUIET_WINDOW_MS = 5_000
# The monitor writes a notification at the first check that is due: at most a check interval late, plus the time of its
# batch and of a batch in progress. Batches take long on a busy machine. The quiet windows of the scenarios are 5 s.
LATE_MS = 3_500
# The monitor's time is the start of its batch, which begins after the event was sent.
EARLY_MS = 50

WARM_UP_ROUNDS = 40
WARM_S = 0.7
# One quick round may come between two slow ones. A batch of a second at the beginning would read events that are a
# second apart together, which is another history than the scenario's.
WARM_ROUNDS_IN_A_ROW = 5
# Even so the first batch of the scenarios may have to wait for a slow batch, and then also read the events of the next
# second. Such a play is not the history of the scenarios, so it begins again on other queues. That costs seconds, while
# the tests beside this one may load the machine for minutes.
PROMPT_MS = 450
LOOKED_AT_MS = 2_000
BEGIN_WITHIN_S = 360

Written = dict[str, list[dict[str, Any]]]


class Play:
    """All scenarios of one semantics, on one monitor."""

    def __init__(self, monitored: Monitored, semantics: str) -> None:
        self.monitored = monitored
        self.semantics = semantics
        self.scenarios: dict[str, Scenario] = {}

    def prepare(self, number: int) -> None:
        """Names queues that no earlier play had, and sets time-outs. ALTER_QUEUE creates a queue as an arrival does."""
        of_semantics = [scenario for scenario in scenarios.load() if scenario.settings["semantics"] == self.semantics]
        self.scenarios = {f"scenario-{number}-{at}": scenario for at, scenario in enumerate(of_semantics)}
        for queue, scenario in self.scenarios.items():
            assert scenario.settings["quiet_window_ms"] == QUIET_WINDOW_MS
            timeout_ms = scenario.settings["external_activation_timeout_ms"]
            if timeout_ms != DEFAULT_TIMEOUT_MS:
                command = {"type": "ALTER_QUEUE", "queue": queue, "external_activation_timeout_ms": timeout_ms}
                self.monitored.send("queue-commands", command)
        self.monitored.producer.flush()

    def timeline(self) -> Iterator[tuple[int, Monitored, str, dict[str, Any]]]:
        for queue, scenario in self.scenarios.items():
            for event in scenario.events:
                yield event["at_ms"], self.monitored, event["topic"], {**event["value"], "queue": queue}

    def is_prompt(self, follower: Activations, begin_s: float) -> bool:
        """Returns whether all notifications due at 0 ms are from a batch that began soon after the first events."""
        at_once = [
            queue
            for queue, scenario in self.scenarios.items()
            if scenario.expect[:1] and scenario.expect[0]["due_ms"] == 0
        ]
        first = [follower.of(queue)[:1] for queue in at_once]
        return all(records and _since_ms(begin_s, records[0]) <= PROMPT_MS for records in first)


@pytest.fixture(scope="module")
def written(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, Written]:
    """Returns when the scenarios began (seconds since 1970), and the notifications of each."""
    plays = []
    with ExitStack() as stack:
        followers: list[Activations] = []
        for semantics in ("observed", "literal"):
            folder: Path = tmp_path_factory.mktemp(semantics)
            monitored = Monitored(broker.bootstrap_servers, folder, ["--semantics", semantics])
            plays.append(Play(monitored, semantics))
            stack.enter_context(monitored.running())
            followers.append(stack.enter_context(monitored.activations()))
        begin_s = _first_prompt_play(plays, followers)
        until_ms = max(scenario.until_ms for play in plays for scenario in play.scenarios.values())
        end_s = begin_s + (until_ms + LATE_MS) / 1000
        while time.time() < end_s:
            time.sleep(0.2)  # until then the monitor may write nothing else
            for follower in followers:
                follower.of("")
        return begin_s, {
            f"{play.scenarios[queue].id}": follower.of(queue)
            for play, follower in zip(plays, followers, strict=True)
            for queue in play.scenarios
        }


def _first_prompt_play(plays: list[Play], followers: list[Activations]) -> float:
    """Begins plays until one begins as its scenarios say, and plays that one to its end; returns when it began."""
    deadline_s = time.monotonic() + BEGIN_WITHIN_S
    number = 0
    while time.monotonic() < deadline_s:
        begin_s = _play(plays, followers, number)
        if begin_s is not None:
            return begin_s
        number += 1
    pytest.fail(f"none of {number} plays had all notifications that are due at 0 ms within {PROMPT_MS} ms")


def _play(plays: list[Play], followers: list[Activations], number: int) -> float | None:
    """Sends all events at their times; returns when it began, or None if a batch read the first events too late."""
    for play in plays:
        play.prepare(number)
    _warm_up(plays, followers)
    timeline = sorted((event for play in plays for event in play.timeline()), key=lambda event: event[0])
    looked_at = sum(at_ms <= LOOKED_AT_MS for at_ms, *_ in timeline)
    begin_s = time.time()
    _send(timeline[:looked_at], begin_s)
    time.sleep(max(0.0, begin_s + LOOKED_AT_MS / 1000 - time.time()))
    if not all(play.is_prompt(follower, begin_s) for play, follower in zip(plays, followers, strict=True)):
        return None
    _send(timeline[looked_at:], begin_s)
    return begin_s


def _send(timeline: list[tuple[int, Monitored, str, dict[str, Any]]], begin_s: float) -> None:
    for at_ms, monitored, topic, value in timeline:
        time.sleep(max(0.0, begin_s + at_ms / 1000 - time.time()))  # the event's time; this does not wait for a result
        monitored.send(topic, value)
        monitored.producer.flush()


def _warm_up(plays: list[Play], followers: list[Activations]) -> None:
    """Waits until batches are quick, because the first batches of a new JVM take seconds."""
    in_a_row = 0
    begun = [len(follower.of("warm-up")) for follower in followers]
    for number in range(1, WARM_UP_ROUNDS + 1):
        slowest_s = 0.0
        for play, follower, before in zip(plays, followers, begun, strict=True):
            sent_s = time.monotonic()
            play.monitored.arrive("warm-up")
            follower.wait_for("warm-up", before + number)
            slowest_s = max(slowest_s, time.monotonic() - sent_s)
            play.monitored.receive("warm-up")
        in_a_row = in_a_row + 1 if slowest_s < WARM_S else 0
        if in_a_row == WARM_ROUNDS_IN_A_ROW:
            return


@pytest.mark.timeout(BEGIN_WITHIN_S + 480)
@pytest.mark.parametrize("scenario", scenarios.load(), ids=lambda scenario: scenario.id)
def test_scenario_in_real_time(scenario: Scenario, written: tuple[float, Written]) -> None:
    begin_s, of_scenario = written
    due: list[tuple[int, str]] = [
        (expected["due_ms"], expected["event_type"]) for expected in scenario.expect for _ in range(expected["copies"])
    ]
    seen = [(_since_ms(begin_s, record), record["EventType"]) for record in of_scenario[scenario.id]]
    assert [event_type for _, event_type in seen[: len(due)]] == [event_type for _, event_type in due], seen
    for (at_ms, _), (due_ms, _) in zip(seen, due, strict=False):
        assert due_ms - EARLY_MS <= at_ms <= due_ms + LATE_MS, (seen, due)
    # The scenario says nothing about notifications after its end.
    assert not [at_ms for at_ms, _ in seen[len(due) :] if at_ms < scenario.until_ms], seen


def _since_ms(begin_s: float, record: dict[str, Any]) -> int:
    return round((datetime.fromisoformat(record["PostTime"]).timestamp() - begin_s) * 1000)
