"""The ACLs in the table in docs/security.md. The tests give their users exactly these rights."""

import re
from dataclasses import dataclass

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from streaming.wire.topics import Topics
from tests.support.command_lines import ROOT

_TABLE = re.compile(r"<!-- ACLs: .*?\n\n.*?\n\|---\|---\|---\|\n(.*?)\n\n<!-- end of the ACLs -->", re.DOTALL)
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,  # librdkafka's name for it
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Right:
    """One operation on one name. A name that ends in `*` is a prefixed pattern."""

    client: str
    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"

    def acl(self, user: str, topic_prefix: str, queue: str) -> AclBinding:
        """Returns the ACL that gives this right to a user, for this topic prefix and this queue.

        A consumer group and its topic have the queue's name too.
        """
        name = self.name.removesuffix("*")
        if name in ("QUEUE", "GROUP", "TOPIC"):
            name = queue
        elif self.kind in ("topic", "group"):
            name = topic_prefix + name
        pattern = ResourcePatternType.PREFIXED if self.name.endswith("*") else ResourcePatternType.LITERAL
        who, operation = f"User:{user}", _OPERATIONS[self.operation]
        return AclBinding(_KINDS[self.kind], name, pattern, who, "*", operation, AclPermissionType.ALLOW)


def documented_rights() -> list[Right]:
    """Returns the rights in all rows of the table."""
    found = _TABLE.search((ROOT / "docs" / "security.md").read_text())
    assert found is not None, "docs/security.md has no table of ACLs"
    rights = []
    for row in found[1].splitlines():
        client, operations, resources = (cell.strip() for cell in row.strip("|").split("|"))
        kind = resources.partition("`")[0].strip().removesuffix("s")
        for operation in operations.split(", "):
            rights += [Right(client, operation, kind, name) for name in re.findall(r"`([^`]+)`", resources)]
    return rights


def rights_of(client: str) -> list[Right]:
    """Returns the rights of a client, found by a word of its name, without rights that only an option needs."""
    rights = [
        right
        for right in documented_rights()
        if client in re.findall(r"[\w-]+", right.client) and "besides" not in right.client
    ]
    assert rights, f"docs/security.md has no ACLs for {client}"
    return rights


def monitor_topics_of(rights: list[Right], operation: str) -> set[str]:
    """Returns the monitor's topics for which the rights allow an operation."""
    names = {right.name for right in rights if (right.kind, right.operation) == ("topic", operation)}
    return names & Topics().names()
