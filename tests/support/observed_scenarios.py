"""Plays scenarios with clients that know only Kafka: producers send, consumers come, read, commit and leave."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from tests.scenarios import Scenario
from tests.support.monitor_topics import Tail
from tests.support.monitors import Activations, Monitored
from tests.support.observing import DEADLINE_S
from tests.support.waiting import slowness, wait_until

_POLL_S = 0.05
# The time after the end within which a superfluous record from just before the end is seen.
_REST_S = 2.0
_SLOWNESS_INTERVAL_S = 20.0


@dataclass(frozen=True)
class Due:
    """A notification that is due.

    Attributes:
        at_ms: When, in the scenario's time.
        event_type: Its type.
        early_ms: How much sooner it may come, where chance decides.
    """

    at_ms: int
    event_type: str = "QUEUE_ACTIVATION"
    early_ms: int = 0


@dataclass(frozen=True)
class Plan:
    """A scenario for one consumer group, which is the queue too.

    Attributes:
        scenario: The scenario.
        group: The group.
        topic: Its topic.
        partitions: The partitions of the topic.
        due: The notifications that are due.
        until_ms: The end, in the scenario's time: until then nothing else may be written.
    """

    scenario: Scenario
    group: str
    topic: str
    partitions: int
    due: list[Due]
    until_ms: int

    def events(self) -> list[dict[str, Any]]:
        """Returns the events. A session whose wait runs out leaves by an additional event."""
        events = list(self.scenario.events)
        for event in self.scenario.events:
            value = event["value"]
            end_ms = event["at_ms"] + (value.get("timeout_ms") or 0)
            if value.get("result") == "WAITING" and end_ms < self.until_ms:
                later = [each for each in self.scenario.events if each["at_ms"] > event["at_ms"]]
                if all(each["value"].get("session_id") != value["session_id"] for each in later):
                    ended = {"type": "SESSION_ENDED", "session_id": value["session_id"]}
                    events.append({"at_ms": end_ms, "topic": event["topic"], "value": ended})
        return sorted(events, key=lambda event: int(event["at_ms"]))


@dataclass
class Played:
    """A scenario that was played.

    Attributes:
        begin_s: Its beginning, in seconds since 1970.
        events: When each event was due in the scenario's time, and when it began and was over, after the beginning.
        written: The notifications: when, after the beginning, and their types.
        slowness: How many times as long as on an idle machine something took, at most, meanwhile.
    """

    begin_s: float = 0.0
    events: list[tuple[int, float, float]] = field(default_factory=list)
    written: list[tuple[float, str]] = field(default_factory=list)
    slowness: float = 1.0

    def ms(self, at_s: float) -> float:
        """Returns milliseconds after the beginning."""
        return (at_s - self.begin_s) * 1000

    def real_ms(self, at_ms: int) -> tuple[float, float]:
        """Returns the beginning and the end of an instant of the scenario.

        An event lasts until its consumer has come and gone, and delays later events.
        """
        due_ms, begin_ms, end_ms = [each for each in self.events if each[0] <= at_ms][-1]
        return begin_ms + at_ms - due_ms, end_ms + at_ms - due_ms


class Seen:
    """The records that observer and monitor have written, read by one thread for all players."""

    def __init__(self, reports: Tail, notifications: Activations) -> None:
        self._reports = reports
        self._notifications = notifications
        self._last: dict[str, dict[str, Any]] = {}
        self._written: dict[str, list[tuple[float, str]]] = {}
        self._stop = Event()

    @contextmanager
    def reading(self) -> Iterator["Seen"]:
        """Reads while the block runs."""
        thread = Thread(target=self._read)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _read(self) -> None:
        while not self._stop.is_set():
            reports = [json.loads(record.value) for record in self._reports.records()]
            self._last = {report["queue"]: report for report in reports}
            self._written = {
                queue: sorted((_ms(record["PostTime"]), record["EventType"]) for record in records)
                for queue, records in self._notifications.by_queue().items()
            }

    def has_reported(self, groups: list[str]) -> bool:
        """Returns whether the observer has reported something of each of these groups."""
        return self._last.keys() >= {*groups}

    def members(self, group: str) -> int:
        """Returns how many members the observer has reported last."""
        return int(self._last[group]["members"])

    def rests(self, group: str) -> bool:
        """Returns whether a group has neither members nor messages, so that the observer looks at it now and then."""
        return not self._last[group]["members"] and not self._last[group]["unread"]

    def written(self, queue: str) -> list[tuple[float, str]]:
        """Returns the notifications of a queue, with milliseconds since 1970."""
        return self._written.get(queue, [])


def _ms(iso_time: str) -> float:
    return datetime.fromisoformat(iso_time).timestamp() * 1000


def play(monitored: Monitored, plans: list[Plan], seen: Seen) -> dict[str, Played]:
    """Plays scenarios side by side; returns for the id of each what has happened."""
    slow = [slowness()]
    with ThreadPoolExecutor(len(plans)) as threads:
        playing = {plan.scenario.id: threads.submit(_Player(monitored, plan, seen).play) for plan in plans}
        while wait(playing.values(), _SLOWNESS_INTERVAL_S).not_done:
            slow.append(slowness())
        found = {name: future.result() for name, future in playing.items()}
    for played in found.values():
        played.slowness = max(slow)
    return found


class _Reader:
    """A session: a member of a group."""

    def __init__(self, bootstrap_servers: str, plan: Plan, session: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": plan.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # The assignor gives partitions in this order. So the first session keeps its own when another joins.
                "client.id": session,
                "log_level": 0,
            }
        )
        self.has_joined = self.is_waiting = False
        self.taken: list[Message] = []
        self._consumer.subscribe([plan.topic], on_assign=self._has_joined)

    def _has_joined(self, *_: object) -> None:
        self.has_joined = True

    def serve(self) -> None:
        """Polls, and commits the messages that come if the session waits for messages."""
        message = self._consumer.poll(_POLL_S)
        if message is not None and not message.error():
            self.taken.append(message)
            if self.is_waiting:
                self.commit(message)

    def commit(self, message: Message) -> None:
        place = TopicPartition(message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1)
        self._consumer.commit(offsets=[place], asynchronous=False)

    def leave(self) -> None:
        self._consumer.close()


class _Player:
    """Plays one scenario, in one thread, which polls for all consumers of its group."""

    def __init__(self, monitored: Monitored, plan: Plan, seen: Seen) -> None:
        self._monitored = monitored
        self._plan = plan
        self._seen = seen
        self._readers: dict[str, _Reader] = {}
        self._sent = 0

    def play(self) -> Played:
        """Plays it to its end."""
        played = Played(time.time())
        try:
            shift_s = 0.0
            for event in self._plan.events():
                due_s = played.begin_s + event["at_ms"] / 1000
                self._serve_until(due_s + shift_s)
                self._await_due_before(event["at_ms"])
                begin_s = time.time()
                self._act(event)
                # If an event begins late, all later events are late by the same time.
                shift_s = max(shift_s, begin_s - due_s)
                played.events.append((event["at_ms"], played.ms(begin_s), played.ms(time.time())))
            self._await_due_before(self._plan.until_ms)
            self._serve_until(played.begin_s + self._plan.until_ms / 1000 + shift_s + _REST_S)
            written = self._seen.written(self._plan.group)
            played.written = [(played.ms(at_ms / 1000), event_type) for at_ms, event_type in written]
        finally:
            for reader in self._readers.values():
                reader.leave()
        return played

    def _await_due_before(self, at_ms: int) -> None:
        """Waits for notifications that were due before. On a slow machine they may be as late as the next event."""
        count = sum(due.at_ms < at_ms for due in self._plan.due)
        with suppress(AssertionError):  # what is never written is missed at the end
            self._wait(lambda: len(self._seen.written(self._plan.group)) >= count, "what is due")

    def _serve_until(self, at_s: float) -> None:
        while time.time() < at_s:  # the event's time; this does not wait for a result
            self._serve()

    def _serve(self) -> None:
        for reader in self._readers.values():
            reader.serve()
        if not self._readers:
            time.sleep(_POLL_S)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            self._serve()
            return condition()

        wait_until(look, DEADLINE_S, f"{self._plan.scenario.id}: {what}")

    def _act(self, event: dict[str, Any]) -> None:
        value = event["value"]
        if event["topic"] == "queue-commands":
            self._monitored.send(event["topic"], value | {"queue": self._plan.group})
            self._monitored.producer.flush()
        elif value["type"] == "MESSAGE_ARRIVED":
            self._send(value.get("count", 1))
        elif value["type"] == "SESSION_ENDED":
            self._leave(value["session_id"])
        else:
            self._receive(value)

    def _send(self, count: int) -> None:
        for _ in range(count):
            self._monitored.producer.produce(self._plan.topic, b"x", partition=self._sent % self._plan.partitions)
            self._sent += 1
        self._monitored.producer.flush()

    def _receive(self, value: dict[str, Any]) -> None:
        session, is_seen = value["session_id"], not self._seen.rests(self._plan.group)
        if session not in self._readers:
            self._readers[session] = _Reader(self._monitored.bootstrap_servers, self._plan, session)
        reader, messages, in_transaction = self._readers[session], value.get("messages", 0), "transaction_id" in value
        reader.is_waiting = value["result"] == "WAITING"
        self._wait(lambda: len(reader.taken) >= messages, f"{session} has {messages} messages")
        if not in_transaction:
            for message in reader.taken[:messages]:
                reader.commit(message)
        if is_seen:
            self._wait_for_members()
        else:
            self._wait(lambda: reader.has_joined, f"{session} has partitions")
        if not (reader.is_waiting or in_transaction):
            self._leave(session)

    def _leave(self, session: str) -> None:
        self._readers.pop(session).leave()
        self._wait_for_members()

    def _wait_for_members(self) -> None:
        """Waits until the observer has seen the members. It never sees a consumer that leaves before its look."""
        count = len(self._readers)
        self._wait(lambda: self._seen.members(self._plan.group) == count, f"the observer sees {count} members")
