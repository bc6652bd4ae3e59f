"""What can go wrong while sending and receiving, told apart by what the caller can do about it.

Mistakes in the way the clients are used (a name, a missing topic) are `streaming.errors.UserError`.
"""

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.access import RightMissingError, denial

# Of what a consumer tells; librdkafka recovers from any other error by itself.
LASTING_ERRORS = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    )
)


class TransactionAbortedError(Exception):
    """The Kafka transaction was aborted: nothing of it is visible, and the client can be used again."""


class ReceiveRolledBackError(Exception):
    """What was received is not committed and will be delivered again; the queue reader can be used again."""


class ClientUnusableError(Exception):
    """Kafka lets this client go no further: close it and open a new one.

    Whether the transaction in progress took effect is not known.
    """


class ClientRefusedError(ClientUnusableError, RightMissingError):
    """Kafka does not allow this client what it needs, any more; also an error that the user can put right."""


def unusable(what: str, error: KafkaError) -> ClientUnusableError:
    """The error of a client that can go on no more, with what the user can do if it was refused a right."""
    denied = denial(error)
    if isinstance(denied, RightMissingError):
        return ClientRefusedError(f"{what}: {denied}")
    return ClientUnusableError(f"{what}: {error}")


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error inside an exception of confluent-kafka."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - what confluent-kafka documents, told to the type checker
    return error


def is_rebalance(aborted: TransactionAbortedError) -> bool:
    """Whether a transaction with offsets was aborted because the consumer group was rebalancing."""
    cause = aborted.__cause__
    return isinstance(cause, KafkaException) and kafka_error(cause).code() in (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
    )
