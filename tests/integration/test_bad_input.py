"""The monitor under thousands of random records. Some have megabytes, and some of these are compressed to a kilobyte.

BAD_INPUT_RECORDS sets the least number of records for each input topic.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from streaming.spark.activation.sources import Source
from tests.support.bad_input import Fuzzer, is_valid
from tests.support.fake_spark import Record, arrival, command
from tests.support.monitor_topics import Tail
from tests.support.monitors import DEADLINE_S, Monitored
from tests.support.seeds import fresh_seed
from tests.support.shared_broker import SharedBroker
from tests.support.spark_application import SparkApplication
from tests.support.waiting import wait_until

# One record in five is for queue-commands, which gets the fewest.
RECORDS = int(os.environ.get("BAD_INPUT_RECORDS") or 1_000) * 5
ROUNDS = 10
ALL_READ_S = DEADLINE_S + RECORDS / 500
# More queues than the records create, because they are spread unevenly over the shards.
MAX_QUEUES = 2_000
MIB = 2**20
# Kafka's default limit for a record with its overhead is 1 MiB and 12 bytes.
BROKERS_LIMIT_BYTES = MIB - 500
LARGEST_BYTES = 8 * MIB

GOOD = [f"good-{number}" for number in range(5)]
QUEUES = [f"q{number}" for number in range(60)] + ["Ünicode.\u202e.😀"]
COMPRESSIONS = ("none", "gzip", "zstd", "lz4", "snappy")

Place = tuple[str, int, int]


def padded(text: bytes, length: int) -> Record:
    """Returns a record that is valid but for its length, which is that of key and value together."""
    value = b'{"queue": "q1", "unknown": "%s"}'
    return Record(Source.ARRIVALS, value % (text * length)[: length - len(value % b"") - 2], b"q1")


LARGE = [
    padded(b"x", 65_536),
    padded(b"x", 65_537),
    padded("\N{GRINNING FACE}".encode(), 300_001),
    padded(b"x", BROKERS_LIMIT_BYTES),
    padded(b"x", LARGEST_BYTES - 500),
    Record(Source.ARRIVALS, b"\0" * (LARGEST_BYTES - 500), b"q1"),
    Record(Source.RECEIVES, b"[" * BROKERS_LIMIT_BYTES, b"q2"),
    Record(Source.COMMANDS, b" " * BROKERS_LIMIT_BYTES, None),
    Record(Source.RECEIVES, b"{}", b"k" * BROKERS_LIMIT_BYTES),
]


@dataclass
class Sender:
    """Sends records, and remembers their places in Kafka."""

    monitored: Monitored
    sent: dict[Place, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = {
            "bootstrap.servers": self.monitored.bootstrap_servers,
            "partitioner": "murmur2_random",
            "message.max.bytes": LARGEST_BYTES,
            "batch.num.messages": 100,
        }
        self._producers = [Producer(config | {"compression.type": one}) for one in COMPRESSIONS]

    def send(self, records: list[Record], compression: int = 0) -> None:
        producer = self._producers[compression]
        topics = self.monitored.topics
        for record in records:

            def delivered(error: KafkaError | None, message: Message, record: Record = record) -> None:
                assert error is None, error
                self.sent[cast(Place, (message.topic(), message.partition(), message.offset()))] = record

            topic = getattr(topics, record.source.name.lower())
            producer.produce(topic, key=record.key, value=record.value, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def tick(self, values: list[bytes | None]) -> None:
        """Sends any values as ticks. The monitor does not read the contents of ticks."""
        for value in values:
            self._producers[0].produce(self.monitored.topics.ticks, value, value and value[:100])
            self._producers[0].poll(0)

    def wrong(self) -> set[Place]:
        """Returns the places of the records that break the contract."""
        return {place for place, record in self.sent.items() if is_valid(record) is False}


@pytest.mark.timeout(3 * ALL_READ_S + 1_200)
def test_every_bad_record_is_one_dead_letter_and_the_others_go_on(
    broker: SharedBroker, spark: SparkApplication, tmp_path: Path
) -> None:
    seed = fresh_seed("BAD_INPUT_SEED")
    print(f"BAD_INPUT_SEED={seed} BAD_INPUT_RECORDS={RECORDS // 5} pytest {__file__}")  # noqa: T201
    # Otherwise a run that is longer than the time-out would bring further notifications.
    options = ["--max-queues", str(MAX_QUEUES), "--external-activation-timeout", "none"]
    monitored = Monitored(broker.bootstrap_servers, tmp_path, options, spark)
    allow_large_records(monitored)
    sender, fuzzer = Sender(monitored), Fuzzer(seed, QUEUES, GOOD)
    letters = Tail(monitored.bootstrap_servers, monitored.topics.dead_letters, "read_committed")
    with monitored.running(), monitored.activations() as activations, monitored.view() as view:
        for number in range(ROUNDS):
            compression = number % len(COMPRESSIONS)
            several = [fuzzer.record() for _ in range(RECORDS // ROUNDS)]
            sender.send(several + [arrival(queue) for queue in GOOD], compression)
            sender.tick([fuzzer.nonsense() for _ in range(RECORDS // ROUNDS // 5)])
            # These are above Kafka's default limits: those of the producers and of the topics are raised for them.
            sender.send(LARGE, compression)
        wrong = sender.wrong()
        wait_until(lambda: len(letters.records()) >= len(wrong), ALL_READ_S, "as many dead letters as invalid records")
        wait_until(lambda: wrong <= places(letters).keys(), ALL_READ_S, "the dead letters of all invalid records")
        # A batch reads all earlier records. So after the batch with these arrivals no further dead letter can come.
        sender.send([arrival(queue) for queue in GOOD])
        for queue in GOOD:
            view.wait_for(queue, lambda row: row["unread_messages"] == ROUNDS + 1)
            [activation] = activations.wait_for(queue, 1)
            assert (activation["sequence"], activation["reason"]) == (1, "MESSAGE_ARRIVED_ON_EMPTY_QUEUE")
        found = places(letters)
        flood = [arrival(f"flood-{number}") for number in range(2 * MAX_QUEUES)]
        sender.send([*flood, command("CREATE_EVENT_NOTIFICATION", "defined", notification="n")])
        wait_until(lambda: len(places(letters)) >= len(found) + MAX_QUEUES, DEADLINE_S, "the refused arrivals")
        # Spark reads the topics side by side: an arrival sent with its command could be in an earlier batch.
        view.wait_for("defined", lambda row: row["state"] == "INACTIVE")
        sender.send([arrival("defined")])
        activations.wait_for("defined", 1)
    refused = [letter for place, letter in places(letters).items() if place not in found]
    letters.close()
    assert len(refused) < len(flood)
    for letter in refused:
        assert letter.key.startswith(b"flood-")
        assert dict(letter.headers)["reason"].startswith(b"too many queues")
    assert len(found) > RECORDS // 3
    for place, letter in found.items():
        record = sender.sent[place]
        assert is_valid(record) in (False, None), letter.headers
        assert (letter.key, letter.value) == (
            record.key and record.key[:1024],
            record.value and record.value[: MIB // 4],
        )


def test_what_unpacks_to_more_than_the_topic_takes_is_refused_by_the_broker(
    broker: SharedBroker, tmp_path: Path
) -> None:
    topics = Monitored(broker.bootstrap_servers, tmp_path, []).topics
    packed = {"compression.type": "zstd", "message.max.bytes": 64 * MIB}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers} | packed)
    errors = []
    for topic in (topics.arrivals, topics.receives, topics.commands):
        producer.produce(topic, b"\0" * 32 * MIB, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE] * 3


def places(letters: Tail) -> dict[Place, Any]:
    """Returns the dead letters by the places of their records; fails if a record has two."""
    found = {}
    for letter in letters.records():
        headers = {name: value.decode() for name, value in letter.headers}
        place = (headers["source_topic"], int(headers["source_partition"]), int(headers["source_offset"]))
        assert place not in found, headers
        found[place] = letter
    return found


def allow_large_records(monitored: Monitored) -> None:
    """Raises the limit of the input topics, as a user with large records does."""
    topics = monitored.topics
    entry = ConfigEntry("max.message.bytes", str(LARGEST_BYTES), incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for topic in (topics.arrivals, topics.receives, topics.commands)
    ]
    admin = AdminClient({"bootstrap.servers": monitored.bootstrap_servers})
    for future in admin.incremental_alter_configs(resources).values():
        future.result()
