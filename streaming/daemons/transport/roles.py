"""Asks other instances for the roles of their databases: which of two is the principal.

An instance answers through its topic service-definitions. A separate thread reads each address, so an address that does
not answer delays no other. After a failed connection, an address *rests*: it is not asked for some time. An address
that could not be read rests for the same time, unless a connection to it succeeds. The failure is reported to the
router, which asks again later.
"""

import threading
import time
from collections.abc import Callable, Mapping

from streaming.core.connections.connection import Connection, ConnectionState
from streaming.core.conversations.decisions import AskRole
from streaming.core.routing.addresses import topic_prefix
from streaming.errors import UserError
from streaming.kafka.clients import Cluster
from streaming.kafka.periodic_tasks import Clock
from streaming.kafka.topic_follower import Start, TopicFollower
from streaming.wire.service_commands import MirroringRole
from streaming.wire.service_decisions import RoleReport
from streaming.wire.service_definitions import decode_role
from streaming.wire.topics import Topics

_READ_TIMEOUT_S = 10.0


class RoleAsker:
    """Asks for roles, and reports the answers. Only one thread may call `ask`; the reports come from other threads."""

    def __init__(
        self,
        cluster_of: Callable[[str], Cluster],
        state_of: Callable[[str], Connection | None],
        rest_ms: int,
        report: Callable[[RoleReport], None],
        say: Callable[[str], None],
    ) -> None:
        """Prepares the asker.

        Args:
            cluster_of: Returns the Kafka cluster of an address.
            state_of: Returns the state of the connection to an address; None: there is no connection.
            rest_ms: The time for which an address that could not be read is not asked.
            report: Takes the answers.
            say: Writes a line to the log: once for each reason why an address does not answer.
        """
        self._cluster_of = cluster_of
        self._state_of = state_of
        self._rest_ms = rest_ms
        self._report = report
        self._say = say
        self._lock = threading.Lock()
        # Address that a thread reads now -> the broker instances whose roles are asked for.
        self._asked: dict[str, set[str]] = {}
        self._problems: dict[str, str] = {}
        # Address -> the instant before which the address is not asked.
        self._rests_until_ms: dict[str, int] = {}

    def ask(self, decision: AskRole) -> None:
        """Asks both addresses, but not an address that still rests. The answers come later."""
        for address in dict.fromkeys((decision.address, decision.mirror_address)):
            if self._rests(address):
                continue
            with self._lock:
                is_new = address not in self._asked
                self._asked.setdefault(address, set()).add(decision.broker_instance)
            if is_new:
                threading.Thread(target=self._run, args=(address,), name=f"roles of {address}", daemon=True).start()

    def _rests(self, address: str) -> bool:
        """Returns whether an address is not to be asked now."""
        connection = self._state_of(address)
        if connection is not None and connection.state is ConnectionState.CONNECTED:
            return False
        suppressed_until_ms = 0 if connection is None else connection.suppressed_until_ms
        with self._lock:
            return Clock.now_ms() < max(suppressed_until_ms, self._rests_until_ms.get(address, 0))

    def _run(self, address: str) -> None:
        try:
            roles = read_roles(self._cluster_of(address), topic_prefix(address))
            problem = ""
        except UserError as error:
            roles, problem = {}, str(error)
        with self._lock:
            wanted = self._asked.pop(address)
            is_news = bool(problem) and self._problems.get(address) != problem
            self._problems[address] = problem
            self._rests_until_ms[address] = Clock.now_ms() + self._rest_ms if problem else 0
        if is_news:
            self._say(f"{address} does not answer which role its database has: {problem}")
        for instance in sorted(wanted):
            role, epoch = roles.get(instance, (None, 0))
            self._report(RoleReport(instance, address, role, epoch))


def read_roles(cluster: Cluster, prefix: str) -> Mapping[str, tuple[MirroringRole, int]]:
    """Returns broker instance -> role and epoch, for an instance's databases whose broker is enabled.

    Raises:
        UserError: The instance cannot be reached, or does not let this client read.
    """
    topic = Topics(prefix).service_definitions
    rows: dict[bytes, tuple[str, MirroringRole, int] | None] = {}
    end_s = time.monotonic() + _READ_TIMEOUT_S
    with TopicFollower(cluster, [topic], Start.BEGINNING) as follower:
        while not follower.is_at_end:
            if time.monotonic() >= end_s:
                raise UserError(f"{topic} cannot be read within {_READ_TIMEOUT_S:.0f} s.")
            message = follower.poll(0.2)
            if message is not None:
                rows[message.key() or b""] = decode_role(message.value())
    return {instance: (role, epoch) for instance, role, epoch in filter(None, rows.values())}
