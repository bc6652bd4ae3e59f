"""The names and settings of the monitor's topics."""

from dataclasses import dataclass

# The longest topic name and the characters that Kafka allows (org.apache.kafka.common.internals.Topic).
MAX_TOPIC_NAME_LENGTH = 249
TOPIC_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# The input topics. The broker's clock orders the events of a batch, so a producer's clock cannot disturb the order. The
# broker decompresses records on arrival, so a record of a gigabyte cannot arrive as a batch of a megabyte.
_INPUT = {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"}
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True)
class TopicSpec:
    """The properties of a topic to create.

    Attributes:
        name: The topic's name, including the prefix.
        is_partitioned: Whether it gets the requested number of partitions; otherwise it gets one.
        config: Kafka's settings of the topic.
    """

    name: str
    is_partitioned: bool
    config: dict[str, str]


class Topics:
    """The names of all topics under one prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.arrivals = prefix + "queue-arrivals"
        self.receives = prefix + "queue-receives"
        self.commands = prefix + "queue-commands"
        self.ticks = prefix + "queue-ticks"
        self.activations = prefix + "queue-activations"
        self.tasks = prefix + "queue-tasks"
        self.activated_tasks = prefix + "queue-activated-tasks"
        self.monitors = prefix + "queue-monitors"
        self.dead_letters = prefix + "queue-dead-letters"
        self.batches = prefix + "queue-batches"

    def specs(self) -> list[TopicSpec]:
        """Returns all required topics. Kafka keeps commands forever, so that definitions can be rebuilt from them."""
        return [
            TopicSpec(self.arrivals, True, _INPUT),
            TopicSpec(self.receives, True, _INPUT),
            TopicSpec(self.commands, False, _INPUT | {"retention.ms": "-1", "retention.bytes": "-1"}),
            TopicSpec(self.ticks, False, _INPUT | {"retention.ms": str(HOUR_MS)}),
            TopicSpec(self.activations, True, {}),
            TopicSpec(self.tasks, True, {}),
            TopicSpec(self.activated_tasks, True, _COMPACTED),
            TopicSpec(self.monitors, True, _COMPACTED),
            TopicSpec(self.dead_letters, False, {}),
        ]

    def counted(self) -> list[str]:
        """Returns the topics of which the monitor must not miss a record; a missed tick does no harm."""
        return [self.arrivals, self.receives, self.commands]

    def inputs(self) -> list[str]:
        """Returns the topics that the monitor reads."""
        return [*self.counted(), self.ticks]

    def batches_spec(self) -> TopicSpec:
        """Returns the topic for the log of batches, which only a monitor with `--log-batches` needs."""
        return TopicSpec(self.batches, True, {"retention.ms": str(DAY_MS)})

    def names(self) -> frozenset[str]:
        """Returns the names of all topics."""
        return frozenset(spec.name for spec in (*self.specs(), self.batches_spec()))


def topic_name_problem(queue: str, topics: Topics) -> str | None:
    """Returns why a queue of this name cannot have a Kafka topic of the same name; None if it can."""
    if len(queue) > MAX_TOPIC_NAME_LENGTH:
        return f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    if queue in topics.names():
        return "it is the name of one of the monitor's own topics"
    if queue in ("", ".", "..") or not TOPIC_NAME_CHARACTERS.issuperset(queue):
        return "a topic name may contain only ASCII letters, digits, '.', '_' and '-'"
    return None
