"""What a worker must know to take a shard through a batch.

It is pickled, with the query, and so not where it is used: that is compiled, and what mypyc makes of a frozen dataclass
cannot be pickled.
"""

from dataclasses import dataclass

from streaming.core.activation.settings import CoreSettings
from streaming.wire.notifications import ActivationFormat


@dataclass(frozen=True)
class ServerNames:
    """The names of EVENT_INSTANCE that Kafka has no word for."""

    server: str
    default_database: str


@dataclass(frozen=True)
class ShardSettings:
    """What `run_shard` needs in every worker."""

    core: CoreSettings
    topic_prefix: str
    names: ServerNames
    activation_format: ActivationFormat
    logs_batches: bool
