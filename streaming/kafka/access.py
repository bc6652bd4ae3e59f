"""Whether Kafka lets a client in, and what it may do there; each refusal becomes one message that says what to change.

librdkafka tries a refused connection again for ever, and tells the reason to the client's `error_cb` only. So whoever
starts asks first, with an eye on that callback: for its topics, and for the rights that Kafka says it has on them.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from streaming.errors import UserError

# What a client needs on each topic, by name.
Rights = Mapping[str, Collection[AclOperation]]

_WHERE = "See docs/security.md for the ACLs that each command needs"
_ADVICE = {
    KafkaError._AUTHENTICATION: (
        "Kafka does not know this user, or not by this password. Check sasl.jaas.config and sasl.mechanism in the file "
        "of --kafka-config"
    ),
    KafkaError._SSL: (
        "there is no TLS connection to Kafka. Check in the file of --kafka-config that ssl.truststore.location names "
        "the certificate that signed the broker's, and that --bootstrap-servers has a name that the broker's is for"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Kafka does not allow this user what it needs on a topic. {_WHERE}",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"Kafka does not allow this user its consumer group. {_WHERE}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f"Kafka does not allow this user transactions (a transactional id that begins with queue-activation-). {_WHERE}"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"Kafka does not allow this user what it needs on the cluster. {_WHERE}",
}
_NOT_LET_IN = (KafkaError._AUTHENTICATION, KafkaError._SSL)

# Java's clients' names for the same.
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
# A request that has met a cluster without its topic of groups, which the request itself has it make, is not answered
# any more.
_GROUP_TIMEOUT_S = 1.0

T = TypeVar("T")


def rights(*, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> Rights:
    """The rights of a client that reads these topics and writes those."""
    wanted: dict[str, list[AclOperation]] = {}
    for topics, operation in ((reads, AclOperation.READ), (writes, AclOperation.WRITE)):
        for topic in topics:
            wanted.setdefault(topic, []).append(operation)
    return wanted


class AccessDeniedError(UserError):
    """Kafka does not let the client in, or does not allow it what it needs."""


class RightMissingError(AccessDeniedError):
    """Kafka knows the client, and does not allow it what it needs: waiting does not help."""


def denial(error: KafkaError) -> AccessDeniedError | None:
    """What to tell the user if an error is a refusal; None if it is something else."""
    advice = _ADVICE.get(error.code())
    if advice is None:
        return None
    kind = AccessDeniedError if error.code() in _NOT_LET_IN else RightMissingError
    return kind(f"{advice}. ({error.str()})")


def java_denial(text: str) -> AccessDeniedError | None:
    """As `denial`, from the text of a failure in the JVM."""
    found = _JAVA_DENIAL.search(text)
    if found is None:
        return None
    advice = _ADVICE[_JAVA_ERRORS[found[1]]]
    return AccessDeniedError(f"{advice}. ({found[2]})")


class Denials:
    """An `error_cb` that remembers the last refusal.

    Attributes:
        last: The refusal; None: there was none.
    """

    def __init__(self) -> None:
        self.last: AccessDeniedError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Takes note."""
        self.last = denial(error) or self.last

    def check(self) -> None:
        """Raises the refusal, if there was one since the last check."""
        denied, self.last = self.last, None
        if denied is not None:
            raise denied


class WatchfulAdmin(AdminClient):
    """An AdminClient whose answers are awaited with an eye on refusals."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Connects lazily.

        Raises:
            KafkaException: It does not take its properties.
        """
        self._denials = Denials()
        callback: dict[str, Any] = {"error_cb": self._denials}
        super().__init__({**config, **callback})

    def result(self, future: "Future[T]") -> T:
        """An answer; the request's own time-out bounds the wait.

        Raises:
            AccessDeniedError: Kafka does not let this client in.
            KafkaException: The answer is an error.
        """
        while True:
            try:
                return future.result(_POLL_INTERVAL_S)
            except TimeoutError:
                self.poll(0)
                self._denials.check()


def partitions_of(admin: WatchfulAdmin, rights: Rights, timeout_s: float) -> dict[str, int]:
    """The number of partitions of each topic that exists, after a look at what the client may do with it.

    Raises:
        AccessDeniedError: Kafka does not let the client in, or does not allow it what it needs. Who may not see a topic
            is not told whether it exists.
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


def check_group(admin: WatchfulAdmin, group_id: str, timeout_s: float) -> None:
    """Checks that the client may be a member of a consumer group, if Kafka can tell that at the moment.

    Raises:
        AccessDeniedError: Kafka does not let the client in, or not into the group.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        (future,) = admin.describe_consumer_groups(
            [group_id], request_timeout=_GROUP_TIMEOUT_S, include_authorized_operations=True
        ).values()
        try:
            allowed = admin.result(future).authorized_operations
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                time.sleep(_POLL_INTERVAL_S)
                continue
            allowed = []
        _require_none(_lacking((AclOperation.READ,), allowed, f"consumer group {group_id}"))
        return


def _lacking(wanted: Collection[AclOperation], allowed: Collection[AclOperation] | None, where: str) -> list[str]:
    # None: a broker that does not tell.
    return [f"{one.name} on {where}" for one in wanted if allowed is not None and one not in allowed]


def _require_none(lacking: list[str]) -> None:
    if lacking:
        raise RightMissingError(f"Kafka does not allow this user: {', '.join(lacking)}. {_WHERE}")
