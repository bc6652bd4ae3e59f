"""The settings that a worker needs to take a shard through a batch.

Spark pickles these settings with the query. They are in a separate module because the modules that use them are
compiled, and a frozen dataclass that mypyc has compiled cannot be pickled.
"""

from dataclasses import dataclass

from streaming.core.activation.settings import CoreSettings
from streaming.wire.notifications import ActivationFormat


@dataclass(frozen=True)
class ServerNames:
    """The names in EVENT_INSTANCE for which Kafka has no counterpart."""

    server: str
    default_database: str


@dataclass(frozen=True)
class ShardSettings:
    """The settings of `run_shard` in every worker."""

    core: CoreSettings
    topic_prefix: str
    names: ServerNames
    activation_format: ActivationFormat
    logs_batches: bool
