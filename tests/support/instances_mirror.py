"""A service whose database is in two of three instances: one of them is the principal, or neither, or both.

The state of conversations is not copied (R8), so a failover ends the conversations that had begun. The checks allow for
that: of the two databases, each gets a message at most once and in order, and no program waits in silence.
"""

from collections import defaultdict
from collections.abc import Sequence
from random import Random

from streaming.core.conversations.conversation import INITIATOR, TARGET
from streaming.core.conversations.endpoint_states import State
from streaming.core.conversations.kinds import Kind
from streaming.wire.envelope import Envelope
from streaming.wire.service_commands import AlterDatabase, CreateDatabase, CreateRoute, CreateService, MirroringRole
from tests.support.held import text_of
from tests.support.instances_world import Site

SERVICE, DATABASE = "Accounts", "M"
BROKER_INSTANCE = "90000000-0000-4000-8000-000000000000"
_ROLES: tuple[tuple[MirroringRole, MirroringRole], ...] = (
    ("PRINCIPAL", "MIRROR"),
    ("MIRROR", "PRINCIPAL"),
    ("MIRROR", "MIRROR"),
    ("PRINCIPAL", "PRINCIPAL"),
)
_KINDS = {"MESSAGE": 85, "END": 6, "ERROR": 2, "CLEANUP": 2}


class Mirrored:
    """The service, and the programs of its conversations, which an instance without the database begins."""

    def __init__(self, random: Random, begins: Site, service: str, copies: Sequence[Site], back: Sequence[str]) -> None:
        """Creates both databases.

        Args:
            random: The source of randomness.
            begins: The instance whose programs begin conversations.
            service: Their service, in the database D.
            copies: The two instances with the database.
            back: For each of these instances, the address by which it reaches `service`.
        """
        self._random, self._begins, self._service, self._copies = random, begins, service, copies
        self._names: list[str] = []
        # Conversation and sending side -> bodies.
        self._said: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
        self._endings: set[str] = set()
        mirror = copies[1].address
        route = CreateRoute("D", SERVICE, copies[0].address, SERVICE, BROKER_INSTANCE, mirror_address=mirror)
        begins.commands.append(route)
        for site, address, role in zip(copies, back, _ROLES[0], strict=True):
            site.commands += [
                CreateDatabase(DATABASE, BROKER_INSTANCE, mirroring_role=role),
                CreateService(DATABASE, SERVICE, "queue"),
                CreateRoute(DATABASE, service, address, service),
            ]

    def speak(self) -> None:
        """One program makes a statement."""
        if not self._names or self._random.random() < 0.15:
            name = f"m{len(self._names)}"
            self._names.append(name)
            self._say(self._begins, name, INITIATOR, "MESSAGE", begin=True)
            return
        name = self._random.choice(self._names[-5:])
        places = [(self._begins, INITIATOR), (self._begins, INITIATOR), *((site, TARGET) for site in self._copies)]
        site, side = self._random.choice(places)
        if site.state(name, side) is not State.ABSENT:
            [kind] = self._random.choices([*_KINDS], [*_KINDS.values()])
            self._say(site, name, side, kind)

    def _say(self, site: Site, name: str, side: int, kind: str, *, begin: bool = False) -> None:
        own, far = (self._service, SERVICE) if side == INITIATOR else (SERVICE, self._service)
        database = "D" if side == INITIATOR else DATABASE
        body = site.say(Envelope(kind, name, side == INITIATOR, own, database, far, begin=begin))  # type: ignore[arg-type]
        if kind == "MESSAGE":
            self._said[name, side].append(body)
        else:
            self._endings.add(name)

    def change_roles(self) -> None:
        """Changes the roles of both databases, or of one."""
        for site, role in zip(self._copies, self._random.choice(_ROLES), strict=True):
            if self._random.random() < 0.8:
                site.commands.append(AlterDatabase(DATABASE, mirroring_role=role))

    def heal(self) -> None:
        """Makes one database the new principal. An old principal does not count any more."""
        for site in self._copies:
            site.commands.append(AlterDatabase(DATABASE, mirroring_role="MIRROR"))
        self._random.choice(self._copies).commands.append(AlterDatabase(DATABASE, mirroring_role="PRINCIPAL"))

    def check(self) -> None:
        """Checks what each side has got, and that nothing is pending where the database is the principal."""
        for name in self._names:
            taken = [self._check_got(site, name, TARGET) for site in self._copies]
            self._check_got(self._begins, name, INITIATOR)
            states = self._begins.state(name, INITIATOR), *(site.state(name, TARGET) for site in self._copies)
            if name in self._begins.shard.conversations:
                held = self._begins.shard.conversation(name).directions[TARGET]
                assert not held.waiting, f"{name}: {text_of(held)}"
            if name not in self._endings and states[0] is State.CO and State.ER not in states:
                accepted = [body for body in self._said[name, INITIATOR] if body not in self._begins.dead_letters]
                # What the mirror has accepted while it was the principal waits there for its next turn.
                lost = (
                    {*accepted} - {*taken[0], *taken[1]} - {each for site in self._copies for each in site.held(name)}
                )
                assert not lost, f"{name}: {lost} are lost; {states}"

    def _check_got(self, site: Site, name: str, side: int) -> list[bytes]:
        """Checks the deliveries of a conversation in an instance; returns the bodies."""
        got = [
            (each, body)
            for each, body in site.delivered
            if each.conversation_id == name and each.is_initiator == (side == TARGET) and each.sequence is not None
        ]
        sequences = [each.sequence or 0 for each, _ in got]
        assert sequences == sorted(set(sequences)), f"{name} in {site.address}: twice or out of order: {sequences}"
        bodies = [body for each, body in got if each.kind == Kind.MESSAGE]
        said = self._said[name, TARGET - side]
        if side == TARGET:  # each copy of the target gets only a part of the messages
            assert bodies == [body for body in said if body in {*bodies}], f"{name} in {site.address}: out of order"
        if site.state(name, side) is State.ER and not site.held(name):
            assert Kind.ERROR in {each.kind for each, _ in got}, f"{name}: {site.address} was not told of its error"
        return bodies
