"""The settings that a worker needs to take a shard through a batch.

Spark pickles these settings with the query. They are in a separate module because the modules that use them are
compiled, and a frozen dataclass that mypyc has compiled cannot be pickled.
"""

from dataclasses import dataclass

from streaming.core.activation.settings import CoreSettings
from streaming.wire.notifications import ActivationFormat


@dataclass(frozen=True)
class ShardSettings:
    """The settings of `run_shard` in every worker.

    Attributes:
        core: The settings of the core.
        topic_prefix: Prefix of the topics.
        server_name: The server's name in notifications, for which Kafka has no counterpart.
        default_database: The database of a queue whose name contains no database.
        activation_format: The format of notifications.
        logs_batches: Whether the shard writes the input of each queue to queue-batches.
    """

    core: CoreSettings
    topic_prefix: str
    server_name: str
    default_database: str
    activation_format: ActivationFormat
    logs_batches: bool
