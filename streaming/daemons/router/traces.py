"""The traces that routers have left in Kafka. A router compares them with its checkpoint before it starts.

A router on a lost checkpoint, or on an older copy, would decide a second time about messages that were delivered. Its
progress (service-progress) and its decisions (service-decisions) show how far it had read.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from streaming.kafka.clients import Cluster
from streaming.kafka.last_records import last_records
from streaming.system import hints
from streaming.wire import service_progress
from streaming.wire.record_decoders import InvalidRecordError
from streaming.wire.service_decisions import decode_decisions
from streaming.wire.service_progress import ProgressRecord, decode_progress
from streaming.wire.topics import Topics

# At the end of a partition there may be invalid records and records of a failed attempt, but fewer than this.
_LOOKED_AT = 100
# The topics on which a restored router goes on, in the order of a decision record's ends. It reads commands again.
_MESSAGES = (Topics().service_messages, Topics().service_incoming)


@dataclass(frozen=True)
class Traces:
    """The newest work of routers on the topics of a prefix.

    Attributes:
        generation: The highest generation; 0 if there are no traces.
        batch: The number of the newest batch of this generation that was reported as committed; None: no report.
        ends: Topic, without the prefix -> partition -> the highest offset up to which a router has read.
        committed: As `ends`, but only up to the newest batch that was reported as committed.
    """

    generation: int = 0
    batch: int | None = None
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    committed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """The newest batch that a checkpoint has planned.

    Attributes:
        generation: The checkpoint's generation.
        batch: The number of the batch; None if no batch was planned.
        ends: Topic, without the prefix -> partition -> the offset at which the batch ends.
    """

    generation: int
    batch: int | None
    ends: Mapping[str, Mapping[str, int]]


def read_traces(cluster: Cluster, topics: Topics, partitions: Mapping[str, int]) -> Traces:
    """Returns the traces in Kafka. Invalid records are passed over.

    Raises:
        UserError: Kafka cannot be reached, or denies access.
    """
    progress: ProgressRecord | None = None
    for record in last_records(cluster, topics.service_progress, partitions[topics.service_progress], _LOOKED_AT):
        if record.key() == service_progress.KEY:
            with suppress(InvalidRecordError):
                progress = decode_progress(record.value())
    generation = progress.generation if progress else 0
    ends = {topic: dict(found) for topic, found in (progress.ends if progress else {}).items()}
    for record in last_records(cluster, topics.service_decisions, partitions[topics.service_decisions], _LOOKED_AT):
        try:
            decided = decode_decisions(record.value())
        except InvalidRecordError:
            continue
        generation = max(generation, decided.generation)
        for name, end in zip(_MESSAGES, decided.ends, strict=True):
            of_topic, number = ends.setdefault(name, {}), str(record.partition())
            of_topic[number] = max(end, of_topic.get(number, 0))
    if progress is None:
        return Traces(generation, None, ends)
    # A restored router counts its batches from 0. It may have written decisions and committed none of its batches yet.
    batch = progress.batch if progress.generation == generation else None
    return Traces(generation, batch, ends, progress.ends)


def problem_of(traces: Traces, planned: Planned | None, location: str) -> str | None:
    """Returns why no router may start on a checkpoint; None if a router may start.

    Args:
        traces: The traces in Kafka.
        planned: The newest batch of the checkpoint; None if there is no checkpoint.
        location: The checkpoint's location.
    """
    if not traces.generation:
        return None
    place = hints.option("--checkpoint-location")
    known = "" if traces.batch is None else f", and has committed its batch {traces.batch}"
    if planned is None:
        return (
            f"A router has decided about messages of these topics (generation {traces.generation}{known}), and there "
            f"is no checkpoint at {location}. A router that begins again would deliver the same messages a second "
            f"time. Start with the {place} of that router. If its checkpoint is lost, add "
            f"{hints.option('--restore', 'none', names_table=False)}, or {hints.option('--restore', 'COPY')} with an "
            "older copy of it."
        )
    if traces.generation < planned.generation:
        return _problem_of_restored(traces, planned, location)
    ahead = _ahead(traces, planned)
    if ahead is None:
        return None
    return (
        f"The checkpoint {location} is older than the work of the last router: {ahead}. A router that goes on from it "
        "would deliver messages a second time. Put the newest state of the checkpoint in its place, or start with the "
        f"{place} of the last router. If that is lost, start with a new {place} and "
        f"{hints.option('--restore', location)}."
    )


def _problem_of_restored(traces: Traces, planned: Planned, location: str) -> str | None:
    """Returns why a restored checkpoint is invalid: another router has gone on since; None if it is valid."""
    behind = _behind(traces, planned, _MESSAGES)
    if behind is None:
        return None
    topic, number, begun, end = behind
    place = hints.option("--checkpoint-location")
    return (
        f"The checkpoint {location} was restored, and then another router has gone on with generation "
        f"{traces.generation}: this one begins at offset {begun} of partition {number} of {topic}, and Kafka shows "
        f"{end}. It would deliver messages a second time. Start with the {place} of that router, or "
        f"restore again with a new {place}."
    )


def _behind(traces: Traces, planned: Planned, topics: Iterable[str]) -> tuple[str, str, int, int] | None:
    """Returns the first partition of these topics that was read further than planned, and the two offsets."""
    for topic in sorted(topics):
        for number, end in sorted(traces.ends.get(topic, {}).items()):
            begun = planned.ends.get(topic, {}).get(number, 0)
            if end > begun:
                return topic, number, begun, end
    return None


def _ahead(traces: Traces, planned: Planned) -> str | None:
    """Returns in which way the traces are ahead of the checkpoint; None if they are not."""
    if traces.generation > planned.generation:
        return f"the checkpoint has generation {planned.generation}, and Kafka has decisions of {traces.generation}"
    behind = _behind(traces, planned, traces.ends)
    if behind is not None:
        topic, number, begun, end = behind
        return f"it has read partition {number} of {topic} up to offset {begun}, and Kafka shows {end}"
    if traces.batch is not None and (planned.batch is None or traces.batch > planned.batch):
        return f"its newest batch is {planned.batch}, and batch {traces.batch} was committed"
    return None
