"""The three instances over days: routers and databases are away for hours, and databases and services are dropped.

Beyond the checks of the short histories, every message comes at most once to each instance, however long anything was
away. At the end all programs end their conversations, and after a week no instance has kept anything.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    CreateDatabase,
    CreateService,
    DropDatabase,
    DropService,
    ServiceCommand,
)
from tests.support.instances_simulation import DATABASE, NORTH, SERVICES, SOUTH, TOLD, Simulation, routes
from tests.support.instances_world import MakeShard, Site
from tests.support.plain_shard import PlainShard

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# Some outages end before others begin, so all of them together are much shorter than a week.
OUTAGES_MS = (5 * MINUTE_MS, 40 * MINUTE_MS, 4 * HOUR_MS)
# After this time, the router should have forgotten everything for which it has no reason to remember it.
LONG_MS = 9 * DAY_MS


class Outages(Simulation):
    """Three instances over days."""

    def __init__(self, seed: int, make: MakeShard = PlainShard) -> None:
        super().__init__(seed, make)
        for site in self.sites.values():
            site.shard.settings = replace(site.shard.settings, tombstone_ms=30 * MINUTE_MS)
        # Address -> the instant at which its router starts again.
        self.down_until_ms = dict.fromkeys(self.sites, 0)

    def actions(self) -> dict[Callable[[], None], int]:
        return {**super().actions(), self.stop_router: 2, self.drop: 1, self.pass_time: 3}

    def stop_router(self) -> None:
        """Stops a router; its Kafka and its transport go on."""
        address = self.random.choice([*self.sites])
        self.down_until_ms[address] = self.network.now_ms + self.random.choice(OUTAGES_MS)

    def pass_time(self) -> None:
        """Lets time pass. No record is on its way for as long as a closed conversation is remembered."""
        self.network.now_ms += MINUTE_MS
        self.network.arrive()
        self.network.now_ms += self.random.choice((0, 34 * MINUTE_MS, 3 * HOUR_MS))

    def route(self) -> None:
        running = [each for each in self.sites.values() if self.down_until_ms[each.address] <= self.network.now_ms]
        if running:
            site = self.random.choice(running)
            site.route()
            site.check_held()

    def drop(self) -> None:
        """Drops a service or a database and creates it again, or gives a database another broker instance."""
        site = self.random.choice([*self.sites.values()])
        service = SERVICES[site.address]
        identity = str(UUID(int=self.random.getrandbits(128), version=4))
        again: list[ServiceCommand] = [DropService(DATABASE, service), CreateService(DATABASE, service, "queue")]
        choices: list[list[ServiceCommand]] = [again, [AlterDatabase(DATABASE, broker_instance=identity)]]
        if site.address != NORTH:  # North has more definitions than these
            told: list[ServiceCommand] = [CreateService(DATABASE, TOLD, "queue")] if site.address == SOUTH else []
            created: list[ServiceCommand] = [
                CreateDatabase(DATABASE, identity),
                CreateService(DATABASE, service, "queue"),
                *told,
            ]
            choices.append([DropDatabase(DATABASE), *created, *routes(site.address)])
        site.commands += self.random.choice(choices)

    def heal(self) -> None:
        self.down_until_ms = dict.fromkeys(self.sites, 0)
        super().heal()

    def is_stranded(self, conversation: Conversation) -> bool:
        here = {
            each.broker_instance for site in self.sites.values() for each in site.shard.definitions.databases.values()
        }
        far = conversation.far
        if far is None or conversation.directions[TARGET - far.side].waiting:
            return False
        instance = far.broker_instance or conversation.to_broker_instance
        return instance is not None and instance not in here

    def run(self) -> Counter[str]:
        seen = super().run()
        self.check_once()
        self.end_everything()
        return seen

    def check_once(self) -> None:
        """Checks that each message came at most once to each instance."""
        for site in self.sites.values():
            got = Counter(body for delivery, body in site.delivered if delivery.kind == Kind.MESSAGE and body)
            twice = [body for body, times in got.items() if times > 1 and not body.startswith(b"<")]
            assert not twice, f"twice in {site.address}: {twice}"

    def end_everything(self) -> None:
        """Lets programs end their conversations, and an administrator end conversations that wait days later."""
        for states in (State.SO, State.CO, State.DI, State.ER), (State.DO,):
            for site in self.sites.values():
                for name in site.shard.conversations:
                    for side in (INITIATOR, TARGET):
                        if site.state(name, side) in states:
                            self.end(site, name, side)
            self.let_days_pass()
        kept = {
            f"{name} in {site.address}": site.shard.conversation(name)
            for site in self.sites.values()
            for name in site.shard.conversations
        }
        assert not kept, f"kept for ever: {kept}"

    def let_days_pass(self) -> None:
        begin_ms = self.network.now_ms
        while (
            any(site.shard.conversations for site in self.sites.values()) and self.network.now_ms < begin_ms + LONG_MS
        ):
            self.network.arrive()
            for site in self.sites.values():
                site.go_on()
            self.network.now_ms += MINUTE_MS if self.network.now_ms < begin_ms + HOUR_MS else HOUR_MS

    def end(self, site: Site, name: str, side: int) -> None:
        """Ends an endpoint; WITH CLEANUP, if it has ended and waits, or its database may be the mirror."""
        conversation = site.shard.conversation(name)
        endpoint = conversation.endpoints[side]
        assert endpoint is not None
        is_cleaned = endpoint.database != DATABASE or endpoint.state is State.DO
        site.say(
            Envelope(
                "CLEANUP" if is_cleaned else "END",
                name,
                side == INITIATOR,
                conversation.services[side],
                endpoint.database,
                conversation.services[TARGET - side],
            )
        )
