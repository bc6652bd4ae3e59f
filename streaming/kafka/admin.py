"""Kafka's administration: finds, checks, creates and deletes topics, and lists the members of consumer groups."""

import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, NewTopic, OffsetSpec, ResourceType

from streaming.errors import UserError
from streaming.kafka.access import (
    RightMissingError,
    Rights,
    WatchfulAdmin,
    check_group,
    denial,
    missing_rights,
    partitions_of,
)
from streaming.kafka.bootstrap_servers import listening
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import NO_LEADER, NOBODY_ANSWERS
from streaming.kafka.group_coordinator import committed, wait_for_coordinator
from streaming.kafka.patience import REQUEST_TIMEOUT_S
from streaming.system import hints
from streaming.system.documents import document
from streaming.wire.topics import TopicSpec, prefix_of

ADMIN_TIMEOUT_S = REQUEST_TIMEOUT_S
# The replication factor that stands for the broker's default.
BROKERS_REPLICATION_FACTOR = -1
# It takes milliseconds until every broker knows a new topic.
_PROPAGATION_S = 1.0
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
_NO_TOPIC = (KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART)
_TOO_OLD = (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)
# librdkafka's reasons of a connection that no server has accepted.
_NOT_ACCEPTED = ("Connect to ", "Failed to resolve ")

_LEADER_INTERVAL_S = 0.1
_RETENTION_SETTING = "offsets.retention.minutes"
_NOT_SEEN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True)
class GroupMember:
    """A member of a consumer group.

    Attributes:
        instance_id: The `group.instance.id` of the member; None if it has none.
        client_id: The `client.id` of the member.
        host: The address from which the member connects.
        partitions: The number of partitions that the group has assigned to the member.
        member_id: The id that the group has given the member. A member that joins again gets another id.
    """

    instance_id: str | None
    client_id: str
    host: str
    partitions: int
    member_id: str = ""


class TooOldError(UserError):
    """Kafka is too old to answer a request."""


class TopicsMissingError(UserError):
    """Topics are missing.

    Attributes:
        cluster: The cluster.
        topics: The names of the topics.
    """

    def __init__(self, cluster: Cluster, topics: list[str]) -> None:
        create = hints.command("topics", servers=cluster.bootstrap_servers, prefix=prefix_of(topics[0]))
        super().__init__(f"Topics are missing: {', '.join(topics)}. Create them: run `{create}`.")
        self.cluster = cluster
        self.topics = topics


class Admin:
    """Kafka's administration, with error messages for users.

    Attributes:
        client: The client for requests that are not about groups. `failed` may replace it.
        servers: The bootstrap servers of the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.client = cluster.admin_client()
        self.servers = cluster.bootstrap_servers

    def client_for_groups(self) -> WatchfulAdmin:
        """Returns a new client, for requests to coordinators of groups that have just answered.

        After an outage, a client of librdkafka 2.16 may get no answer from a coordinator for the rest of its life,
        although new clients get answers.
        """
        return self._cluster.admin_client()

    def client_for_group(self, group_id: str, timeout_s: float = ADMIN_TIMEOUT_S) -> WatchfulAdmin:
        """Waits until the coordinator of a group answers; returns a new client for requests to this coordinator.

        Raises:
            AccessDeniedError: Kafka does not let this client in.
            KafkaException: The coordinator has not answered within `timeout_s`.
        """
        wait_for_coordinator(self._cluster, group_id, timeout_s)
        return self.client_for_groups()

    def failed(self, error: KafkaException) -> None:
        """Replaces the client after FENCED_LEADER_EPOCH: its later requests would go on naming a former leader.

        The former client ends once no method refers to it, and its requests with it.
        """
        if error.args[0].code() == KafkaError.FENCED_LEADER_EPOCH:
            self.client = self._cluster.admin_client()

    def check(self) -> None:
        """Checks that Kafka answers and lets the client in; raises UserError otherwise."""
        try:
            self.client.result(self.client.describe_cluster(request_timeout=ADMIN_TIMEOUT_S))
        except KafkaException as error:
            raise self._explained(error) from None

    def find_topics(self, rights: Rights) -> dict[str, int]:
        """Returns the number of partitions of each topic that exists. The client must have these `rights`.

        If topics are missing, the method waits a moment, because they may be new. The method creates no topic, even if
        the broker creates topics automatically.

        Raises:
            UserError: Kafka cannot be reached or refuses.
        """
        deadline_s = time.monotonic() + _PROPAGATION_S
        while True:
            try:
                partitions = partitions_of(self.client, rights, ADMIN_TIMEOUT_S)
            except KafkaException as error:
                raise self._explained(error) from None
            if len(partitions) == len(rights) or time.monotonic() >= deadline_s:
                return partitions
            time.sleep(_PROPAGATION_S / 20)

    def require_topics(self, rights: Rights) -> dict[str, int]:
        """Returns the number of partitions of each topic. The client must have these `rights`.

        Raises:
            TopicsMissingError: A topic is missing.
            UserError: Kafka cannot be reached or refuses.
        """
        partitions = self.find_topics(rights)
        if missing := sorted(rights.keys() - partitions.keys()):
            raise TopicsMissingError(self._cluster, missing)
        return partitions

    def topic_ids(self, names: Iterable[str], timeout_s: float = ADMIN_TIMEOUT_S) -> dict[str, str]:
        """Returns topic -> id, for the topics that exist. A topic that is deleted and created again has another id.

        Raises:
            UserError: Kafka cannot be reached, or denies access.
        """
        ids = {}
        client = self.client
        futures = client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        for name, future in futures.items():
            try:
                ids[name] = str(client.result(future).topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._explained(error) from None
        return ids

    def visible_partitions(self, names: Iterable[str], timeout_s: float) -> dict[str, int | None]:
        """Returns topic -> number of partitions, for the topics about which Kafka answers in time.

        The number is None if the topic does not exist, or if this client has no right to see the topic.
        """
        client = self.client
        futures = client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        found: dict[str, int | None] = {}
        for name, future in futures.items():
            try:
                found[name] = len(client.result(future).partitions)
            except KafkaException as error:
                if error.args[0].code() in _NOT_SEEN:
                    found[name] = None
            except UserError:
                continue
        return found

    def replication_factors(self, names: Iterable[str]) -> dict[str, int]:
        """Returns topic -> number of copies of each partition, of the topics that exist and that this client may see.

        If partitions have different numbers, the smallest number counts.
        """
        client = self.client
        futures = client.describe_topics(TopicCollection(list(names)), request_timeout=ADMIN_TIMEOUT_S)
        found = {}
        for name, future in futures.items():
            with suppress(KafkaException, UserError):
                found[name] = min(len(partition.replicas) for partition in client.result(future).partitions)
        return found

    def require_group(self, group_id: str) -> None:
        """Checks that the client may be a member of a consumer group. Without an answer in time, the check succeeds.

        Raises:
            UserError: Kafka refuses.
        """
        with suppress(KafkaException):
            check_group(self.client_for_group(group_id), group_id)

    def members(self, group_id: str, timeout_s: float) -> list[GroupMember]:
        """Returns the members of a consumer group, or an empty list if there is no such group.

        Args:
            group_id: The name of the group.
            timeout_s: The longest wait for the group's coordinator.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        try:
            members = self.client_for_group(group_id, timeout_s).group(group_id).members
        except (KafkaException, RightMissingError) as error:
            raise self._not_seen(error, group_id) from None
        return [
            GroupMember(
                each.group_instance_id,
                each.client_id,
                each.host.removeprefix("/"),  # Java's form of an address
                len(each.assignment.topic_partitions) if each.assignment else 0,
                each.member_id,
            )
            for each in members
        ]

    def offsets(self, topic: str, partitions: int, spec: OffsetSpec) -> list[int]:
        """Returns the offset that a specification describes in each partition; negative if there is no such record.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        places = [TopicPartition(topic, number) for number in range(partitions)]
        end_s = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            client = self.client
            futures = client.list_offsets(dict.fromkeys(places, spec), request_timeout=ADMIN_TIMEOUT_S)
            try:
                return [int(client.result(futures[place]).offset) for place in places]
            except KafkaException as error:
                # A partition that was created just now has no leader yet.
                self.failed(error)
                if error.args[0].code() not in NO_LEADER or time.monotonic() > end_s:
                    raise self._explained(error, topic) from None
            time.sleep(_LEADER_INTERVAL_S)

    def committed_text(self, group_id: str, topic: str) -> str | None:
        """Returns the text that a consumer group has committed with its offset of a topic's first partition.

        Returns None if the group has committed no text, or if Kafka has removed the commit.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        [found] = self.committed(group_id, topic, [0])
        return found.metadata or None

    def committed(self, group_id: str, topic: str, partitions: Iterable[int]) -> list[TopicPartition]:
        """Returns partitions of a topic with the offset and the text that a consumer group has committed.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        try:
            return committed(self._cluster, group_id, topic, partitions, ADMIN_TIMEOUT_S)
        except (KafkaException, RightMissingError) as error:
            raise self._not_seen(error, group_id, topic) from None

    def newest_ms(self, topic: str) -> int | None:
        """Returns the time of the newest record of a topic with one partition; None if the topic has no record.

        Raises:
            TooOldError: Kafka is older than version 3.0.
            UserError: Kafka cannot be reached, or refuses.
        """
        client = self.client
        futures = client.list_offsets({TopicPartition(topic, 0): _NEWEST}, request_timeout=ADMIN_TIMEOUT_S)
        (future,) = futures.values()
        try:
            newest_ms = int(client.result(future).timestamp)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _TOO_OLD:
                raise TooOldError(
                    f"Kafka is older than version 3.0, and does not tell the time of the newest record of {topic}."
                ) from None
            if code in _NO_TOPIC:
                self.find_topics({topic: (AclOperation.DESCRIBE,)})  # a topic that is denied does not seem to exist
                return None
            raise self._explained(error, topic) from None
        return newest_ms if newest_ms >= 0 else None

    def offsets_retention_ms(self, timeout_s: float) -> int | None:
        """Returns the time for which Kafka keeps the offsets of a group without members; None if unknown.

        The method asks one broker, because this setting should be the same on all brokers.
        """
        try:
            cluster = self.client.result(self.client.describe_cluster(request_timeout=timeout_s))
            broker = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))
            (future,) = self.client.describe_configs([broker], request_timeout=timeout_s).values()
            return int(self.client.result(future)[_RETENTION_SETTING].value) * 60_000
        except (KafkaException, UserError, KeyError):
            return None

    def create_topics(self, specs: list[TopicSpec], partitions: int, replication_factor: int) -> list[str]:
        """Creates the topics that do not exist yet, and returns their names.

        Raises:
            UserError: Kafka cannot be reached, or refuses.
        """
        new_topics = [
            NewTopic(spec.name, partitions if spec.is_partitioned else 1, replication_factor, config=spec.config)
            for spec in specs
        ]
        exists = KafkaError.TOPIC_ALREADY_EXISTS
        futures = self.client.create_topics(new_topics, request_timeout=ADMIN_TIMEOUT_S).items()
        return [name for name, future in futures if self._is_done(future, exists, f"Topic {name} could not be created")]

    def delete_topic(self, name: str) -> bool:
        """Deletes a topic; returns whether it existed.

        Raises:
            UserError: Kafka cannot be reached, or denies access.
        """
        (future,) = self.client.delete_topics([name], request_timeout=ADMIN_TIMEOUT_S).values()
        return self._is_done(future, KafkaError.UNKNOWN_TOPIC_OR_PART, f"Topic {name} could not be deleted")

    def _is_done(self, future: "Future[None]", unless: int, failure: str) -> bool:
        """Returns True if Kafka has done the work, and False for the error `unless`: there was no work to do."""
        try:
            self.client.result(future)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in NOBODY_ANSWERS:
                raise self._explained(error) from None
            if reason.code() != unless:
                raise UserError(f"{failure}: {denial(reason) or reason.str()}") from None
            return False
        return True

    def other_settings(self, specs: list[TopicSpec]) -> list[str]:
        """Returns a sentence for each setting of a topic that differs from the setting that its programs rely on."""
        resources = {ConfigResource(ResourceType.TOPIC, spec.name): spec for spec in specs if spec.config}
        # An empty request is an error.
        asked = self.client.describe_configs([*resources], request_timeout=ADMIN_TIMEOUT_S) if resources else {}
        sentences = []
        for resource, future in asked.items():
            try:
                entries = self.client.result(future)
            except KafkaException as error:
                sentences.append(f"the settings of topic {resource.name} cannot be read: {error.args[0].str()}")
                continue
            for name, wanted in resources[resource].config.items():
                if entries[name].value != wanted:
                    sentences.append(f"topic {resource.name} has {name}={entries[name].value} instead of {wanted}")
        return sentences

    def _not_seen(
        self, error: KafkaException | RightMissingError, group_id: str, topic: str | None = None
    ) -> UserError:
        """Returns an error for the user about a request for facts of a consumer group. See `_explained`."""
        # A RightMissingError comes from `error_cb`, sooner than the answer, and does not name the group.
        if isinstance(error, RightMissingError) or error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return RightMissingError(missing_rights([f"Describe on consumer group {group_id}"]))
        return self._explained(error, topic)

    def _explained(self, error: KafkaException, topic: str | None = None) -> UserError:
        """Returns an error for the user: Kafka refuses, or it cannot be reached.

        Args:
            error: Kafka's error.
            topic: The topic of which the request asked for facts; None: another request.
        """
        if topic is not None and error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return RightMissingError(missing_rights([f"Describe on topic {topic}"]))
        if denied := denial(error.args[0]):
            return denied
        # A broker that expects TLS closes a plain connection without an error.
        is_plain = "security.protocol" not in self._cluster.config
        servers, config = map(hints.option_or_argument, ("--bootstrap-servers", "--kafka-config"))
        secured = f" If Kafka is secured, set {config} (see {document('security.md')})." if is_plain else ""
        reason = self.client.no_connection or error.args[0].str()
        if error.args[0].code() in NOBODY_ANSWERS and (server := listening(self.servers)) is not None:
            protocol = secured or f" Check also security.protocol in {hints.client_properties()}."
            state, check = f"accepts connections, but does not answer as Kafka does ({reason})", "Check"
            if reason.startswith(_NOT_ACCEPTED):
                state = f"accepts connections now, but before that, a connection failed ({reason})"
                check = "If Kafka has just been started there, try again. Otherwise check"
            return UserError(
                f"{server} {state}. {check} {servers}: another program may listen there, or Kafka hangs or "
                f"is too busy.{protocol}"
            )
        broker = hints.broker(self.servers)
        starts = "" if broker is None else f" `{broker}` starts one on this machine."
        return UserError(
            f"Kafka cannot be reached at {self.servers} ({reason}). Check {servers}, and that the broker runs."
            f"{starts}{secured}"
        )
