"""The offsets that a consumer group has committed."""

from confluent_kafka import Consumer, TopicPartition

from python_peers.command_line import Options

_TIMEOUT_S = 5.0


class CommittedOffsets:
    """The offsets that the consumer group of a run has committed."""

    def __init__(self, options: Options) -> None:
        self._consumer = Consumer({"bootstrap.servers": options.bootstrap_servers, "group.id": options.group})
        self._partitions = partitions(self._consumer, options.topics)
        self._events = options.events

    def are_complete(self) -> bool:
        """Returns whether the group has committed all input. The input topics begin at offset 0."""
        committed = self._consumer.committed(self._partitions, timeout=_TIMEOUT_S)
        return sum(max(partition.offset, 0) for partition in committed) >= self._events


def partitions(consumer: Consumer, topics: tuple[str, ...]) -> list[TopicPartition]:
    """Returns all partitions of these topics."""
    known = consumer.list_topics(timeout=_TIMEOUT_S).topics
    return [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
