"""The names and settings of the monitor's topics."""

from dataclasses import dataclass

from streaming.errors import UserError

# The longest topic name and the characters that Kafka allows (org.apache.kafka.common.internals.Topic).
MAX_TOPIC_NAME_LENGTH = 249
TOPIC_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# The input topics. The broker's clock orders the events of a batch, so a producer's clock cannot disturb the order. The
# broker decompresses records on arrival, so a record of a gigabyte cannot arrive as a batch of a megabyte.
_INPUT = {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"}
_COMPACTED = {"cleanup.policy": "compact"}
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
# Kafka compacts all but the last segment. These topics have few keys, and a record for each batch or transaction.
_COMPACTED_SOON = _COMPACTED | {"segment.bytes": str(16 * 1024 * 1024)}
# A program learns the brokers' clock from the stamps of its own records.
_STAMPED = {"message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class TopicSpec:
    """The properties of a topic to create.

    Attributes:
        name: The topic's name, including the prefix.
        is_partitioned: Whether it gets the requested number of partitions; otherwise it gets one partition.
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
        self.activators = prefix + "queue-activators"
        self.dead_letters = prefix + "queue-dead-letters"
        self.batches = prefix + "queue-batches"
        self.service_messages = prefix + "service-messages"
        self.service_incoming = prefix + "service-incoming"
        self.service_decisions = prefix + "service-decisions"
        self.service_commands = prefix + "service-commands"
        self.service_reports = prefix + "service-reports"
        self.service_ticks = prefix + "service-ticks"
        self.service_marks = prefix + "service-marks"
        self.service_definitions = prefix + "service-definitions"
        self.service_conversations = prefix + "service-conversations"
        self.service_transmissions = prefix + "service-transmissions"
        self.service_progress = prefix + "service-progress"
        self.service_maintenance = prefix + "service-maintenance"
        self.service_dead_letters = prefix + "service-dead-letters"

    def specs(self) -> list[TopicSpec]:
        """Returns all required topics. Kafka keeps commands forever, so that definitions can be rebuilt from them."""
        return [
            TopicSpec(self.arrivals, True, _INPUT),
            TopicSpec(self.receives, True, _INPUT),
            TopicSpec(self.commands, False, _INPUT | _KEPT),
            TopicSpec(self.ticks, False, _INPUT | {"retention.ms": str(HOUR_MS)}),
            TopicSpec(self.activations, True, {}),
            TopicSpec(self.tasks, True, {}),
            TopicSpec(self.activated_tasks, True, _COMPACTED),
            TopicSpec(self.monitors, True, _COMPACTED),
            TopicSpec(self.activators, True, _COMPACTED),
            TopicSpec(self.dead_letters, False, {}),
            # Every program has its record there, also a program without services.
            TopicSpec(self.service_maintenance, False, _COMPACTED_SOON | _STAMPED),
        ]

    def service_specs(self) -> list[TopicSpec]:
        """Returns the topics of services. The partitions of messages, incoming, decisions and marks correspond."""
        return [
            TopicSpec(self.service_messages, True, _INPUT | _KEPT),
            TopicSpec(self.service_incoming, True, _INPUT | _KEPT),
            TopicSpec(self.service_decisions, True, _KEPT),
            TopicSpec(self.service_marks, True, _COMPACTED_SOON),
            TopicSpec(self.service_conversations, True, _COMPACTED),
            TopicSpec(self.service_transmissions, True, _COMPACTED),
            TopicSpec(self.service_commands, False, _INPUT | _KEPT),
            TopicSpec(self.service_reports, False, _INPUT | _KEPT),
            TopicSpec(self.service_ticks, False, _INPUT | {"retention.ms": str(HOUR_MS)}),
            TopicSpec(self.service_definitions, False, _COMPACTED),
            TopicSpec(self.service_progress, False, _COMPACTED_SOON),
            TopicSpec(self.service_dead_letters, False, {}),
        ]

    def counted(self) -> list[str]:
        """Returns the topics of which the monitor must not miss a record; a missed tick does no harm."""
        return [self.arrivals, self.receives, self.commands]

    def inputs(self) -> list[str]:
        """Returns the topics that the monitor reads."""
        return [*self.counted(), self.ticks]

    def service_inputs(self) -> list[str]:
        """Returns the topics that the router reads."""
        return [
            self.service_messages,
            self.service_incoming,
            self.service_commands,
            self.service_reports,
            self.service_ticks,
        ]

    def service_outputs(self) -> list[str]:
        """Returns the topics that the router's shards write."""
        return [
            self.service_decisions,
            self.service_definitions,
            self.service_conversations,
            self.service_transmissions,
            self.service_dead_letters,
        ]

    def batches_spec(self) -> TopicSpec:
        """Returns the topic for the log of batches, which only a monitor with `--log-batches` needs."""
        return TopicSpec(self.batches, True, {"retention.ms": str(DAY_MS)})

    def names(self) -> frozenset[str]:
        """Returns the names of all topics."""
        return frozenset(spec.name for spec in (*self.specs(), self.batches_spec(), *self.service_specs()))


def prefix_of(topic: str) -> str:
    """Returns the prefix of one of our own topics."""
    return min((topic.removesuffix(name) for name in Topics().names() if topic.endswith(name)), key=len, default="")


def check_prefix(prefix: str) -> None:
    """Checks that the names of topics can begin with a prefix; raises UserError."""
    most = MAX_TOPIC_NAME_LENGTH - max(map(len, Topics().names()))
    if not TOPIC_NAME_CHARACTERS.issuperset(prefix) or len(prefix) > most:
        raise UserError(
            f"The topic prefix {prefix!r} is not valid: it may have at most {most} characters, and only ASCII letters, "
            "digits, '.', '_' and '-'"
        )


def topic_name_problem(queue: str, topics: Topics) -> str | None:
    """Returns why a queue cannot have a Kafka topic with the queue's name; None without such a reason."""
    if len(queue) > MAX_TOPIC_NAME_LENGTH:
        return f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    if queue in topics.names():
        return "it is the name of a topic of the monitor or of services"
    if queue in ("", ".", "..") or not TOPIC_NAME_CHARACTERS.issuperset(queue):
        return "a topic name may contain only ASCII letters, digits, '.', '_' and '-'"
    return None
