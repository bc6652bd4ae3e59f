"""Three instances with random programs and administrators, on a bad network, with crashes; then everything heals.

At the end nothing is pending: each endpoint has got its messages once and in order, nothing was lost, and no program
waits in silence.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random

from streaming.core.conversations.conversation import INITIATOR, TARGET, Conversation
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.core.conversations.settings import ConversationSettings
from streaming.core.conversations.transmission import LIFETIME_EXCEEDED
from streaming.core.times import FOREVER_MS
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import (
    AlterDatabase,
    CreateDatabase,
    CreateRoute,
    CreateService,
    DropRoute,
    ServiceCommand,
)
from tests.support.held import text_of
from tests.support.instances_asking import ConfigurationService
from tests.support.instances_mirror import Mirrored
from tests.support.instances_world import MakeShard, Network, Site
from tests.support.plain_shard import PlainShard

STEPS_OF_ONE_WORLD = 500
ADDRESSES = ("tcp://north:1", "tcp://south:1", "tcp://west:1")
NORTH, SOUTH, WEST = ADDRESSES
SERVICES = {NORTH: "Orders", SOUTH: "Stock", WEST: "Bills"}
INSTANCES = {address: f"{number}0000000-0000-4000-8000-000000000000" for number, address in enumerate(ADDRESSES)}
DATABASE = "D"
# A service to which North has no route, unless the configuration service tells one.
TOLD = "Told"
MOST_REPAIRS = 400
OUTCOMES = ("COMMIT", "COMMIT", "COMMIT", "COMMIT", "ABORT")
KINDS = {"MESSAGE": 80, "END": 7, "ERROR": 2, "CLEANUP": 2, "TIMER": 5}


def settings(random: Random) -> ConversationSettings:
    """Returns short times, and limits that are reached sometimes."""
    choose = random.choice
    return ConversationSettings(
        max_held_per_direction=choose((5, 1_000)),
        max_unacknowledged=choose((1, 3, 500)),
        resend_ms=choose((500, 4_000)),
        max_resend_ms=16_000,
        stale_ms=choose((500, 10_000)),
        tombstone_ms=600_000,
        delivery_retry_ms=2_000,
        timer_retry_ms=5_000,
        max_let_go=choose((2, 100)),
        max_looked_at=choose((2, 100)),
    )


class Simulation:
    """Three instances with their programs and administrators."""

    def __init__(self, seed: int, make: MakeShard = PlainShard) -> None:
        self.random = Random(seed)  # noqa: S311  (no secret)
        self.network = Network(self.random)
        limits = settings(self.random)
        self.sites = {address: Site(self.network, address, limits, make) for address in ADDRESSES}
        # Addresses that the instances do not know as their own.
        self.network.sites |= {alias(address): site for address, site in self.sites.items()}
        for site in self.sites.values():
            site.router_ahead_ms, site.brokers_ahead_ms = self.random.choices((0, -90_000, 90_000, 3_600_000), k=2)
        # The epochs of two mirrors are of their brokers' clocks, which must agree.
        self.sites[WEST].brokers_ahead_ms = self.sites[SOUTH].brokers_ahead_ms
        # Conversation -> the initiator's and the target's instance.
        self.conversations: dict[str, tuple[str, str]] = {}
        self.services: dict[str, tuple[str, str]] = {}
        # Conversation and sender's side -> the bodies that its program has sent.
        self.said: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        for address, site in self.sites.items():
            site.commands += [CreateDatabase(DATABASE, INSTANCES[address])]
            site.commands += [CreateService(DATABASE, SERVICES[address], "queue")]
            site.commands += routes(address)
        north, south, west = self.sites.values()
        south.commands.append(CreateService(DATABASE, TOLD, "queue"))
        self.mirrored = Mirrored(self.random, north, SERVICES[NORTH], (south, west), (NORTH, SOUTH))
        self.asked: ConfigurationService | None = None
        if self.random.random() < 0.5:
            addresses = {TOLD: SOUTH, SERVICES[SOUTH]: SOUTH, SERVICES[WEST]: SOUTH}
            self.asked = ConfigurationService(self.random, north, DATABASE, addresses)

    def actions(self) -> dict[Callable[[], None], int]:
        """Returns the possible actions, with their frequencies."""
        return {
            self.speak: 40,
            self.mirrored.speak: 10,
            self.mirrored.change_roles: 1,
            self.answer: 5,
            self.report: 3,
            self.route: 30,
            self.transport: 40,
            self.administrate: 3,
            self.cut: 3,
            self.break_topics: 3,
            self.wait: 6,
        }

    def run(self) -> Counter[str]:
        """Lets everything happen, then heals everything and checks what has become of each message."""
        actions = self.actions()
        for action in self.random.choices([*actions], [*actions.values()], k=STEPS_OF_ONE_WORLD):
            self.network.now_ms += self.random.choice((0, 0, 10, 300))
            self.network.arrive()
            action()
        self.heal()
        for name in self.conversations:
            self.check(name)
        self.mirrored.check()
        seen = self.network.counts
        if self.asked is not None:
            self.asked.check()
            seen["questions"] += self.asked.asked
        for site in self.sites.values():
            seen["delivered"] += len(site.delivered)
            seen["roles"] += site.asked
            seen["repeats"] += site.drops[11218]
            seen["out of order"] += site.drops[11217]
        return seen

    def speak(self) -> None:
        chance = self.random.random
        if not self.conversations or chance() < 0.1:
            name = f"c{len(self.conversations)}"
            initiator, target = self.random.sample(ADDRESSES, 2)
            services = SERVICES[initiator], SERVICES[target]
            if self.asked is not None and chance() < 0.2:
                initiator, target, services = NORTH, SOUTH, (SERVICES[NORTH], TOLD)
            self.conversations[name] = initiator, target
            self.services[name] = services
            fields = {"lifetime_s": self.random.choice((30, 300))} if chance() < 0.1 else {}
            self.say(name, INITIATOR, "MESSAGE", begin=True, **fields)
            return
        name = self.random.choice([*self.conversations][-8:])
        side = self.random.choice((INITIATOR, TARGET))
        if self.state(name, side) is State.ABSENT:
            return
        [kind] = self.random.choices([*KINDS], [*KINDS.values()])
        self.say(name, side, kind, **({"timer_ms": 1_000} if kind == "TIMER" else {}))

    def say(self, name: str, side: int, kind: str, **fields: object) -> None:
        own, far = self.services[name] if side == INITIATOR else self.services[name][::-1]
        values = {
            "type": kind,
            "conversation_id": name,
            "is_initiator": side == INITIATOR,
            "from_service": own,
            "from_database": DATABASE,
            "to_service": far,
        }
        body = self.sites[self.conversations[name][side]].say(Envelope(**values | fields))  # type: ignore[arg-type]
        if kind == "MESSAGE":
            self.said[name, side].append(body)

    def state(self, name: str, side: int) -> State:
        """Returns the state of an endpoint."""
        return self.sites[self.conversations[name][side]].state(name, side)

    def answer(self) -> None:
        if self.asked is not None:
            self.asked.answer()

    def report(self) -> None:
        """A transport reports whether it can reach another instance."""
        own, far = self.random.sample(ADDRESSES, 2)
        self.sites[own].connected(far, is_connected=(own, far) not in self.network.cuts)

    def route(self) -> None:
        site = self.random.choice([*self.sites.values()])
        site.route()
        site.check_held()

    def transport(self) -> None:
        self.random.choice([*self.sites.values()]).transport(self.random.choice(OUTCOMES))

    def administrate(self) -> None:
        site = self.random.choice([*self.sites.values()])
        if self.random.random() < 0.5:
            site.commands += routes(site.address)
            return
        service = self.random.choice([*SERVICES.values(), TOLD])
        by_alias = self.random.choice([*SERVICES.values()])  # at the end, other routes replace it
        commands: list[ServiceCommand] = [
            DropRoute(DATABASE, service),
            DropRoute("msdb", service),
            CreateRoute(DATABASE, f"{by_alias} by an alias", alias(site.address), service_name=by_alias),
            AlterDatabase(DATABASE, is_broker_enabled=False),
        ]
        site.commands.append(self.random.choice(commands))

    def cut(self) -> None:
        pairs = [(one, other) for one in ADDRESSES for other in ADDRESSES if one != other]
        self.network.cuts = set(self.random.sample(pairs, self.random.choice((0, 0, 1, 3))))

    def break_topics(self) -> None:
        for site in self.sites.values():
            site.missing = self.random.choice((set(), set(), {"queue"}))

    def wait(self) -> None:
        self.network.now_ms += self.random.choice((1_000, 5_000, 20_000))

    def heal(self) -> None:
        """Brings everything back, and goes on until nothing changes any more."""
        self.network.is_bad, self.network.cuts = False, set()
        self.network.now_ms += 1_000
        for site in self.sites.values():
            site.missing = set()
            site.commands.append(AlterDatabase(DATABASE, is_broker_enabled=True))
            site.commands += routes(site.address)
            for far in ADDRESSES:
                site.connected(far, is_connected=True)
        self.mirrored.heal()
        if self.asked is not None:
            self.asked.heal()
        for _ in range(MOST_REPAIRS):
            self.network.arrive()
            if self.asked is not None:
                self.asked.answer(is_helpful=True)
            for site in self.sites.values():
                site.go_on()
            wakes = [
                due_ms - site.shard.clock.now_ms
                for site in self.sites.values()
                for due_ms in (site.shard.questions.next_ms(), site.shard.mirrors.next_ms())
            ]
            wakes += [
                wake - site.shard.clock.now_ms
                for site in self.sites.values()
                for name, wake in site.shard.wakes.items()
                if site.shard.conversation(name).over_ms == FOREVER_MS
                and not self.is_stranded(site.shard.conversation(name))
            ]
            wakes += [due - site.broker_ms for site in self.sites.values() for due in site.shard.dues.values()]
            wake_ms = min(wakes, default=FOREVER_MS)
            is_idle = not self.network.on_the_way and all(site.is_idle for site in self.sites.values())
            if is_idle and wake_ms > FOREVER_MS // 2:
                return
            arrival_ms = min((each[0] - self.network.now_ms for each in self.network.on_the_way), default=FOREVER_MS)
            self.network.now_ms += max(1, min(wake_ms, arrival_ms)) if min(wake_ms, arrival_ms) < 10**9 else 1
        raise AssertionError("the conversations never come to rest")

    def is_stranded(self, _conversation: Conversation) -> bool:
        """Returns whether a conversation waits for nothing but a far side that is gone for good."""
        return False

    def check(self, name: str) -> None:
        """Checks what both sides of a conversation have got, and that neither waits in silence."""
        states = self.state(name, INITIATOR), self.state(name, TARGET)
        for side in (INITIATOR, TARGET):
            site = self.sites[self.conversations[name][side]]
            if name in site.shard.conversations:
                held = site.shard.conversation(name)
                for to in (INITIATOR, TARGET) if not self.is_stranded(held) else ():
                    assert not held.directions[to].waiting, f"{name} to {to}: {text_of(held.directions[to])}"
            got = [
                (delivery, body)
                for delivery, body in site.delivered
                if delivery.conversation_id == name and delivery.is_initiator == (side == TARGET)
            ]
            self.check_got(name, side, got, site)
            far = states[TARGET - side]
            if states[side] is State.CO and self.said[name, side]:
                assert far in {State.CO, State.SO, State.CD, State.ABSENT}, f"{name}: {states}"
                is_silent = far in {State.CD, State.ABSENT} and not self.cleaned(name, TARGET - side)
                assert not is_silent, f"{name}: side {side} waits in silence: {states}"

    def cleaned(self, name: str, side: int) -> bool:
        """Returns whether a side has ended WITH CLEANUP."""
        site = self.sites[self.conversations[name][side]]
        kinds = [
            envelope.type
            for _, record in site.messages
            if (envelope := site.envelope(record)).conversation_id == name
            and envelope.is_initiator == (side == INITIATOR)
        ]
        return "CLEANUP" in kinds

    def check_got(self, name: str, side: int, got: list, site: Site) -> None:  # type: ignore[type-arg]
        numbered = [(delivery.sequence, delivery.kind, body) for delivery, body in got if delivery.sequence is not None]
        messages = [body for _, kind, body in numbered if kind == Kind.MESSAGE]
        sender = self.sites[self.conversations[name][TARGET - side]]
        # When a lifetime ends, no side knows which of the last messages have arrived.
        unknown = {body for body, reason in sender.dead_letters.items() if reason == LIFETIME_EXCEEDED} & {*messages}
        dead = sender.dead_letters.keys() - unknown
        accepted = [body for body in self.said[name, TARGET - side] if body not in dead]
        sequences = [sequence for sequence, _, _ in numbered]
        assert sequences == sorted(set(sequences)), f"{name} to {side}: twice or out of order: {sequences}"
        is_beginning = messages == accepted[: len(messages)]
        refused = [body for body in accepted if body in site.dead_letters]
        if not is_beginning:
            # A message that was not acknowledged may have arrived although its sender has given it up.
            said = self.said[name, TARGET - side]
            assert messages == [body for body in said if body in set(messages)], f"{name} to {side}: out of order"
        kinds = {kind for _, kind, _ in numbered}
        own, far = self.state(name, side), self.state(name, TARGET - side)
        if own is State.CO and far is State.CO:
            assert messages == accepted, f"{name} to {side}: {len(messages)} of {len(accepted)} arrived"
        if own is State.DI:
            assert Kind.END in kinds, f"{name}: {side} was not told"
            assert messages == accepted, f"{name} to {side}: {len(messages)} of {len(accepted)} came before the end"
        if own is State.ER:
            assert Kind.ERROR in kinds, f"{name}: {side} was not told of its error"
        assert len(refused) + len(messages) <= len(self.said[name, TARGET - side])


def alias(address: str) -> str:
    """Returns another address of an instance."""
    return f"{address}1"


def routes(address: str) -> list[ServiceCommand]:
    """Returns the commands that give an instance all its routes; routes to the third instance lead over the second."""
    found: list[ServiceCommand] = []
    for far in ADDRESSES:
        if far == address:
            continue
        service = SERVICES[far]
        # North and West do not know each other's address.
        via = SOUTH if {address, far} == {NORTH, WEST} else far
        for database in (DATABASE, "msdb"):
            found += [DropRoute(database, service), CreateRoute(database, service, via, service_name=service)]
    found.append(AlterDatabase(DATABASE, is_broker_enabled=True))
    return found
