"""Checks that Kafka lets a client in and grants its rights. A refusal becomes a message with the necessary change.

librdkafka retries a refused connection forever, and reports the reason only to the client's `error_cb`. So a program
begins with a request for its topics and its rights on them, and checks the reported reason while it waits.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from streaming.errors import UserError
from streaming.kafka.patience import COORDINATOR_REQUEST_S, COORDINATOR_TIMEOUT_S, REQUEST_TIMEOUT_S, Wait
from streaming.system import hints
from streaming.system.documents import document

# Topic -> the operations that a client needs on it.
Rights = Mapping[str, Collection[AclOperation]]

_ADVICE = {
    KafkaError._AUTHENTICATION: (
        "Kafka rejects this user name or password. Check {login} and sasl.mechanism in {properties}"
    ),
    KafkaError._SSL: (
        "The TLS connection to Kafka failed. Check in {properties} that {trusted} names the certificate that signed "
        "the broker's certificate, and that {servers} has a host name for which the broker's certificate was issued"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Kafka does not grant this user a required right on a topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Kafka does not grant this user its consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Kafka does not grant this user the transactional ids that begin with queue-activation-"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Kafka does not grant this user a required right on the cluster",
}
_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL)

# The names of these errors in Java's clients.
_JAVA_ERRORS = {
    "SaslAuthenticationException": KafkaError._AUTHENTICATION,
    "SslAuthenticationException": KafkaError._SSL,
    "TopicAuthorizationException": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    "GroupAuthorizationException": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "TransactionalIdAuthorizationException": KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "ClusterAuthorizationException": KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_JAVA_DENIAL = re.compile(rf"({'|'.join(_JAVA_ERRORS)}): (.*)")

_POLL_INTERVAL_S = 0.1
# The time-outs of all requests but those to coordinators are shorter.
_LOST_AFTER_S = COORDINATOR_TIMEOUT_S
# The broker before the reason for a failed connection, and the state of the connection after it.
_LIBRDKAFKAS_DETAILS = re.compile(r"^\S+: | \(after \d+ms in state .*")

T = TypeVar("T")


def rights(*, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> Rights:
    """Returns the rights of a client that reads the topics `reads` and writes to the topics `writes`."""
    wanted: dict[str, list[AclOperation]] = {}
    for topics, operation in ((reads, AclOperation.READ), (writes, AclOperation.WRITE)):
        for topic in topics:
            wanted.setdefault(topic, []).append(operation)
    return wanted


class AccessDeniedError(UserError):
    """Kafka does not let the client in, or does not grant it a right that it needs."""


class RightMissingError(AccessDeniedError):
    """Kafka knows the client, but does not grant it a right that it needs. Waiting does not help."""


def denial(error: KafkaError) -> AccessDeniedError | None:
    """Returns an error for the user if Kafka's error is a refusal; None otherwise."""
    if error.code() not in _ADVICE:
        return None
    kind = AccessDeniedError if error.code() in _NOT_LET_IN else RightMissingError
    return kind(f"{_advice(error.code())}. ({error.str()})")


class MayBeDenied:
    """The part of a writer of records that notes a missing right to write.

    Attributes:
        denied: The error for the missing right; None if Kafka has refused no record for this reason.
    """

    denied: RightMissingError | None = None

    def note_denial(self, error: KafkaError) -> bool:
        """Notes a missing right; returns whether the error is a refusal."""
        denied = denial(error)
        if isinstance(denied, RightMissingError):
            self.denied = denied
        return denied is not None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - confluent-kafka's form
        """Handles Kafka's answer about a record."""
        if error is not None:
            self.note_denial(error)


def java_denial(text: str) -> AccessDeniedError | None:
    """Returns an error for the user if the text of a failure in the JVM names a refusal of Kafka; None otherwise."""
    found = _JAVA_DENIAL.search(text)
    return None if found is None else AccessDeniedError(f"{_advice(_JAVA_ERRORS[found[1]])}. ({found[2]})")


def _advice(code: int) -> str:
    if code not in _NOT_LET_IN:
        return _with_document(_ADVICE[code])
    # The file of a command has Java's properties, and a client gets librdkafka's.
    is_java = hints.is_command()
    return _ADVICE[code].format(
        login="sasl.jaas.config" if is_java else "sasl.username, sasl.password",
        trusted="ssl.truststore.location" if is_java else "ssl.ca.location",
        properties=hints.client_properties(),
        servers=hints.option_or_argument("--bootstrap-servers"),
    )


def _with_document(sentence: str) -> str:
    # The document's path depends on the working directory, which may change.
    return f"{sentence}. See {document('security.md')} for the ACLs that each command needs"


class Denials:
    """An `error_cb` that remembers the last refusal.

    Attributes:
        last: The last refusal; None if there was none.
        no_connection: Why the last connection failed; None if no connection has failed.
    """

    def __init__(self) -> None:
        self.last: AccessDeniedError | None = None
        self.no_connection: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Remembers the error if it is a refusal or a failed connection."""
        self.last = denial(error) or self.last
        if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE):
            self.no_connection = _LIBRDKAFKAS_DETAILS.sub("", error.str())

    def check(self) -> None:
        """Raises the last refusal since the previous check, if there is one."""
        denied, self.last = self.last, None
        if denied is not None:
            raise denied


class WatchfulAdmin(AdminClient):
    """An AdminClient that notices refusals while it waits for an answer, and says once that a wait is long."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Creates the client, which connects with its first request.

        Raises:
            KafkaException: The client rejects its properties.
        """
        self._denials = Denials()
        self._servers = config["bootstrap.servers"]
        watched: dict[str, Any] = {**config, "error_cb": self._denials}
        super().__init__(watched)

    @property
    def no_connection(self) -> str | None:
        """Returns why the last connection failed; None if no connection has failed."""
        return self._denials.no_connection

    def group(self, group_id: str, timeout_s: float = COORDINATOR_TIMEOUT_S, *, with_rights: bool = False) -> Any:
        """Returns the description of a consumer group, whose coordinator must have answered before.

        Args:
            group_id: The group.
            timeout_s: The longest wait.
            with_rights: Whether the description has the rights of this client on the group.

        The errors are those of `result`.
        """
        (future,) = self.describe_consumer_groups(
            [group_id], request_timeout=COORDINATOR_REQUEST_S, include_authorized_operations=with_rights
        ).values()
        return self.result(future, timeout_s, min(timeout_s, _LOST_AFTER_S))

    def result(self, future: "Future[T]", timeout_s: float = REQUEST_TIMEOUT_S, lost_after_s: float | None = None) -> T:
        """Returns the answer to a request.

        Args:
            future: The answer.
            timeout_s: The longest wait, for the sentence about a long wait.
            lost_after_s: The time after which no answer will come. If Kafka stands still while a request begins,
                librdkafka 2.16.1 may never end the request.

        Raises:
            AccessDeniedError: Kafka does not let this client in.
            KafkaException: The answer is an error, or the request is lost.
        """
        wait = Wait(self._servers, timeout_s)
        end_s = time.monotonic() + (_LOST_AFTER_S if lost_after_s is None else lost_after_s)
        while True:
            try:
                answer = future.result(_POLL_INTERVAL_S)
            except TimeoutError:
                self.poll(0)
                self._denials.check()
                if time.monotonic() >= end_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
                wait.look(self.no_connection)
            else:
                self._denials.no_connection = None
                wait.answered()
                return answer


def partitions_of(admin: WatchfulAdmin, rights: Rights, timeout_s: float) -> dict[str, int]:
    """Returns the number of partitions of each topic that exists, after a check of the client's rights on it.

    Raises:
        AccessDeniedError: Kafka does not let the client in, or does not grant it a right that it needs. If the client
            may not see a topic, Kafka does not tell whether the topic exists.
        KafkaException: Kafka does not answer.
    """
    futures = admin.describe_topics(
        TopicCollection([*rights]), request_timeout=timeout_s, include_authorized_operations=True
    )
    partitions: dict[str, int] = {}
    lacking: list[str] = []
    for name, future in futures.items():
        try:
            topic = admin.result(future)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                lacking += _lacking(rights[name], (), f"topic {name}")
            elif code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        else:
            partitions[name] = len(topic.partitions)
            lacking += _lacking(rights[name], topic.authorized_operations, f"topic {name}")
    _require_none(lacking)
    return partitions


def check_group(admin: WatchfulAdmin, group_id: str) -> None:
    """Checks that the client may be a member of a consumer group. The group's coordinator must have answered before.

    Raises:
        AccessDeniedError: Kafka does not let the client into the group.
        KafkaException: Kafka does not answer.
    """
    try:
        allowed = admin.group(group_id, with_rights=True).authorized_operations
    except (RightMissingError, KafkaException) as error:
        # A RightMissingError comes from `error_cb`, sooner than the answer, and does not name the group.
        if isinstance(error, KafkaException) and error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        allowed = []
    _require_none(_lacking((AclOperation.READ,), allowed, f"consumer group {group_id}"))


def _lacking(wanted: Collection[AclOperation], allowed: Collection[AclOperation] | None, where: str) -> list[str]:
    # `allowed` is None if the broker does not report what is allowed.
    return [f"{one.name} on {where}" for one in wanted if allowed is not None and one not in allowed]


def _require_none(lacking: list[str]) -> None:
    if lacking:
        raise RightMissingError(missing_rights(lacking))


def missing_rights(names: Iterable[str]) -> str:
    """Returns the sentence about rights that a user lacks, such as `Describe on topic orders`."""
    return _with_document(f"Kafka does not grant this user {', '.join(names)}")
