"""Kafka's refusals of a client: the errors that count as refusals, and messages that say what to change."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from streaming.errors import UserError
from streaming.kafka import admin as admins
from streaming.kafka.access import (
    AccessDeniedError,
    Denials,
    RightMissingError,
    WatchfulAdmin,
    denial,
    java_denial,
    missing_rights,
    rights,
)
from streaming.kafka.admin import Admin
from streaming.kafka.clients import Cluster
from streaming.kafka.errors import ClientRefusedError, ClientUnusableError, unusable

LET_IN = {
    KafkaError._AUTHENTICATION: "sasl.jaas.config",
    KafkaError._SSL: "ssl.truststore.location",
}
RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


@pytest.mark.usefixtures("of_command")
@pytest.mark.parametrize("code", [*LET_IN, *RIGHTS])
def test_a_refusal_says_what_to_change_and_what_kafka_said(code: int) -> None:
    denied = denial(KafkaError(code, "Kafka's words"))
    assert isinstance(denied, UserError)
    assert isinstance(denied, RightMissingError) == (code in RIGHTS)
    assert {**LET_IN, **RIGHTS}[code] in str(denied)
    assert ("docs/security.md" in str(denied)) == (code in RIGHTS)
    assert "(Kafka's words)" in str(denied)
    assert "\n" not in str(denied)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (KafkaError._AUTHENTICATION, ("sasl.username", "`kafka_config`")),
        (KafkaError._SSL, ("ssl.ca.location", "`kafka_config`", "`bootstrap_servers`")),
    ],
)
def test_a_program_without_a_command_line_is_told_its_own_names(code: int, names: tuple[str, ...]) -> None:
    said = str(denial(KafkaError(code)))
    assert "--" not in said
    assert "jaas" not in said
    assert [name for name in names if name not in said] == []


@pytest.mark.parametrize("code", RIGHTS)
def test_the_document_is_named_from_the_present_working_directory(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for error in (denial(KafkaError(code)), missing_rights(["Read on topic t"])):
        assert f"See {Path(__file__).parents[2] / 'docs' / 'security.md'} for the ACLs" in str(error)


@pytest.mark.parametrize("code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_an_outage_is_no_refusal(code: int) -> None:
    assert denial(KafkaError(code)) is None


def test_the_last_refusal_is_kept_whatever_follows() -> None:
    denials = Denials()
    denials.check()
    denials(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    denials(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    with pytest.raises(AccessDeniedError, match="wrong password"):
        denials.check()


class TestLooks:
    """A refusal of a look at a group or a topic names the right that the user lacks, and on what."""

    @pytest.fixture
    def admin(self, monkeypatch: pytest.MonkeyPatch) -> Admin:
        monkeypatch.setattr(admins, "wait_for_coordinator", lambda *_: None)
        return Admin(Cluster("127.0.0.1:1"))

    @pytest.fixture
    def refuse(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
        def refuse(error: Exception) -> None:
            def ask(*_arguments: object, **_options: object) -> None:
                raise error

            monkeypatch.setattr(WatchfulAdmin, "group", ask)
            monkeypatch.setattr(WatchfulAdmin, "result", ask)
            monkeypatch.setattr(admins, "committed", ask)

        return refuse

    @pytest.mark.parametrize("is_answer", [True, False], ids=["answer", "error_cb"])
    def test_a_group(self, admin: Admin, refuse: Callable[[Exception], None], is_answer: bool) -> None:
        error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
        denied = denial(error)
        assert denied is not None
        refuse(KafkaException(error) if is_answer else denied)
        for ask in (lambda: admin.members("readers", 1.0), lambda: admin.committed_text("readers", "ticks")):
            with pytest.raises(RightMissingError, match=r"this user Describe on consumer group readers\. See "):
                ask()

    def test_a_topic(self, admin: Admin, refuse: Callable[[Exception], None]) -> None:
        refuse(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        for ask in (
            lambda: admin.committed_text("readers", "ticks"),
            lambda: admin.newest_ms("ticks"),
            lambda: admin.offsets("ticks", 1, admins.LATEST),
        ):
            with pytest.raises(RightMissingError, match=r"this user Describe on topic ticks\. See "):
                ask()

    def test_a_user_who_is_not_let_in_lacks_no_right(self, admin: Admin, refuse: Callable[[Exception], None]) -> None:
        refuse(AccessDeniedError("wrong password"))
        for ask in (lambda: admin.members("readers", 1.0), lambda: admin.committed_text("readers", "ticks")):
            with pytest.raises(AccessDeniedError, match="wrong password"):
                ask()


@pytest.mark.usefixtures("of_command")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("TopicAuthorizationException: Not authorized to access topics: [t]", "docs/security.md"),
        ("SaslAuthenticationException: Authentication failed", "sasl.jaas.config"),
        ("SslAuthenticationException: SSL handshake failed", "ssl.truststore.location"),
        ("GroupAuthorizationException: Not authorized to access group: g", "consumer group"),
    ],
)
def test_a_refusal_that_the_jvm_reports_says_what_to_change(line: str, said: str) -> None:
    trace = f"[STREAM_FAILED] Query terminated.\norg.apache.kafka.common.errors.{line}\n\tat org.apache.kafka.Some\n"
    denied = java_denial(trace)
    assert denied is not None
    assert said in str(denied)
    assert str(denied).endswith(f"({line.partition(': ')[2]})")


def test_another_failure_in_the_jvm_is_no_refusal() -> None:
    assert java_denial("org.apache.kafka.common.errors.TimeoutException: too late") is None


def test_rights_on_a_topic_that_is_read_and_written() -> None:
    assert rights(reads=["a", "b"], writes=["b", "c"]) == {
        "a": [AclOperation.READ],
        "b": [AclOperation.READ, AclOperation.WRITE],
        "c": [AclOperation.WRITE],
    }


def test_a_client_that_lost_a_right_is_unusable_and_the_user_can_put_it_right() -> None:
    refused = unusable("it cannot go on", KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "no"))
    assert isinstance(refused, ClientRefusedError)
    assert isinstance(refused, UserError)
    other = unusable("it cannot go on", KafkaError(KafkaError._FATAL, "no"))
    assert type(other) is ClientUnusableError
    for error in (refused, other):
        assert str(error).startswith("it cannot go on: ")


@pytest.mark.parametrize(
    "code", [KafkaError.INCONSISTENT_GROUP_PROTOCOL, KafkaError._FATAL, KafkaError.GROUP_AUTHORIZATION_FAILED]
)
def test_a_client_that_cannot_go_on_is_an_error_of_the_user_and_one_sentence(code: int) -> None:
    error = unusable("Queue 'orders' cannot be read", KafkaError(code, "Broker: the reason"))
    assert isinstance(error, UserError), "a program that catches it as documented has no traceback"
    assert "KafkaError{" not in str(error)
    assert str(error).startswith("Queue 'orders' cannot be read: ")
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC])
def test_a_topic_that_was_deleted_is_told_before_kafkas_own_words(code: int) -> None:
    error = unusable("Queue 'orders' cannot be read", KafkaError(code, "Broker: the reason"))
    assert str(error) == "Queue 'orders' cannot be read: the topic does not exist any more. (Broker: the reason)"


def test_a_plain_consumer_in_the_group_of_the_queue_is_named_with_what_to_do() -> None:
    error = unusable("Queue 'orders' cannot be read", KafkaError(KafkaError.INCONSISTENT_GROUP_PROTOCOL, "x"))
    assert "partition.assignment.strategy=cooperative-sticky" in str(error)
