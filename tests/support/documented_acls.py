"""The table of ACLs in docs/security.md, as ACLs: what stands there is what the tests give their users."""

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
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


@dataclass(frozen=True)
class Right:
    """One operation on one name; a name that ends in `*` is a prefixed pattern."""

    client: str
    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"

    def acl(self, user: str, topic_prefix: str, queue: str) -> AclBinding:
        """The ACL that gives it to a user, for the monitor's topics under a prefix."""
        name = self.name.removesuffix("*")
        if name == "QUEUE":
            name = queue
        elif self.kind != "transactional id":
            name = topic_prefix + name
        pattern = ResourcePatternType.PREFIXED if self.name.endswith("*") else ResourcePatternType.LITERAL
        who, operation = f"User:{user}", _OPERATIONS[self.operation]
        return AclBinding(_KINDS[self.kind], name, pattern, who, "*", operation, AclPermissionType.ALLOW)


def documented_rights() -> list[Right]:
    """All rows of the table."""
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
    """The rows for one client, by a word of its name; those that an option needs besides are left out."""
    rights = [
        right
        for right in documented_rights()
        if client in re.findall(r"[\w-]+", right.client) and "besides" not in right.client
    ]
    assert rights, f"docs/security.md has no ACLs for {client}"
    return rights


def monitor_topics_of(rights: list[Right], operation: str) -> set[str]:
    """The monitor's topics on which the rights have an operation."""
    names = {right.name for right in rights if (right.kind, right.operation) == ("topic", operation)}
    return names & Topics().names()
