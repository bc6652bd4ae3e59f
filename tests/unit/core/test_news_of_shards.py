"""Questions and mirrored routes in the shard of the router's query, which must decide as the plain shard does."""

from typing import Any

from confluent_kafka import murmur2

from streaming.core.conversations.decisions import Deliver
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.routing.routing_table import BROKER_CONFIGURATION, ROUTERS_SERVICE
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import CreateDatabase, CreateRoute, CreateService, DropRoute, ServiceCommand
from streaming.wire.service_decisions import AnsweredReport, ConnectedReport, NeedRouteReport, RoleReport
from tests.support.checked_shard import CheckedShard
from tests.support.conversation_scene import short
from tests.support.plain_shard import PARTITIONS, Batch, ShardReport
from tests.support.routing_scene import IN_A, IN_B, INSTANCE

ONE, OTHER = "tcp://one:1", "tcp://other:1"
DEFINITIONS: tuple[ServiceCommand, ...] = (
    CreateDatabase("A", IN_A),
    CreateService("A", "Orders", "orders"),
    CreateService("A", BROKER_CONFIGURATION, "questions"),
    CreateRoute("A", "Ask", "LOCAL", service_name=BROKER_CONFIGURATION),
    CreateRoute("A", "Mirrored", ONE, service_name="Copied", broker_instance=IN_B, mirror_address=OTHER),
)
ASK = f"ask {ONE} and {OTHER}"


class Scene:
    """The shard of a partition, which takes batches a second apart."""

    def __init__(self, number: int = 0, **settings: Any) -> None:
        self.number = number
        self.shard = CheckedShard(number, ConversationSettings(**settings), INSTANCE)
        self.at_ms = 1_000_000
        self.offset = 0
        self.batch(commands=DEFINITIONS)

    def batch(
        self, *messages: Envelope, commands: tuple[ServiceCommand, ...] = (), reports: tuple[ShardReport, ...] = ()
    ) -> list[str]:
        self.at_ms += 1_000
        taken = []
        for each in messages:
            taken.append((self.offset, self.at_ms, each))
            self.offset += 1
        decisions = self.shard.step(Batch(self.at_ms, [(each, self.at_ms) for each in commands], reports, taken))
        self.deliveries = [each for each in decisions if isinstance(each, Deliver)]
        return [short(each) for each in decisions]

    def wait(self, ms: int) -> list[str]:
        self.at_ms += ms - 1_000
        return self.batch()

    def begin(self, service: str, number: int = 0) -> list[str]:
        names = (name for name in map(str, range(100)) if murmur2(name.encode(), PARTITIONS) == self.number)
        name = [next(names) for _ in range(number + 1)][number]
        return self.batch(Envelope("MESSAGE", name, True, "Orders", "A", service, begin=True))


def test_the_first_shard_asks_and_takes_the_answer() -> None:
    scene = Scene()
    assert scene.begin("Lost") == ["need Lost in A"]
    assert scene.batch(reports=(NeedRouteReport("A", "Lost"),)) == ["target 0"]
    [question] = scene.deliveries
    assert murmur2(question.conversation_id.encode(), PARTITIONS) == 0
    assert scene.batch(reports=(NeedRouteReport("A", "Lost"),)) == [], "once"
    end = Envelope("END", question.conversation_id, False, BROKER_CONFIGURATION, "A", ROUTERS_SERVICE)
    assert scene.batch(end) == ["answered Lost in A"]
    assert scene.batch(reports=(AnsweredReport("A", "Lost", False),)) == []
    assert scene.wait(9_000) == []
    assert scene.wait(1_000) == ["need Lost in A"]


def test_a_need_before_and_after_an_answer_in_one_batch_is_one_question() -> None:
    scene = Scene()
    need = NeedRouteReport("A", "Lost")
    assert scene.batch(reports=(need, AnsweredReport("A", "Lost", False), need)) == ["target 0"]


def test_other_shards_only_need() -> None:
    scene = Scene(1)
    assert scene.begin("Lost") == ["need Lost in A"]
    assert scene.batch(reports=(NeedRouteReport("A", "Lost"),)) == []
    assert scene.begin("Lost", 1) == []
    assert scene.batch(reports=(AnsweredReport("A", "Lost", True),)) == []
    assert scene.wait(10_000) == ["need Lost in A"]
    assert scene.wait(59_000) == []
    assert scene.wait(1_000) == ["need Lost in A"], "the shard that asks has lost it"


def test_a_shard_that_is_full_of_conversations_cannot_ask() -> None:
    scene = Scene(max_conversations=1)
    scene.begin("Lost")
    assert scene.batch(reports=(NeedRouteReport("A", "Lost"),)) == ["failed Lost in A"]


def test_messages_go_to_the_principal_and_wait_for_one() -> None:
    scene = Scene()
    assert scene.begin("Copied") == [ASK]
    mirror, lost = RoleReport(IN_B, OTHER, "MIRROR", 1), RoleReport(IN_B, ONE)
    assert scene.batch(reports=(mirror, lost)) == []
    assert scene.wait(8_000) == []
    assert scene.wait(1_000) == [ASK]
    assert scene.batch(reports=(RoleReport(IN_B, OTHER, "PRINCIPAL", 2),)) == [f"to {OTHER} target 0 @0 (0, 0)"]
    assert scene.batch(reports=(ConnectedReport(OTHER, False),)) == [ASK]
    assert scene.batch(reports=(RoleReport(IN_B, ONE, "PRINCIPAL", 3),)) == [f"to {ONE} target 0 @0 (0, 0)"]
    assert scene.batch(commands=(DropRoute("A", "Mirrored"), DropRoute("A", "AutoCreatedLocal"))) == [
        "need Copied in A"
    ]


def test_nobody_is_asked_for_conversations_that_are_gone() -> None:
    scene = Scene()
    scene.begin("Copied")
    scene.batch(*(Envelope("CLEANUP", each, True, "Orders", "A", "Copied") for each in scene.shard.conversations))
    assert scene.wait(20_000) == []
    assert scene.wait(20_000) == []
