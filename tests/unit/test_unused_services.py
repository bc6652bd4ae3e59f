"""Views of services say so, as if there were nothing to show, where only queues and consumer groups are used."""

import pytest

from streaming.kafka.access import Rights
from streaming.kafka.admin import Admin
from streaming.wire.topics import Topics
from tests.support.shell import run_command

PLACE = ["--bootstrap-servers", "localhost:1", "--topic-prefix", "p-"]
UNUSED = (
    "Services are not used here. The topics that they need do not exist. "
    "`queue-activation topics --bootstrap-servers localhost:1 --topic-prefix p-` creates them."
)
OF_QUEUES = {spec.name: 1 for spec in Topics("p-").specs()}


@pytest.fixture
def existing(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Stands for the topics of a Kafka, with their partitions."""
    found = dict(OF_QUEUES)

    def find_topics(_: Admin, rights: Rights) -> dict[str, int]:
        return {name: count for name, count in found.items() if name in rights}

    monkeypatch.setattr(Admin, "find_topics", find_topics)
    return found


@pytest.mark.usefixtures("existing")
@pytest.mark.parametrize(
    ("view", "nothing"),
    [
        ("conversation list", "no endpoints"),
        ("transmissions", "nothing waits"),
        ("database list", "none"),
        ("service list", "none"),
        ("route list", "none"),
        ("dead-letters --services", "no dead letters"),
    ],
)
def test_a_view_of_services_says_that_they_are_not_used(view: str, nothing: str) -> None:
    assert run_command(*view.split(), *PLACE) == f"{nothing}. {UNUSED}\n"
    assert run_command(*view.split(), "--json", *PLACE) == ""


@pytest.mark.usefixtures("existing")
@pytest.mark.parametrize("view", ["conversation show c-1", "route explain //stock --database shop"])
def test_what_the_user_names_is_not_there(view: str) -> None:
    assert run_command(*view.split(), *PLACE, code=2).endswith(f"{UNUSED}\n")


def test_without_any_topic_the_prefix_may_be_wrong(existing: dict[str, int]) -> None:
    existing.clear()
    assert "Topics are missing: p-service-commands." in run_command("service", "list", *PLACE, code=2)


@pytest.mark.usefixtures("existing")
def test_who_creates_a_service_needs_the_topics() -> None:
    words = ["service", "create", "//stock", "--database", "shop", "--queue", "stock"]
    assert "Topics are missing: p-service-commands." in run_command(*words, *PLACE, code=2)
