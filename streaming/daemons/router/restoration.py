"""Restores a router whose checkpoint is lost. With an older copy of the checkpoint, more conversations survive.

The last router may have decided more than the copy says. So the new checkpoint begins after all records that the last
router has read. Each conversation that may have gone on since the copy ends with an Error to both sides. Without a
copy, all open conversations end. docs/router.md has the runbook.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from msgspec import Struct
from pyspark.sql import SparkSession

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.suspects import Suspect
from streaming.daemons.router.traces import Traces
from streaming.errors import UserError
from streaming.kafka.admin import ADMIN_TIMEOUT_S
from streaming.kafka.clients import Cluster
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.spark import progress_files
from streaming.spark.routing.checkpoint_layout import RouterLayout
from streaming.spark.routing.restored_file import Restoration
from streaming.spark.routing.shard_state import RestoredShard, StateRow, number_of
from streaming.system import hints
from streaming.wire.envelope import decode_envelope
from streaming.wire.headers import decoded_headers
from streaming.wire.record_decoders import InvalidRecordError, decoder_of
from streaming.wire.service_decisions import decode_decisions
from streaming.wire.topics import Topics

# The word that --restore takes in place of the location of a copy.
NO_COPY = "none"
_POLL_S = 0.5
# A decision may be this much older than its batch: the clocks of machines differ.
_MARGIN_MS = 600_000


@dataclass(frozen=True)
class Copy:
    """The copy of a checkpoint.

    Attributes:
        generation: The generation of the checkpoint.
        states: The state of each partition's shard; None: the shard has no state yet.
        ends: Topic, with the prefix -> partition -> the offset up to which the router had read.
    """

    generation: int
    states: list[StateRow | None]
    ends: Mapping[str, Mapping[str, int]]


class _EndpointRow(Struct):
    """The fields of a record of service-conversations that are needed here. A router may have millions of records."""

    state: str
    service: str
    database: str
    far_service: str
    conversation_group_id: str


_decode_endpoint = decoder_of(_EndpointRow)


def read_copy(spark: SparkSession, location: str, layout: RouterLayout) -> Copy:
    """Returns the state of a copied checkpoint after its last complete batch.

    Raises:
        UserError: The copy has no complete batch.
    """
    progress_files.require_whole(spark, location)
    batch = progress_files.newest_batch(spark, location, "commits")
    if batch is None:
        without = hints.option("--restore", NO_COPY)
        raise UserError(f"The checkpoint {location} has no complete batch. Restore with {without} instead.")
    spark.streams.active  # noqa: B018  (creates the coordinator that the reader needs; SPARK-58973)
    rows = spark.read.format("statestore").load(location).select("key.*", "value.groupState.*").collect()
    states = {row[0]: cast("StateRow", tuple(row)[1:]) for row in rows}
    return Copy(
        layout.generation,
        [states.get(key) for key in layout.shard_keys],
        progress_files.end_offsets(spark, location, batch),
    )


def gather(cluster: Cluster, topics: Topics, partitions: int, traces: Traces, copy: Copy | None) -> Restoration:
    """Returns the state, the offsets and the suspect conversations with which a restored router begins.

    Args:
        cluster: The Kafka cluster.
        topics: The topics.
        partitions: The number of partitions of service-messages.
        traces: The newest work of the last router.
        copy: The copy of the last router's checkpoint; None: there is no copy.

    Raises:
        UserError: The copy is older than the records that Kafka still has, or Kafka cannot be reached.
    """
    if copy is not None:
        _require_records(cluster, topics, copy)
    ends = [_ends(traces, copy, topics, number) for number in range(partitions)]
    suspects = _suspects(cluster, topics, traces, copy, ends)
    offsets = {
        topic: {str(number): ends[number][place] for number in range(partitions)}
        for place, topic in enumerate((topics.service_messages, topics.service_incoming))
    }
    reports = topics.service_reports
    known = copy.ends.get(reports, {}) if copy else _of(traces, topics, reports)
    offsets[reports] = dict(known)
    shards = [
        RestoredShard(copy.states[number] if copy else None, ends[number], suspects[number])
        for number in range(partitions)
    ]
    return Restoration(traces.generation + 1, offsets, shards)


def _require_records(cluster: Cluster, topics: Topics, copy: Copy) -> None:
    """Raises UserError if Kafka lacks records that show which conversations have gone on since the copy."""
    consumer = cluster.consumer({"group.id": "queue-activation-router-restore", "enable.auto.commit": False})
    topic, decisions = topics.service_messages, topics.service_decisions
    try:
        for number, state in enumerate(copy.states):
            first, _ = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ADMIN_TIMEOUT_S)
            copied = copy.ends.get(topic, {}).get(str(number), 0)
            if first > copied:
                raise UserError(
                    f"The copy is too old: it has read partition {number} of {topic} up to offset {copied}, and Kafka "
                    f"has deleted the records below {first}. {_newer_copy()}"
                )
            decided = _first_decided(consumer, TopicPartition(decisions, number))
            last = copy.generation, 0 if state is None else number_of(state)
            if is_gap(decided, last):
                raise UserError(
                    f"The copy is too old: Kafka has deleted decisions that were made after it, in partition {number} "
                    f"of {decisions}. {_newer_copy()}"
                )
    except KafkaException as error:
        raise UserError(f"Kafka cannot be reached: {error.args[0].str()}. Check --bootstrap-servers.") from None
    finally:
        consumer.close()


def _newer_copy() -> str:
    return f"Use a newer copy, or restore with {hints.option('--restore', NO_COPY)}."


def _first_decided(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    """Returns generation and number of the first decision record that is left; None if no record was deleted."""
    first, end = consumer.get_watermark_offsets(place, timeout=ADMIN_TIMEOUT_S)
    if not first or first == end:
        return None
    consumer.assign([TopicPartition(place.topic, place.partition, first)])
    deadline_s = time.monotonic() + ADMIN_TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        if (error := message.error()) is not None:
            raise KafkaException(error)
        with contextlib.suppress(InvalidRecordError):
            record = decode_decisions(message.value())
            return record.generation, record.number
    raise UserError(f"Partition {place.partition} of {place.topic} cannot be read. Check that Kafka runs.")


def is_gap(first: tuple[int, int] | None, last: tuple[int, int]) -> bool:
    """Returns whether Kafka has deleted decision records that are newer than the last record of a copy.

    Args:
        first: Generation and number of the first record that is left; None if no record was deleted.
        last: Generation and number of the copy's last record.
    """
    return first is not None and first > (last[0], last[1] + 1)


def _of(traces: Traces, topics: Topics, topic: str) -> Mapping[str, int]:
    return traces.ends.get(topic.removeprefix(topics.prefix), {})


def _ends(traces: Traces, copy: Copy | None, topics: Topics, number: int) -> tuple[int, int]:
    """Returns the offsets up to which routers have read a partition of service-messages and service-incoming."""
    found = []
    for topic in (topics.service_messages, topics.service_incoming):
        seen = _of(traces, topics, topic).get(str(number), 0)
        copied = copy.ends.get(topic, {}).get(str(number), 0) if copy else 0
        found.append(max(seen, copied))
    return found[0], found[1]


def _suspects(
    cluster: Cluster, topics: Topics, traces: Traces, copy: Copy | None, ends: list[tuple[int, int]]
) -> list[list[Suspect]]:
    """Returns, for each partition, the conversations that may have gone on since the copy."""
    name = topics.service_messages.removeprefix(topics.prefix)
    # Without a copy, the views show all conversations with messages that were read in committed batches.
    read = copy.ends.get(topics.service_messages, {}) if copy else traces.committed.get(name, {})
    said = _said_since(cluster, topics.service_messages, read, ends)
    known = _viewed_conversations(cluster, topics)
    suspects: list[dict[str, Suspect]] = [{} for _ in ends]
    if copy is None:
        for name, (number, suspect) in known.items():
            suspects[number][name] = suspect
    for number, found in enumerate(said):
        for name, suspect in found.items():
            suspects[number][name] = known.get(name, (number, suspect))[1]
    if copy is not None:
        for number, name in _decided_since(cluster, topics, copy):
            suspects[number].setdefault(name, known.get(name, (number, _closed(name)))[1])
    return [[found[name] for name in sorted(found)] for found in suspects]


def _said_since(
    cluster: Cluster, topic: str, read: Mapping[str, int], ends: list[tuple[int, int]]
) -> list[dict[str, Suspect]]:
    """Returns, for each partition, the conversations with messages that the last router has read since the copy.

    The times of messages do not show this: a router that was stopped for long reads old messages.

    Args:
        cluster: The Kafka cluster.
        topic: The topic of messages.
        read: Partition -> the offset up to which the copy has read.
        ends: The offsets up to which routers have read service-messages and service-incoming, for each partition.
    """
    found: list[dict[str, Suspect]] = [{} for _ in ends]
    begins = {number: read.get(str(number), 0) for number in range(len(ends))}
    with TopicFollower(cluster, [topic], Start.BEGINNING, offsets=begins) as follower:
        for message in follower.to_end():
            number = message.partition() or 0
            suspect = _suspect_of(message) if (message.offset() or 0) < ends[number][0] else None
            if suspect is not None:
                found[number].setdefault(suspect.conversation_id, suspect)
    return found


def _suspect_of(message: Message) -> Suspect | None:
    try:
        envelope = decode_envelope(decoded_headers(message))
    except InvalidRecordError:
        return None
    group = envelope.conversation_group_id or envelope.conversation_id
    services, databases = (envelope.from_service, envelope.to_service), (envelope.from_database, None)
    groups = (group, envelope.conversation_id)
    if not envelope.is_initiator:
        return Suspect(envelope.conversation_id, services[::-1], databases[::-1], groups[::-1])
    return Suspect(envelope.conversation_id, services, databases, groups)


def _decided_since(cluster: Cluster, topics: Topics, copy: Copy) -> Iterator[tuple[int, str]]:
    """Yields the partition and the conversation of each delivery that was decided after the copy."""
    times = [state[2] for state in copy.states if state is not None]
    since_ms = max(0, min(times, default=0) - _MARGIN_MS)
    numbers = [0 if state is None else number_of(state) for state in copy.states]
    for message in _records(cluster, topics.service_decisions, since_ms):
        with contextlib.suppress(InvalidRecordError):
            record, number = decode_decisions(message.value()), message.partition() or 0
            if (record.generation, record.number) > (copy.generation, numbers[number]):
                for decision in record.batch(0).decisions:
                    if isinstance(decision, Deliver):
                        yield number, decision.conversation_id


def _viewed_conversations(cluster: Cluster, topics: Topics) -> dict[str, tuple[int, Suspect]]:
    """Returns the conversations in the views, with their partitions."""
    sides: dict[str, dict[bool, _EndpointRow]] = {}
    places: dict[str, int] = {}
    for message in _records(cluster, topics.service_conversations, 0):
        name, _, side = (message.key() or b"").decode(errors="replace").rpartition("/")
        is_initiator = side == "initiator"
        value = message.value()
        if value is None:
            sides.get(name, {}).pop(is_initiator, None)
            continue
        with contextlib.suppress(InvalidRecordError):
            row = _decode_endpoint(value)
            sides.setdefault(name, {})[is_initiator] = row
            places[name] = message.partition() or 0
    return {name: (places[name], _suspect_of_views(name, rows)) for name, rows in sides.items()}


def _closed(name: str) -> Suspect:
    """Returns a suspect conversation without services: its sides get an Error only if the copy has the conversation."""
    return Suspect(name, ("", ""), (None, None), (name, name))


def _suspect_of_views(name: str, rows: Mapping[bool, _EndpointRow]) -> Suspect:
    if all(row.state == "CD" for row in rows.values()):
        return _closed(name)
    initiator, target = rows.get(True), rows.get(False)
    services = (initiator.service, initiator.far_service) if initiator else ("", "")
    if target and not initiator:
        services = (target.far_service, target.service)
    databases = initiator.database if initiator else None, target.database if target else None
    first, second = (row.conversation_group_id if row else name for row in (initiator, target))
    return Suspect(name, services, databases, (first, second))


def _records(cluster: Cluster, topic: str, since_ms: int) -> Iterator[Message]:
    with TopicFollower(cluster, [topic], Start.BEGINNING, since_ms=since_ms or None) as follower:
        yield from follower.to_end()
