"""A wrong type of an argument of the public clients is a UserError that names the argument, before Kafka is asked."""

from typing import Any

import pytest

from producers import Message, QueueProducer, QueueReader, ServiceClient, UserError, create_queue_topics
from producers.conversations import Statements
from tests.support.shell import run_command

SERVERS = "127.0.0.1:1"
WRONG: Any = 5


def client() -> Any:
    """Returns a client that has no Kafka, of a database with the service Orders."""
    made: Any = object.__new__(ServiceClient)
    made._statements, made._database, made._known = Statements(lambda: None), "shop", {"Orders"}
    return made


def send(*messages: Any) -> None:
    object.__new__(QueueProducer).send_many(messages)


def receive(max_messages: Any, timeout: Any) -> None:
    with object.__new__(QueueReader).receive(max_messages, timeout):
        pass


def topics(queues: Any = ("orders",), partitions: Any = 1, replication_factor: Any = 1, **more: Any) -> None:
    create_queue_topics(SERVERS, queues, partitions=partitions, replication_factor=replication_factor, **more)


@pytest.mark.parametrize(
    "connect",
    [
        lambda servers=SERVERS, **more: QueueProducer(servers, **more),
        lambda servers=SERVERS, **more: QueueReader(servers, "orders", **more),
        lambda servers=SERVERS, **more: ServiceClient(servers, "shop", **more),
        lambda servers=SERVERS, **more: create_queue_topics(
            servers, ["orders"], partitions=1, replication_factor=1, **more
        ),
    ],
)
def test_where_kafka_is_has_a_type(connect: Any) -> None:
    for given, name in (
        ({"servers": WRONG}, "bootstrap_servers"),
        ({"servers": None}, "bootstrap_servers"),
        ({"servers": "\ud800"}, "bootstrap_servers"),
        ({"topic_prefix": None}, "topic_prefix"),
        ({"kafka_config": "client.properties"}, "kafka_config"),
    ):
        with pytest.raises(UserError, match=f"^`{name}` is "):
            connect(**given)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda: QueueProducer(SERVERS, transaction_timeout_ms="5s"), "`transaction_timeout_ms` is of type str"),  # type: ignore[arg-type]
        (lambda: ServiceClient(SERVERS, "shop", transaction_timeout_ms=None), "`transaction_timeout_ms` is of type"),  # type: ignore[arg-type]
        (lambda: ServiceClient(SERVERS, WRONG), "`database` is of type int; it must be str"),
        (lambda: QueueReader(SERVERS, WRONG), "`queue` is of type int; it must be str"),
        (lambda: QueueReader(SERVERS, "q", group_id=WRONG), "`group_id` is of type int; it must be str or None"),
        (lambda: QueueReader(SERVERS, "q", session_id=WRONG), "`session_id` is of type int; it must be str or None"),
        (lambda: receive("1", 1), "`max_messages` is of type str; it must be int"),
        (lambda: receive(1.5, 1), "`max_messages` is of type float; it must be int"),
        (lambda: receive(1, "5s"), "`timeout` is of type str; it must be float or int"),
        (lambda: receive(1, None), "`timeout` is of type NoneType; it must be float or int"),
        (lambda: object.__new__(QueueProducer).send_many(WRONG), "`messages` is of type int"),
        (lambda: send("a message"), "`messages` is of type str; it must be Message"),
        (lambda: send(Message(["orders"], b"")), "`queue` is of type list; it must be str"),  # type: ignore[arg-type]
        (lambda: send(Message("orders", WRONG)), "`value` is of type int; it must be bytes"),
        (lambda: send(Message("orders", bytearray(b"x"))), "`value` is of type bytearray; it must be bytes"),  # type: ignore[arg-type]
        (lambda: send(Message("orders", b"", WRONG)), "`conversation_group_id` is of type int"),
        (lambda: send(Message("orders", b"", "\ud800")), "`conversation_group_id` is .* text in UTF-8"),
        (lambda: send(Message("orders", b"", headers=WRONG)), "`headers` is of type int"),
        (lambda: send(Message("orders", b"", headers=[("a", WRONG)])), "header 'a' is not valid"),
        (lambda: send(Message("orders", b"", headers={"a": b""})), "header 'a' is not valid"),  # type: ignore[dict-item]
        (lambda: client().begin(["Orders"], "Stock"), "`from_service` is of type list; it must be str"),
        (lambda: client().begin("Orders", WRONG), "conversation is not valid: .*to_service"),
        (lambda: client().begin("Orders", "Stock", lifetime_s="5s"), "conversation is not valid: .*lifetime_s"),
        (lambda: client().begin("Orders", "Stock", conversation_group_id=WRONG), "conversation_group_id"),
        (lambda: client().begin("Orders", "Stock", broker_instance=WRONG), "to_broker_instance"),
        (lambda: client().begin("Orders", "Stock").begin("Stock", lifetime_s="5s"), "lifetime_s"),
        (lambda: client().begin("Orders", "Stock").send(b"", headers=WRONG), "`headers` is of type int"),
        (lambda: client().begin("Orders", "Stock").send(b"", message_type=WRONG), "message_type_name"),
        (lambda: client().resume(WRONG, "Orders", "Stock"), "conversation is not valid: .*conversation_id"),
        (lambda: client().resume("c", WRONG, "Stock"), "conversation is not valid: .*from_service"),
        (lambda: client().resume("c", "Orders", WRONG), "conversation is not valid: .*to_service"),
        (lambda: client().resume("c", "Orders", "Stock", is_initiator="yes"), "not valid: .*is_initiator"),
        (lambda: client().resume("c", "Orders", "Stock", conversation_group_id=WRONG), "`conversation_group_id` is of"),
        (lambda: client().reader(WRONG), "`service` is of type int; it must be str"),
        (lambda: topics("orders"), "`queues` is of type str; it must be a list"),
        (lambda: topics([["orders"]]), "`queues` is of type list; it must be str"),
        (lambda: topics(partitions="1"), "`partitions` is of type str; it must be int"),
        (lambda: topics(replication_factor="1"), "`replication_factor` is of type str; it must be int"),
    ],
)
def test_a_wrong_type_is_named(use: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as raised:
        use()
    assert "$" not in str(raised.value), "the path in a record"


@pytest.mark.parametrize("name", ["", "c" * 129, "c\n", "\ud800"])
def test_an_identifier_that_no_conversation_can_have_is_refused_at_once(name: str) -> None:
    with pytest.raises(UserError, match="The conversation is not valid: "):
        client().resume(name, "Orders", "Stock")


def test_an_identifier_that_another_program_has_chosen_is_taken() -> None:
    assert client().resume("c-1", "Orders", "Stock").conversation_id == "c-1"


@pytest.mark.parametrize("prefix", ["a b", "straße-", "x" * 229])
def test_a_prefix_that_no_topic_can_have_is_refused_before_kafka_is_asked(prefix: str) -> None:
    for made in (
        lambda: QueueProducer(SERVERS, topic_prefix=prefix),
        lambda: QueueReader(SERVERS, "orders", topic_prefix=prefix),
        lambda: ServiceClient(SERVERS, "shop", topic_prefix=prefix),
        lambda: topics(topic_prefix=prefix),
    ):
        with pytest.raises(UserError, match="The topic prefix"):
            made()
    for words in (["queues"], ["send", "orders"], ["monitor"], ["topics"]):
        assert "The topic prefix" in run_command(*words, "--topic-prefix", prefix, code=2)
