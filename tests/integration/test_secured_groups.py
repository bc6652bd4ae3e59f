"""`groups` and `observe` on a Kafka with users, TLS and ACLs: the rights in docs/security.md are enough and needed."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from streaming.kafka.admin import Admin
from streaming.kafka.last_records import last_records
from streaming.system.processes import THIS_COMMAND, ChildProcess, own_environment
from streaming.wire.topics import Topics
from tests.support.checked_producer import CheckedProducer
from tests.support.documented_acls import Right, documented_rights, rights_of
from tests.support.plain_consumers import commit_soon
from tests.support.secured_broker import SUPER_USER, SecuredBroker, make_certificate, secured_broker
from tests.support.waiting import wait_until

DEADLINE_S = 30.0
PREFIX = "s-"
TOPICS = Topics(PREFIX)
# A group, which is the queue too, and the topic that it reads.
ORDERS = "orders"
USERS = {"observe": "observer", "groups": "viewer"}
READ_TO_TEST = Right("", "Read", "topic", "TOPIC")
DESCRIBE_TOPIC = Right("", "Describe", "topic", "TOPIC")
DESCRIBE_GROUP = Right("", "Describe", "group", "GROUP")
READ_GROUP = Right("", "Read", "group", "GROUP")  # implies Describe
DESCRIBE_BROKERS = Right("", "DescribeConfigs", "cluster", "kafka-cluster")


@pytest.fixture(scope="module")
def secured(java_and_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:  # noqa: ARG001
    """Runs a broker with the monitor's topics, and a group without members that has not read three messages."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        for command, user in USERS.items():
            broker.add_user(user)
            rights = [right for right in documented_rights() if right.client.startswith(f"`{command}`")]
            assert set(rights_of(command)) < set(rights)
            broker.allow([right.acl(user, PREFIX, ORDERS) for right in rights])
        root = broker.cluster(SUPER_USER)
        Admin(root).create_topics(TOPICS.specs(), partitions=1, replication_factor=1)
        (created,) = broker.admin.create_topics([NewTopic(ORDERS, 1, 1)]).values()
        created.result()
        commit(broker)
        producer = CheckedProducer(root)
        for _ in range(3):
            producer.produce(ORDERS, b"x", partition=0)
        producer.flush()
        yield broker


def commit(broker: SecuredBroker) -> None:
    """Commits the group's first offset without being a member of it."""
    consumer = broker.cluster(SUPER_USER).consumer({"group.id": ORDERS})
    commit_soon(consumer, [TopicPartition(ORDERS, 0, 0)])
    consumer.close()


@pytest.fixture
def never_had_members(secured: SecuredBroker) -> None:
    """Makes the group anew, because a commit does not renew the offsets of one that has had classic members."""
    (future,) = secured.admin.delete_consumer_groups([ORDERS]).values()
    future.result()
    commit(secured)


@contextmanager
def without(broker: SecuredBroker, user: str, *rights: Right) -> Iterator[None]:
    """Takes rights away from a user while the block runs."""
    acls = [right.acl(user, PREFIX, ORDERS) for right in rights]
    for acl in acls:
        broker.forbid(acl)
    try:
        yield
    finally:
        broker.allow(acls)


def connection(broker: SecuredBroker, client_file: Path) -> list[str]:
    return ["--bootstrap-servers", broker.bootstrap_servers, "--kafka-config", str(client_file)]


def ask(broker: SecuredBroker, client_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `groups`."""
    client_file = client_file or broker.client_file("viewer")
    command = [*THIS_COMMAND, "groups", "--json", *connection(broker, client_file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def groups(broker: SecuredBroker) -> tuple[list[dict[str, Any]], str]:
    """Returns what `groups` prints, and what it says on the standard error."""
    done = ask(broker)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@contextmanager
def observer(
    broker: SecuredBroker, folder: Path, client_file: Path | None = None, more: str = ""
) -> Iterator[ChildProcess]:
    """Starts an observer, whose output is in the folder's observer.log, and whose entry has more keys."""
    config = folder / "activator.toml"
    config.write_text(f'[[programs]]\ngroup = "{ORDERS}"\ncommand = "true"\n{more}')
    arguments = connection(broker, client_file or broker.client_file("observer"))
    command = [*THIS_COMMAND, "observe", "--config", str(config), "--topic-prefix", PREFIX, *arguments]
    with ChildProcess(command, log_file=folder / "observer.log", env=own_environment()) as process:
        yield process


def said(folder: Path) -> str:
    return (folder / "observer.log").read_text()


def wait_until_said(folder: Path, text: str) -> None:
    wait_until(lambda: text in said(folder), DEADLINE_S, text)


def test_groups_answers_with_the_documented_rights(secured: SecuredBroker) -> None:
    [found], warnings = groups(secured)
    assert (found["group"], found["one_more"], found["backlog"], found["phantom"]) == (ORDERS, True, 3, False)
    assert found["offsets_kept_ms"] == 7 * 24 * 3_600_000
    assert warnings == ""


def test_groups_without_describe_configs_does_not_know_how_long_offsets_are_kept(secured: SecuredBroker) -> None:
    with without(secured, "viewer", DESCRIBE_BROKERS):
        [found], warnings = groups(secured)
    assert found["offsets_kept_from"] is not None
    assert (found["offsets_kept_ms"], warnings) == (None, "")


def test_groups_without_read_says_that_it_could_not_test_the_backlog(secured: SecuredBroker) -> None:
    with without(secured, "viewer", READ_TO_TEST):
        [found], warnings = groups(secured)
    assert (found["one_more"], found["backlog"], found["phantom"]) == (True, 3, None)
    assert "these may be markers without content, which only a user who may read can tell" in found["reason"]
    assert warnings == ""


def test_groups_without_describe_on_a_topic_does_not_see_its_offsets(secured: SecuredBroker) -> None:
    with without(secured, "viewer", READ_TO_TEST, DESCRIBE_TOPIC):  # Read implies Describe
        [found], _ = groups(secured)
    assert found["one_more"] is False
    assert found["reason"] == "it has neither members nor committed offsets that this user may see"


def test_groups_says_which_topic_of_a_group_with_members_it_may_not_see(secured: SecuredBroker) -> None:
    consumer = secured.cluster(SUPER_USER).consumer({"group.id": ORDERS, "enable.auto.commit": False})
    consumer.subscribe([ORDERS])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), DEADLINE_S, "the assignment")
        with without(secured, "viewer", READ_TO_TEST, DESCRIBE_TOPIC):
            [found], warnings = groups(secured)
    finally:
        consumer.close()
    assert (found["members"], found["one_more"], found["reason"]) == (1, None, f"no answer came about {ORDERS}")
    assert warnings == (
        f"Kafka does not grant this user Describe on topic {ORDERS}. See docs/security.md for the ACLs that each "
        "command needs\n"
    )


def test_groups_shows_only_what_the_user_may_describe(secured: SecuredBroker) -> None:
    with without(secured, "viewer", DESCRIBE_GROUP):
        assert groups(secured) == ([], "")


def test_groups_with_a_wrong_login_or_an_untrusted_certificate_says_what_to_change(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    _, other = make_certificate(tmp_path, "other")
    for client_file, advice in (
        (secured.client_file("viewer", password="not this one"), "Check sasl.jaas.config and sasl.mechanism"),  # noqa: S106
        (secured.client_file("viewer", authority=other), "ssl.truststore.location"),
    ):
        done = ask(secured, client_file)
        assert done.returncode == 2, done
        assert re.fullmatch(f"error: [^\n]*{advice}[^\n]*\n", done.stderr), done.stderr


def test_an_observer_reports_with_the_documented_rights_and_says_no_secret(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    with observer(secured, tmp_path) as process:
        process.wait_until_said("observer ready")
        wait_until_said(tmp_path, f"{ORDERS}: one more: yes, nobody reads, and {ORDERS}-0 holds up to 3 messages\n")

        def reported() -> dict[str, Any]:
            records = last_records(secured.cluster(SUPER_USER), TOPICS.receives, 1, 1)
            return json.loads(records[-1].value() or b"{}") if records else {}

        wait_until(lambda: reported().get("one_more"), DEADLINE_S, "the report")
        assert process.stop() == 0
    assert len(said(tmp_path).splitlines()) == 4, "it watches, answers, is ready and stops, and warns of nothing"
    assert not any(password in said(tmp_path) for password in secured.passwords.values())


def test_an_observer_without_read_says_once_that_it_cannot_test_the_backlog(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    with without(secured, "observer", READ_TO_TEST), observer(secured, tmp_path) as process:
        process.wait_until_said("observer ready")
        wait_until_said(tmp_path, f"{ORDERS}: one more: yes, nobody reads")
    sentence = f"{ORDERS}: may not read {ORDERS}, so offsets without content count as messages"
    assert said(tmp_path).count(sentence) == 1


def test_an_observer_says_once_which_group_it_may_not_see(secured: SecuredBroker, tmp_path: Path) -> None:
    sentence = f"Kafka does not grant this user Describe on consumer group {ORDERS}. See docs/security.md"
    with observer(secured, tmp_path) as process, without(secured, "observer", DESCRIBE_GROUP, READ_GROUP):
        wait_until_said(tmp_path, sentence)
        process.wait_until_said("observer ready")
    assert said(tmp_path).count(sentence) == 1


def test_an_observer_says_once_which_topic_it_may_not_see(secured: SecuredBroker, tmp_path: Path) -> None:
    with without(secured, "observer", READ_TO_TEST, DESCRIBE_TOPIC), observer(secured, tmp_path) as process:
        process.wait_until_said("observer ready")
        wait_until_said(tmp_path, "no, it has neither members nor committed offsets that this user may see")
        config = tmp_path / "activator.toml"
        config.write_text(f'{config.read_text()}topics = ["{ORDERS}"]\n')
        sentence = f"Kafka does not grant this user Describe on topic {ORDERS}. See docs/security.md"
        wait_until_said(tmp_path, sentence)
    assert said(tmp_path).count(sentence) == 1


@pytest.mark.usefixtures("never_had_members")
def test_an_observer_commits_again_with_the_documented_rights(secured: SecuredBroker, tmp_path: Path) -> None:
    with observer(secured, tmp_path, more="renew_offsets = true\n"):
        wait_until_said(tmp_path, f"{ORDERS}: its offsets were committed again, as every 56h while it has no members")


@pytest.mark.usefixtures("never_had_members")
@pytest.mark.parametrize(
    ("right", "named"),
    [(READ_GROUP, f"Read on consumer group {ORDERS}"), (READ_TO_TEST, f"Read on topic {ORDERS}")],
    ids=["group", "topic"],
)
def test_an_observer_says_once_which_right_it_lacks_to_commit_again(
    secured: SecuredBroker, tmp_path: Path, right: Right, named: str
) -> None:
    sentence = (
        f"{ORDERS}: nothing can be committed for it: Kafka does not grant this user {named}. See docs/security.md"
    )
    with without(secured, "observer", right), observer(secured, tmp_path, more="renew_offsets = true\n") as process:
        wait_until_said(tmp_path, sentence)
        process.wait_until_said("observer ready")
    assert said(tmp_path).count(sentence) == 1


NEEDED = [right for right in rights_of("observe") if right.name not in ("GROUP", "TOPIC")]


@pytest.mark.parametrize("right", NEEDED, ids=str)
def test_an_observer_does_not_start_without_its_rights_and_names_the_missing_one(
    secured: SecuredBroker, tmp_path: Path, right: Right
) -> None:
    acl = right.acl("observer", PREFIX, ORDERS)
    with without(secured, "observer", right), observer(secured, tmp_path) as process:
        assert process.wait(DEADLINE_S) == 2, said(tmp_path)
    assert re.fullmatch(rf"error: [^\n]*{acl.name}[^\n]*docs/security\.md[^\n]*\n", said(tmp_path)), said(tmp_path)


def test_an_observer_that_loses_the_right_to_report_ends_and_says_why(secured: SecuredBroker, tmp_path: Path) -> None:
    write = Right("", "Write", "topic", "queue-receives")
    with observer(secured, tmp_path) as process:
        process.wait_until_said("observer ready")
        with without(secured, "observer", write):
            assert process.wait(DEADLINE_S) == 2, said(tmp_path)
    assert "error: Kafka does not grant this user a required right on a topic" in said(tmp_path)


def test_an_observer_that_is_not_let_in_is_told_why(secured: SecuredBroker, tmp_path: Path) -> None:
    wrong = secured.client_file("observer", password="not this one")  # noqa: S106
    with observer(secured, tmp_path, wrong) as process:
        assert process.wait(DEADLINE_S) == 2
    assert "Check sasl.jaas.config and sasl.mechanism" in said(tmp_path)
