"""Writes the router's progress: after each commit, the batch's number and its end offsets, to service-progress."""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from streaming.core.times import iso_time
from streaming.kafka.access import MayBeDenied
from streaming.kafka.clients import Cluster
from streaming.system import wall_clock
from streaming.wire.service_progress import KEY, ProgressRecord, encode_progress
from streaming.wire.topics import Topics

_FLUSH_S = 1.0
_log = logging.getLogger(__name__)


class ProgressWriter(MayBeDenied):
    """Writes the progress from the thread of Spark's listener. A record that Kafka does not take is not a failure.

    The next record makes up for a lost record, and the decisions also show how far the router has read.

    Attributes:
        task: The writer's task, for messages.
        failure: The error that ended the writer's work; else None.
    """

    task = "write its progress"

    def __init__(self, cluster: Cluster, topics: Topics, generation: int) -> None:
        self.failure: BaseException | None = None
        self._topics = topics
        self._generation = generation
        self._producer = cluster.producer({"linger.ms": 0})

    def __enter__(self) -> "ProgressWriter":
        return self

    def __exit__(self, *_: object) -> None:
        """Waits a moment for Kafka to take the last record."""
        self._producer.flush(_FLUSH_S)

    def query_is_active(self, is_active: bool) -> None:
        """Does nothing."""

    def batch_is_committed(self, progress: Mapping[str, Any]) -> None:
        """Writes the progress of a committed batch; `progress` is Spark's StreamingQueryProgress, from its JSON."""
        try:
            self._write(progress)
        except BufferError:
            _log.warning("Kafka is slow to take the router's progress. A record of it was left out")
        except Exception as error:
            reason = error.args[0] if isinstance(error, KafkaException) else None
            if not isinstance(reason, KafkaError) or not self.note_denial(reason):
                self.failure = error

    def _write(self, progress: Mapping[str, Any]) -> None:
        prefix = self._topics.prefix
        ends = {
            topic.removeprefix(prefix): {number: int(offset) for number, offset in found.items()}
            for source in progress["sources"]
            for topic, found in (source["endOffset"] or {}).items()
        }
        record = ProgressRecord(self._generation, progress["batchId"], ends, iso_time(wall_clock.now_ms()))
        topic = self._topics.service_progress
        self._producer.produce(topic, encode_progress(record), KEY, on_delivery=self.on_delivery)
        self._producer.poll(0)
