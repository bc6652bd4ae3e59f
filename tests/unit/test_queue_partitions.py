"""The activator runs no more programs than the topic of a queue has partitions, if it can know them."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.daemons.activator import partitions
from streaming.daemons.activator.config import Config, ProgramEntry
from streaming.daemons.activator.partitions import QueuePartitions
from streaming.daemons.activator.step import Step
from streaming.errors import UserError
from streaming.kafka.admin import Admin
from streaming.wire.topics import Topics

CONFIG = Config([ProgramEntry("one", "run"), ProgramEntry("*", "run", max=3)])


class Kafka:
    """Kafka's administration, which counts the requests.

    Attributes:
        topics: The topics that the activator may see, and their partitions.
        asked: The topics of each request.
    """

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.asked: list[list[str]] = []

    def visible_partitions(self, names: Iterable[str], _timeout_s: float) -> dict[str, int | None]:
        self.asked.append(sorted(names))
        return {name: self.topics.get(name) for name in names}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [1_000.0]
    monkeypatch.setattr(partitions.time, "monotonic", lambda: now_s[0])
    return now_s


def counts(kafka: Kafka) -> QueuePartitions:
    return QueuePartitions(kafka, Topics())  # type: ignore[arg-type]


def said(found: QueuePartitions, *queues: str) -> list[tuple[str | None, str, str]]:
    """Asks about queues; returns what the activator's log gets."""
    step = Step(0)
    found.look(queues, CONFIG, step)
    return [(event.queue, event.what, event.why) for event in step.events]


def test_a_topic_with_fewer_partitions_than_max_is_a_limit_that_is_said_once(clock: list[float]) -> None:
    kafka = Kafka(orders=2, wide=3)
    found = counts(kafka)
    assert said(found, "orders", "wide", "elsewhere") == [
        ("orders", "limited", "topic orders has 2 partitions, so no more than 2 of max 3 programs run at a time")
    ]
    assert {queue: found.of(queue) for queue in ("orders", "wide", "elsewhere")} == {
        "orders": 2,
        "wide": 3,
        "elsewhere": None,
    }
    clock[0] += 3_600
    assert said(found, "orders") == []
    kafka.topics["orders"] = 1
    clock[0] += 3_600
    [(_, _, why)] = said(found, "orders")
    assert why.startswith("topic orders has 1 partition, so no more than 1 of max 3")


def test_kafka_is_asked_about_all_queues_at_once_and_seldom(clock: list[float]) -> None:
    kafka = Kafka(a=1, b=1)
    found = counts(kafka)
    for queues in ("ab", "abc", "abc"):
        said(found, *queues)
    assert kafka.asked == [["a", "b"], ["c"]]
    clock[0] += partitions.FRESH_S
    kafka.topics = {"a": 4}
    said(found, "a", "b")
    assert (found.of("a"), found.of("b")) == (4, None), "a topic that was deleted limits nothing"
    found.forget("a")
    assert found.of("a") is None


def test_a_kafka_that_does_not_answer_delays_the_starts_of_one_step_in_a_minute(clock: list[float]) -> None:
    class Silent(Kafka):
        def visible_partitions(self, names: Iterable[str], timeout_s: float) -> dict[str, int | None]:
            super().visible_partitions(names, timeout_s)
            clock[0] += timeout_s
            return {}

    kafka = Silent()
    found = counts(kafka)
    for queue in "abc":
        said(found, queue)
    assert kafka.asked == [["a"]]
    clock[0] += partitions.FRESH_S
    said(found, "b")
    assert kafka.asked == [["a"], ["b"]]


def test_what_is_known_stays_if_kafka_does_not_answer(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka(a=2)
    found = counts(kafka)
    said(found, "a")
    clock[0] += partitions.FRESH_S
    monkeypatch.setattr(kafka, "visible_partitions", lambda *_arguments: {})
    assert said(found, "a") == []
    assert found.of("a") == 2


def test_of_a_topic_that_is_gone_kafka_says_so_and_of_one_without_an_answer_nothing_is_said() -> None:
    errors = {
        "gone": KafkaError.UNKNOWN_TOPIC_OR_PART,
        "denied": KafkaError.TOPIC_AUTHORIZATION_FAILED,
        "silent": KafkaError._TIMED_OUT,
    }

    class Client:
        def describe_topics(self, topics: TopicCollection, **_settings: object) -> dict[str, str]:
            return {name: name for name in topics.topic_names}

        def result(self, name: str) -> Any:
            if name in errors:
                raise KafkaException(KafkaError(errors[name]))
            if name == "refused":
                raise UserError("Kafka rejects this user name or password.")
            return SimpleNamespace(partitions=[0, 1])

    cluster: Any = SimpleNamespace(admin_client=Client, bootstrap_servers="host:9092")
    found = Admin(cluster).visible_partitions(["two", "refused", *errors], 1.0)
    assert found == {"two": 2, "gone": None, "denied": None}


@pytest.mark.usefixtures("clock")
def test_kafka_is_not_asked_where_partitions_limit_nothing_or_the_queue_can_have_no_topic() -> None:
    kafka = Kafka()
    found = counts(kafka)
    assert said(found, "one", "queue-activations", "with blanks") == []
    found.look(["q"], Config([ProgramEntry("other", "run", max=9)]), Step(0))
    assert kafka.asked == []


@pytest.mark.usefixtures("clock")
def test_the_name_of_a_group_is_no_topic_whatever_was_known_of_a_queue_of_that_name() -> None:
    kafka = Kafka(orders=2)
    found = counts(kafka)
    assert len(said(found, "orders")) == 1
    step = Step(0)
    found.look(["orders", "other"], Config([ProgramEntry(group="orders", command="run", max=9)]), step)
    assert (found.of("orders"), step.events, kafka.asked) == (None, [], [["orders"]])


def test_the_partitions_are_the_most_and_the_least_programs() -> None:
    entry = ProgramEntry("orders", "run", min=3, max=4)
    for known, least, most, limit in ((None, 3, 4, None), (2, 2, 2, 2), (4, 3, 4, None), (9, 3, 4, None)):
        policy = entry.policy("salt", known)
        assert (policy.min_programs, policy.max_programs, policy.partitions) == (least, most, limit)
        assert policy.entry == entry.policy("salt").entry
