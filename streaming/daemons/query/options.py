"""The options and settings that monitor and router have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from streaming.system import durations
from streaming.system.durations import Duration
from streaming.system.options import duration, option

CheckpointLocation = Annotated[
    str, option("--checkpoint-location", "Folder or URI for progress and state. The next start continues there.")
]
TakeOver = Annotated[
    bool,
    option(
        "--take-over",
        "End the program that runs on the same checkpoint, and take its place. Without this option, only a program "
        "that has ended or was silent for 13 s loses its place.",
    ),
]


@dataclass(frozen=True)
class QueryOptions:
    """The options of a program that runs a query."""

    checkpoint_location: CheckpointLocation
    take_over: TakeOver = False
    trigger_interval: Annotated[
        Duration, duration("--trigger-interval", "Shortest time from the start of a batch to the next.")
    ] = durations.parse("100ms")
    driver_memory: Annotated[
        str,
        option(
            "--driver-memory", "Heap of Spark's JVM, such as 512m or 4g. Ignored under spark-submit, which has its own."
        ),
    ] = "2g"


@dataclass(frozen=True)
class QuerySettings:
    """The settings of a program that runs a query, besides its own options.

    Attributes:
        bootstrap_servers: Kafka's bootstrap servers.
        kafka_properties: The properties of all Kafka clients, by Java's names.
        topic_prefix: The beginning of the names of the topics.
        metrics: Where the metrics are served; None: they are not served.
    """

    bootstrap_servers: str
    kafka_properties: Mapping[str, str]
    topic_prefix: str
    metrics: tuple[str, int] | None
