"""The consumer groups of the demo of plain consumers, and the messages for their topics."""

from dataclasses import dataclass
from enum import Enum


class Client(Enum):
    """A Kafka client, with its usual name."""

    CONFLUENT_KAFKA = "confluent-kafka"
    KAFKA_PYTHON = "kafka-python"
    JAVA = "Java's client"


@dataclass(frozen=True)
class DemoGroup:
    """A consumer group of the demo.

    Attributes:
        name: The name of the group, and of its topic.
        partitions: The partitions of the topic.
        client: The client of its consumers.
        work_s: The time that a consumer works on a message, in seconds.
        what: The kind of messages, for people.
    """

    name: str
    partitions: int
    client: Client
    work_s: float
    what: str


# A burst for which one consumer is too slow, and later one that a single consumer reads.
ORDERS = DemoGroup("orders", 2, Client.CONFLUENT_KAFKA, 0.1, "bursts")
# The first burst goes on, if necessary, until so many consumers have received something.
BURST, CONSUMERS_OF_BURST, SMALL_BURST = 300, 2, 12

INVOICES = DemoGroup("invoices", 2, Client.KAFKA_PYTHON, 0.05, "a trickle")
TRICKLE, TRICKLE_INTERVAL_S = 8, 2.0

# All messages of one customer are in one partition, so only one consumer can read them.
PAYMENTS = DemoGroup("payments", 6, Client.JAVA, 0.15, "a hot partition")
HOT_PARTITION, PAID = 3, 60

# Aborted messages have offsets, but no consumer can read them.
AUDIT = DemoGroup("audit", 3, Client.KAFKA_PYTHON, 0.05, "an aborted transaction")
ABORTED, COMMITTED = 30, 6

# Expired messages have offsets, too.
ARCHIVE = DemoGroup("archive", 3, Client.CONFLUENT_KAFKA, 0.05, "expired messages")
EXPIRED = 20

GROUPS = (ORDERS, INVOICES, PAYMENTS, AUDIT, ARCHIVE)


def spread(count: int, partitions: int) -> dict[int, int]:
    """Returns partition -> its number of messages, if `count` messages are spread evenly."""
    return {partition: len(range(partition, count, partitions)) for partition in range(partitions)}
