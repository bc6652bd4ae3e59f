"""Errors of sending and receiving, grouped by the possible reactions of the caller.

Mistakes in the use of the clients (a wrong name, a missing topic) are `streaming.errors.UserError`. A client that
cannot continue raises a UserError too, whose message says the reason.
"""

from confluent_kafka import KafkaError, KafkaException

from streaming.errors import UserError
from streaming.kafka.access import Denials, RightMissingError, denial

NOBODY_ANSWERS = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
NO_COORDINATOR = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)

# The errors of a consumer from which librdkafka does not recover by itself.
LASTING_ERRORS = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
)

# The errors of a record that only this record causes, and the errors that its topic causes.
FAULTS_OF_A_RECORD = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG_SIZE)
FAULTS_OF_A_TOPIC = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
)
# Kafka is away, or a producer is fenced: no record is at fault.
NO_FAULT_OF_A_RECORD = (
    *NOBODY_ANSWERS,
    *NO_COORDINATOR,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
)

_OTHER_STRATEGY = (
    "another consumer in the consumer group of the queue has another assignment strategy. Give it "
    "partition.assignment.strategy=cooperative-sticky if it reads the queue together with queue readers, or else "
    "another group.id"
)


class TransactionAbortedError(Exception):
    """The Kafka transaction was aborted. None of its records is visible, and the client can be used again."""


class ReceiveRolledBackError(Exception):
    """The received messages are not committed and will be delivered again. The queue reader can be used again."""


class ClientUnusableError(UserError):
    """This client cannot continue: close it and open a new client.

    It is unknown whether the transaction in progress took effect.
    """


class ClientRefusedError(ClientUnusableError, RightMissingError):
    """Kafka no longer grants this client a right that it needs."""


def unusable(what: str, error: KafkaError) -> ClientUnusableError:
    """Returns the error of a client that cannot continue, with advice if the user can remove the cause."""
    denied = denial(error)
    if isinstance(denied, RightMissingError):
        return ClientRefusedError(f"{what}: {denied}")
    if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
        return ClientUnusableError(f"{what}: {_OTHER_STRATEGY}")
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return ClientUnusableError(f"{what}: the topic does not exist any more. ({error.str()})")
    return ClientUnusableError(f"{what}: {error.str()}")


def kafka_error(exception: KafkaException) -> KafkaError:
    """Returns the error inside an exception of confluent-kafka."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - documented by confluent-kafka; for the type checker
    return error


def words_of(error: BaseException) -> str:
    """Returns Kafka's words of an error; confluent-kafka would also print its name for it, in a form of its own."""
    return kafka_error(error).str() if isinstance(error, KafkaException) else str(error)


def reason_of(error: KafkaError, servers: str, denials: Denials) -> str:
    """Returns the sentence about a Kafka that does not answer, or that refuses.

    Args:
        error: Kafka's error.
        servers: The servers of this Kafka.
        denials: Knows the failed connections of the client.
    """
    if denied := denial(error):
        return str(denied)
    if error.code() not in NOBODY_ANSWERS:
        return f"Kafka says: {error.str()}"
    reason = f" ({denials.no_connection})" if denials.no_connection else ""
    return f"Kafka at {servers} does not answer{reason}"


def is_rebalance(aborted: TransactionAbortedError) -> bool:
    """Returns whether a transaction with offsets was aborted because the consumer group was rebalancing."""
    cause = aborted.__cause__
    return isinstance(cause, KafkaException) and kafka_error(cause).code() in (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
    )
