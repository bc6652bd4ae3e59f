"""The documented ACLs are those that the commands ask for; whether they are enough, the secured broker tells."""

from confluent_kafka.admin import AclOperation

from streaming.daemons.monitor import monitor
from streaming.wire.topics import Topics
from tests.support.documented_acls import documented_rights, monitor_topics_of, rights_of


def test_the_monitors_rights() -> None:
    wanted = monitor._rights(Topics())
    documented = rights_of("monitor")
    for operation, name in ((AclOperation.READ, "Read"), (AclOperation.WRITE, "Write")):
        assert monitor_topics_of(documented, name) == {topic for topic, ops in wanted.items() if operation in ops}
    checked = {spec.name for spec in Topics().specs() if spec.config}
    assert monitor_topics_of(documented, "DescribeConfigs") == checked


def test_all_topics_are_created_by_topics() -> None:
    assert monitor_topics_of(rights_of("topics"), "Create") == {spec.name for spec in Topics().specs()}


def test_nobody_may_do_more_than_read_write_create_and_describe() -> None:
    rights = documented_rights()
    assert {right.operation for right in rights} == {"Read", "Write", "Create", "DescribeConfigs"}
    assert {right.name for right in rights if right.name.endswith("*")} == {"queue-activation-*"}
    assert {right.client for right in rights if right.operation == "Create"} == {
        "`topics`",
        "`monitor --log-batches`, besides",
    }
